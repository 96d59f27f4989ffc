"""MIG by the real NVML: GPU instances, and in each of them one compute instance that fills it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, permutations
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from purser.agent.mig.hardware import HardwareError, Layout, MigGpu, MigHardware, NoHardware, OfferedProfile
from purser.agent.nvml.calls import DeviceCalls, Nvml, load_nvml
from purser.agent.nvml.driver import DriverError, MigCallError
from purser.agent.nvml.instances import (
    compute_instances,
    destroy_handle,
    fill_handle,
    instances_of_profile,
    offered_profiles,
)
from purser.agent.nvml.library import LIBRARY, find_library
from purser.agent.nvml.migs import mig_uuids
from purser.core.mig.profiles import SUFFIXES, profile_name

T = TypeVar("T")

MAX_CREATION_ORDERS = 60
"""Orders of creation that are tried at most: whether profiles fit depends on the placement of the earlier ones."""

MAX_PERMUTATIONS = math.factorial(7)
"""Permutations that are searched for different orders: all of seven instances, the most that a GPU has room for."""

INCOMPLETE_SUFFIX = " (incomplete)"
"""After the name of a GPU instance without its compute instance: a process was killed between the two."""


def open_mig(library: Path | None, driver_roots: Sequence[Path]) -> MigHardware:
    """The given library, or the first below a driver's root. Without one: a null object whose calls fail with the
    reason."""
    found = str(library) if library is not None else find_library(driver_roots)
    if found is None:
        places = " or ".join(dict.fromkeys(map(str, driver_roots)))
        return NoHardware(f"{LIBRARY} was not found under {places}: is the driver installed there?")
    try:
        return NvmlHardware(load_nvml(found))
    except (DriverError, HardwareError) as error:
        return NoHardware(f"{found}: {error}")


class GpuInstanceProfile(msgspec.Struct, frozen=True):
    """A size of GPU instance that a GPU offers."""

    name: str
    id: int
    slices: int
    most: int
    """How many fit at most."""
    memory_mib: int = 0
    """Of a GPU instance."""


class NvmlHardware:
    """See `MigHardware`. `set_mode` reopens NVML once it has changed a mode: that may have reset the GPU."""

    def __init__(self, nvml: Nvml) -> None:
        """Raises `HardwareError` where the library does not start."""
        self._nvml = nvml
        self._ask("initialising NVML", self._nvml.nvmlInit)

    def gpus(self) -> tuple[MigGpu, ...]:
        """See `MigHardware.gpus`."""
        count = self._ask("counting GPUs", self._nvml.nvmlDeviceGetCount)
        return tuple(self._gpu(index) for index in range(count))

    def offers(self, index: int) -> Mapping[str, OfferedProfile]:
        """See `MigHardware.offers`. A driver of R580 says so of an H200 with MIG off as well."""
        found = self._profiles(self._device(index))
        return {each.name: OfferedProfile(each.most, each.slices, each.memory_mib) for each in found}

    def set_mode(self, index: int, enabled: bool) -> None:
        """See `MigHardware.set_mode`."""
        device = self._device(index)
        what = f"{'enabling' if enabled else 'disabling'} MIG on GPU {index}"
        refused = self._ask(what, self._nvml.nvmlDeviceSetMigMode, device, int(enabled))
        if refused == self._nvml.NVML_ERROR_IN_USE:
            raise HardwareError(f"{what}: the GPU is in use")
        self._ask("shutting down NVML", self._nvml.nvmlShutdown)
        self._ask("initialising NVML", self._nvml.nvmlInit)
        current, pending = self._ask(what, self._nvml.nvmlDeviceGetMigMode, self._device(index))
        if bool(current) == enabled:
            return
        if bool(pending) == enabled:
            raise HardwareError(f"{what}: the change takes effect at the GPU's next reset: reboot the node")
        raise HardwareError(f"{what}: the mode did not change")

    def set_devices(self, index: int, profiles: tuple[str, ...]) -> None:
        """See `MigHardware.set_devices`."""
        device = self._device(index)
        offered = {each.name: each for each in self._profiles(device)}
        for name in profiles:
            if name not in offered:
                others = f", only {', '.join(sorted(offered))}" if offered else " or any other MIG profile"
                raise HardwareError(f"GPU {index} does not support {name}{others}")
        refusal: HardwareError | None = None
        for order in _creation_orders([offered[name] for name in profiles]):
            self._destroy_all(index, device)
            try:
                for profile in order:
                    self._create(index, device, profile)
                return
            except HardwareError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """See `MigHardware.close`."""
        self._ask("shutting down NVML", self._nvml.nvmlShutdown)

    def _gpu(self, index: int) -> MigGpu:
        nvml, device = self._nvml, self._device(index)
        pci = self._ask(f"reading the PCI information of GPU {index}", nvml.nvmlDeviceGetPciInfo, device)
        try:
            current, _ = nvml.nvmlDeviceGetMigMode(device)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                raise HardwareError(f"reading the MIG mode of GPU {index}: {error}") from error
            return MigGpu(index=index, device_id=_device_id(pci), capable=False, uuids=self._uuids(device, False))
        names = sorted(name for name, _ in self._instances(index, device)) if current else []
        layout, uuids = Layout(bool(current), tuple(names)), self._uuids(device, bool(current))
        return MigGpu(index=index, device_id=_device_id(pci), layout=layout, uuids=uuids)

    def _uuids(self, device: Any, is_partitioned: bool) -> tuple[str, ...]:
        """See `MigGpu.uuids`."""
        calls = DeviceCalls(self._nvml)
        own = calls.ask(str, "nvmlDeviceGetUUID", device)
        migs = tuple(mig_uuids(calls, device)) if is_partitioned else ()
        return () if own is None or calls.fault is not None else (own, *migs)

    def _device(self, index: int) -> Any:
        return self._ask(f"opening GPU {index}", self._nvml.nvmlDeviceGetHandleByIndex, index)

    def _profiles(self, device: Any) -> list[GpuInstanceProfile]:
        total = self._total_bytes(device)
        return [self._profile(number, info, total) for number, info in self._call(offered_profiles, device)]

    def _total_bytes(self, device: Any) -> int:
        """0: the GPU uses the machine's memory."""
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(device).total)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_NOT_SUPPORTED:
                return 0
            raise HardwareError(f"reading the GPU's memory size: {error}") from error

    def _profile(self, number: int, info: Any, total_bytes: int) -> GpuInstanceProfile:
        driver_name = str(getattr(info, "name", "")).removeprefix("MIG ").strip()
        suffix = SUFFIXES.get(_nvml_profile_name(self._nvml, number), "")
        name = driver_name or profile_name(info.sliceCount, info.memorySizeMB, total_bytes, suffix)
        sizes = int(info.sliceCount), int(info.instanceCount), int(info.memorySizeMB)
        return GpuInstanceProfile(name, int(info.id), *sizes)

    def _instances(self, index: int, device: Any) -> Iterator[tuple[str, Any]]:
        """Names and handles of the GPU instances of a GPU."""
        what = f"listing the GPU instances on GPU {index}"
        for profile in self._profiles(device):
            for instance in self._call(instances_of_profile, device, profile.id, profile.most, what):
                computes = self._call(compute_instances, instance, what)
                complete = any(slices == profile.slices for slices, _ in computes)
                yield profile.name + ("" if complete else INCOMPLETE_SUFFIX), instance

    def _destroy_all(self, index: int, device: Any) -> None:
        for name, instance in list(self._instances(index, device)):
            self._call(destroy_handle, instance, f"removing {name} from GPU {index}")

    def _create(self, index: int, device: Any, profile: GpuInstanceProfile) -> None:
        what = f"creating {profile.name} on GPU {index}"
        instance = self._ask(what, self._nvml.nvmlDeviceCreateGpuInstance, device, profile.id)
        self._call(fill_handle, instance, what)

    def _call(self, call: Callable[..., T], *arguments: Any) -> T:
        """One of `purser.agent.nvml.instances`."""
        try:
            return call(self._nvml, *arguments)
        except MigCallError as error:
            raise HardwareError(str(error)) from error

    def _ask(self, what: str, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            raise HardwareError(f"{what}: {error}") from error


def _creation_orders(profiles: list[GpuInstanceProfile]) -> Iterator[tuple[GpuInstanceProfile, ...]]:
    """The largest first, as it nearly always fits; then others, each once."""
    first = tuple(sorted(profiles, key=lambda each: (-each.slices, each.name)))
    seen: set[tuple[GpuInstanceProfile, ...]] = set()
    for order in islice(permutations(first), MAX_PERMUTATIONS):
        if order not in seen and len(seen) < MAX_CREATION_ORDERS:
            seen.add(order)
            yield order


def _device_id(pci: Any) -> str:
    return f"0x{int(pci.pciDeviceId):08X}"


def _nvml_profile_name(nvml: Nvml, number: int) -> str:
    """``1_SLICE_REV1``, as NVML calls a profile."""
    prefix = "NVML_GPU_INSTANCE_PROFILE_"
    return next(
        (each.removeprefix(prefix) for each in dir(nvml) if each.startswith(prefix) and getattr(nvml, each) == number),
        "",
    )
