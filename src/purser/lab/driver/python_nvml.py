"""NVML's functions in Python over a simulated node's state: what stands in for the C library without a compiler.

It has pynvml's names and semantics, so that everything above it, the agent's binding included, is the same code. The C
library is the one that proves the binding; a shared table of tests holds the two equal.

Here: the library, devices and their topology. The other calls are parts, as they are files of the C library: MIG
(`python_mig`), what is measured and counted (`python_readings`), processes (`python_processes`), samples
(`python_samples`), events (`python_events`).
"""

import ctypes
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

from purser.core.kubernetes.quantities import MIB
from purser.lab.driver.mig import device_name, mig_uuid, profile_of
from purser.lab.driver.parts import NvLinkState
from purser.lab.driver.python_events import PythonEvents
from purser.lab.driver.python_mig import MigHandle, PythonMig
from purser.lab.driver.python_processes import PythonProcesses
from purser.lab.driver.python_readings import NUMBER_CALLS, PythonReadings
from purser.lab.driver.python_samples import PythonSamples
from purser.lab.driver.python_state import PythonState, check_argument, require_supported, slot_of
from purser.lab.driver.state import cuda_number, nvml_version

_UNNAMED_ERRORS = {
    pynvml.NVML_ERROR_IN_USE: "In use by another client",
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "Insufficient Resources",
}
"""Errors that pynvml has no name for: it asks the library for one."""


class PythonNvml:
    """A stand-in for one driver's pynvml module: functions of its own, constants and errors of the real one."""

    def __init__(self, truth: Path) -> None:
        self._node = PythonState(truth)
        self._slots: list[int] = []
        self._mig = PythonMig(truth.parent, self._node.at, slot_of)
        self._readings = PythonReadings(self._node, self._mig)
        self._parts = (
            self._mig,
            self._readings,
            PythonProcesses(self._mig),
            PythonSamples(self._node.gpu, slot_of, self._mig),
            PythonEvents(self._node),
        )
        self.nvmlLib = self
        for code, words in _UNNAMED_ERRORS.items():
            pynvml.NVMLError._errcode_to_string.setdefault(code, words)

    def __getattr__(self, name: str) -> Any:
        if name in NUMBER_CALLS:
            return partial(self._readings.numbers, name)
        for part in self._parts if name.startswith("nvml") else ():
            if hasattr(type(part), name):
                return getattr(part, name)
        # No functions: a call that is not simulated must fail as in the C library, not reach pynvml's own.
        if name.startswith(("NVML_", "NVMLError", "nvmlEventType", "nvmlMemory_", "nvmlClocks", "c_nvml")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in vars(pynvml) if name.startswith("NVML_"))]

    # The library

    def nvmlInit(self) -> None:
        """Fix the list of devices, or fail as the state says."""
        state = self._node.wait()
        if state.init_error:
            raise pynvml.NVMLError(state.init_error)
        self._node.starts += 1
        self._slots = [index for index, gpu in enumerate(state.gpus) if gpu.present]

    def nvmlShutdown(self) -> None:
        """As in NVML."""
        self._node.started()
        self._node.starts -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        """As in NVML."""
        return self._node.started().driver_version

    def nvmlSystemGetNVMLVersion(self) -> str:
        """As in NVML."""
        state = self._node.started()
        return nvml_version(state.driver_version, state.cuda_version)

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        """As in NVML."""
        return cuda_number(self._node.started().cuda_version)

    # Devices

    def nvmlDeviceGetCount(self) -> int:
        """As in NVML."""
        self._node.started()
        return len(self._slots)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> ctypes.c_void_p:
        """As in NVML; a handle is the slot, counted from one."""
        self._node.started()
        check_argument(index < len(self._slots))
        handle = ctypes.c_void_p(self._slots[index] + 1)
        self._node.gpu(handle, "nvmlDeviceGetHandleByIndex")
        return handle

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> ctypes.c_void_p:
        """As in NVML: every GPU is asked, so one that is lost spoils the search for those behind it."""
        self._node.started()
        for slot in self._slots:
            gpu = self._node.at(slot, "nvmlDeviceGetHandleByUUID")
            if gpu.uuid == uuid:
                return ctypes.c_void_p(slot + 1)
            for place in self._mig.state(slot).devices:
                if mig_uuid(gpu.uuid, *place) == uuid:
                    return MigHandle(slot, *place).as_device()
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetIndex(self, handle: ctypes.c_void_p) -> int:
        """As in NVML."""
        self._node.gpu(handle, "nvmlDeviceGetIndex")
        return self._slots.index(slot_of(handle))

    def nvmlDeviceGetUUID(self, handle: ctypes.c_void_p) -> str:
        """As in NVML."""
        gpu, place = self._mig.gpu_and_place(handle, "nvmlDeviceGetUUID")
        return gpu.uuid if place is None else mig_uuid(gpu.uuid, place.instance, place.compute)

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p) -> str:
        """As in NVML."""
        gpu, place = self._mig.gpu_and_place(handle, "nvmlDeviceGetName")
        if place is None:
            return gpu.model.name
        return f"{gpu.model.name} MIG {device_name(gpu, self._mig.state(place.slot), place.instance, place.compute)}"

    def nvmlDeviceGetPciInfo(self, handle: ctypes.c_void_p) -> SimpleNamespace:
        """As in NVML, address and ids alone."""
        gpu = self._node.gpu(handle, "nvmlDeviceGetPciInfo")
        ids = {"pciDeviceId": gpu.model.pci_device_id, "pciSubSystemId": gpu.model.pci_subsystem_id}
        return SimpleNamespace(busId=_bus_id(gpu.pci), **ids)

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, version: int | None = None) -> SimpleNamespace:
        """As in NVML: the first version counts what the driver reserves as used."""
        gpu, place = self._mig.gpu_and_place(handle, "nvmlDeviceGetMemoryInfo")
        total, reserved, used = gpu.model.memory_mib * MIB, gpu.model.reserved_mib * MIB, gpu.total_used_mib * MIB
        if place is not None:
            profile = profile_of(gpu, self._mig.state(place.slot), place.instance)
            inside = (each.memory_mib for each in gpu.processes if each.gpu_instance == place.instance)
            total, reserved, used = profile.memory_mib * MIB, 0, sum(inside) * MIB
        free = max(0, total - reserved - used)
        if version:
            return SimpleNamespace(total=total, reserved=reserved, used=used, free=free)
        return SimpleNamespace(total=total, used=used + reserved, free=free)

    def nvmlDeviceGetGridLicensableFeatures_v4(self, handle: ctypes.c_void_p) -> Any:
        """As in NVML; no simulated GPU is a vGPU, which would need a licence."""
        self._node.gpu(handle, "nvmlDeviceGetGridLicensableFeatures")
        return pynvml.c_nvmlGridLicensableFeatures_v4_t()

    # Topology

    def nvmlDeviceGetTopologyCommonAncestor(self, one: ctypes.c_void_p, other: ctypes.c_void_p) -> int:
        """As in NVML."""
        gpu = self._node.gpu(one, "nvmlDeviceGetTopologyCommonAncestor")
        self._node.gpu(other, "nvmlDeviceGetTopologyCommonAncestor")
        return gpu.levels[slot_of(other)]

    def nvmlDeviceGetNvLinkState(self, handle: ctypes.c_void_p, link: int) -> int:
        """As in NVML."""
        return int(self._link(handle, link, "nvmlDeviceGetNvLinkState").active)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: ctypes.c_void_p, link: int) -> int:
        """As in NVML."""
        return self._link(handle, link, "nvmlDeviceGetNvLinkRemoteDeviceType").remote_type

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: ctypes.c_void_p, link: int) -> SimpleNamespace:
        """As in NVML, the address alone."""
        return SimpleNamespace(busId=_bus_id(self._link(handle, link, "nvmlDeviceGetNvLinkRemotePciInfo").remote))

    def _link(self, handle: ctypes.c_void_p, link: int, call: str) -> NvLinkState:
        links = self._node.gpu(handle, call).nvlinks
        require_supported(bool(links))
        check_argument(link < len(links))
        return links[link]


def _bus_id(pci: str) -> str:
    """As NVML spells it: ``00000000:07:00.0``."""
    return f"0000{pci}".upper()
