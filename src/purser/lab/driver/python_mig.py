"""NVML's calls for MIG in Python: the part of `python_nvml` that makes and removes instances.

Handles are numbers, as those of devices: their places in the state, plus a base that identifies their kind.
"""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import pynvml

from purser.lab.driver.files import load_mig, lock_folder, save_mig
from purser.lab.driver.mig import (
    MigRefusedError,
    MigState,
    compute_of,
    compute_profile,
    create_compute,
    create_instance,
    destroy_compute,
    destroy_instance,
    free_compute_starts,
    profile_by_number,
    profile_of,
    remaining,
    switched,
)
from purser.lab.driver.migprofiles import ComputeProfile, InstanceProfile, instance_profiles
from purser.lab.driver.python_state import require_supported
from purser.lab.driver.state import GpuState

T = TypeVar("T")

_DEVICE, _INSTANCE, _COMPUTE = 1 << 20, 1 << 21, 1 << 22
_INSTANCES, _COMPUTES = 16, 8
_GPU_PROFILES, _COMPUTE_PROFILES = pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT, pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT


class MigHandle(NamedTuple):
    """What a handle means: a MIG device, a GPU instance or a compute instance."""

    slot: int
    instance: int
    compute: int = 0

    def as_device(self) -> ctypes.c_void_p:
        """The handle of the MIG device."""
        return ctypes.c_void_p(_DEVICE + self._number)

    def as_instance(self) -> Any:
        """The handle of the GPU instance, of pynvml's type."""
        number = _INSTANCE + self.slot * _INSTANCES + self.instance
        return ctypes.cast(ctypes.c_void_p(number), pynvml.c_nvmlGpuInstance_t)

    def as_compute(self) -> Any:
        """The handle of the compute instance, of pynvml's type."""
        return ctypes.cast(ctypes.c_void_p(_COMPUTE + self._number), pynvml.c_nvmlComputeInstance_t)

    @property
    def _number(self) -> int:
        return (self.slot * _INSTANCES + self.instance) * _COMPUTES + self.compute


def mig_handle(handle: Any) -> MigHandle | None:
    """The MIG device that a device's handle means; None: a whole GPU."""
    number = (ctypes.cast(handle, ctypes.c_void_p).value or 0) - _DEVICE
    return _decode_handle(number) if number >= 0 else None


def _decode_handle(number: int) -> MigHandle:
    rest, compute = divmod(number, _COMPUTES)
    return MigHandle(*divmod(rest, _INSTANCES), compute)


def refuse(code: int) -> Any:
    """Raise NVML's error."""
    raise pynvml.NVMLError(code)


class PythonMig:
    """See the module. ``gpu``: gives the GPU at a place unless this call on it fails; ``slot``: the place of a device's
    handle."""

    def __init__(self, folder: Path, gpu: Callable[[int, str], GpuState], slot: Callable[[Any], int]) -> None:
        self._folder = folder
        self._gpu = gpu
        self._slot = slot

    def state(self, slot: int) -> MigState:
        """MIG on the GPU at a place."""
        return load_mig(self._folder, slot + 1)[slot]

    def there(self, handle: MigHandle, call: str, *, is_device: bool = True) -> tuple[GpuState, MigState]:
        """Its GPU, and the GPU's instances, of which it is one. Raises NVMLError."""
        gpu, mig = self._gpu(handle.slot, call), self.state(handle.slot)
        _asked(lambda: profile_of(gpu, mig, handle.instance))
        if is_device:
            _asked(lambda: compute_of(gpu, mig, handle.instance, handle.compute))
        return gpu, mig

    def whole_gpu(self, handle: ctypes.c_void_p, call: str) -> GpuState:
        """The GPU, for a call that is not supported on one in MIG mode. Raises NVMLError."""
        gpu = self._gpu(self._slot(handle), call)
        require_supported(not self.state(self._slot(handle)).enabled)
        return gpu

    def gpu_and_place(self, handle: ctypes.c_void_p, call: str) -> tuple[GpuState, MigHandle | None]:
        """The GPU, and the place on it where the handle is that of a MIG device. Raises NVMLError."""
        place = mig_handle(handle)
        if place is None:
            return self._gpu(self._slot(handle), call), None
        return self.there(place, call)[0], place

    # The mode

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        """As in NVML."""
        self._require_capable(handle, "nvmlDeviceGetMigMode")
        mig = self.state(self._slot(handle))
        return [int(mig.enabled), int(mig.pending)]

    def nvmlDeviceSetMigMode(self, handle: Any, mode: int) -> int:
        """As in NVML: the code says whether it is in force."""
        gpu = self._require_capable(handle, "nvmlDeviceSetMigMode")
        if mode not in (0, 1):
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._change(self._slot(handle), lambda mig: switched(gpu, mig, enabled=bool(mode)))

    # GPU instances

    def nvmlDeviceGetGpuInstanceProfileInfo(self, handle: Any, number: int, version: int = 2) -> Any:
        """As in NVML; with MIG off as well."""
        gpu = self._require_capable(handle, "nvmlDeviceGetGpuInstanceProfileInfo")
        if number >= _GPU_PROFILES:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return _info_of(profile_by_number(gpu, number), version)

    def nvmlDeviceGetGpuInstanceProfileInfoById(self, handle: Any, id_: int) -> Any:
        """As in NVML."""
        gpu, _ = self._require_enabled(handle, "nvmlDeviceGetGpuInstanceProfileInfoById")
        return _info_of(_by_id(gpu, id_), 2)

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, handle: Any, id_: int, placements: Any, count: Any) -> int:
        """As in NVML."""
        gpu, _ = self._require_enabled(handle, "nvmlDeviceGetGpuInstancePossiblePlacements")
        profile = _valid_profile(_by_id(gpu, id_))
        return _give_placements(profile.starts, profile.size, placements, count)

    def nvmlDeviceGetGpuInstanceRemainingCapacity(self, handle: Any, id_: int) -> int:
        """As in NVML."""
        gpu, mig = self._require_enabled(handle, "nvmlDeviceGetGpuInstanceRemainingCapacity")
        return remaining(gpu, mig, _valid_profile(_by_id(gpu, id_)))

    def nvmlDeviceCreateGpuInstance(self, handle: Any, id_: int) -> Any:
        """As in NVML."""
        gpu, _ = self._require_enabled(handle, "nvmlDeviceCreateGpuInstance")
        return self._create(handle, gpu, _valid_profile(_by_id(gpu, id_)), None)

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, handle: Any, id_: int, placement: Any) -> Any:
        """As in NVML; of a pointer to a placement, as pynvml takes it."""
        gpu, _ = self._require_enabled(handle, "nvmlDeviceCreateGpuInstanceWithPlacement")
        profile = _valid_profile(_by_id(gpu, id_))
        return self._create(handle, gpu, profile, _start_of(placement, profile.starts, profile.size))

    def nvmlGpuInstanceDestroy(self, instance: Any) -> int:
        """As in NVML."""
        handle = self._instance(instance)
        gpu, _ = self.there(handle, "nvmlGpuInstanceDestroy", is_device=False)
        self._change(handle.slot, lambda mig: (destroy_instance(gpu, mig, handle.instance), None))
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetGpuInstances(self, handle: Any, id_: int, instances: Any, count: Any) -> int:
        """As in NVML."""
        gpu, mig = self._require_enabled(handle, "nvmlDeviceGetGpuInstances")
        number = _valid_profile(_by_id(gpu, id_)).number
        found = [each for each in sorted(mig.instances) if mig.instances[each].profile == number]
        slot = self._slot(handle)
        return _give([MigHandle(slot, each).as_instance() for each in found], instances, count)

    def nvmlDeviceGetGpuInstanceById(self, handle: Any, id_: int) -> Any:
        """As in NVML."""
        _, mig = self._require_enabled(handle, "nvmlDeviceGetGpuInstanceById")
        if id_ not in mig.instances:
            refuse(pynvml.NVML_ERROR_NOT_FOUND)
        return MigHandle(self._slot(handle), id_).as_instance()

    def nvmlGpuInstanceGetInfo(self, instance: Any) -> Any:
        """As in NVML."""
        handle = self._instance(instance)
        gpu, mig = self.there(handle, "nvmlGpuInstanceGetInfo", is_device=False)
        profile = profile_of(gpu, mig, handle.instance)
        info = pynvml.c_nvmlGpuInstanceInfo_t()
        info.device = ctypes.cast(ctypes.c_void_p(handle.slot + 1), pynvml.c_nvmlDevice_t)
        info.id, info.profileId = handle.instance, profile.id
        info.placement.start, info.placement.size = mig.instances[handle.instance].start, profile.size
        return info

    # Compute instances

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(
        self, instance: Any, number: int, engine: int, version: int = 2
    ) -> Any:
        """As in NVML."""
        handle = self._instance(instance)
        gpu, mig = self.there(handle, "nvmlGpuInstanceGetComputeInstanceProfileInfo", is_device=False)
        if number >= _COMPUTE_PROFILES or engine:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        profile = profile_of(gpu, mig, handle.instance)
        compute = compute_profile(profile, number)
        if compute is None:
            return refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        two = version == 2
        info = pynvml.c_nvmlComputeInstanceProfileInfo_v2_t() if two else pynvml.c_nvmlComputeInstanceProfileInfo_t()
        info.id, info.sliceCount, info.instanceCount = compute.number, compute.slices, compute.most
        info.multiprocessorCount = compute.multiprocessors
        _set_engines(info, profile, "shared{}EngineCount", "shared{}Count")
        if two:
            info.name = f"MIG {_part(compute, profile)}".encode()
        return info

    def nvmlGpuInstanceGetComputeInstanceRemainingCapacity(self, instance: Any, number: int) -> int:
        """As in NVML."""
        handle = self._instance(instance)
        gpu, mig = self.there(handle, "nvmlGpuInstanceGetComputeInstanceRemainingCapacity", is_device=False)
        compute = _valid_compute(gpu, mig, handle, number)
        return len(free_compute_starts(gpu, mig, handle.instance, compute))

    def nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        self, instance: Any, number: int, placements: Any, count: Any
    ) -> int:
        """As in NVML."""
        handle = self._instance(instance)
        gpu, mig = self.there(handle, "nvmlGpuInstanceGetComputeInstancePossiblePlacements", is_device=False)
        compute = _valid_compute(gpu, mig, handle, number)
        return _give_placements(compute.starts, compute.slices, placements, count)

    def nvmlGpuInstanceCreateComputeInstance(self, instance: Any, number: int) -> Any:
        """As in NVML."""
        handle = self._instance(instance)
        gpu, mig = self.there(handle, "nvmlGpuInstanceCreateComputeInstance", is_device=False)
        return self._create_compute(handle, gpu, _valid_compute(gpu, mig, handle, number), None)

    def nvmlGpuInstanceCreateComputeInstanceWithPlacement(self, instance: Any, number: int, placement: Any) -> Any:
        """As in NVML; of a pointer to a placement, as pynvml takes it."""
        handle = self._instance(instance)
        gpu, mig = self.there(handle, "nvmlGpuInstanceCreateComputeInstanceWithPlacement", is_device=False)
        compute = _valid_compute(gpu, mig, handle, number)
        return self._create_compute(handle, gpu, compute, _start_of(placement, compute.starts, compute.slices))

    def nvmlComputeInstanceDestroy(self, compute: Any) -> int:
        """As in NVML."""
        handle = _compute_handle(compute)
        gpu, _ = self.there(handle, "nvmlComputeInstanceDestroy")
        self._change(handle.slot, lambda mig: (destroy_compute(gpu, mig, handle.instance, handle.compute), None))
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpuInstanceGetComputeInstances(self, instance: Any, number: int, found: Any, count: Any) -> int:
        """As in NVML."""
        handle = self._instance(instance)
        gpu, mig = self.there(handle, "nvmlGpuInstanceGetComputeInstances", is_device=False)
        _valid_compute(gpu, mig, handle, number)
        there = mig.instances[handle.instance].compute
        ids = [each for each in sorted(there) if there[each].profile == number]
        return _give([handle._replace(compute=each).as_compute() for each in ids], found, count)

    def nvmlGpuInstanceGetComputeInstanceById(self, instance: Any, id_: int) -> Any:
        """As in NVML."""
        handle = self._instance(instance)
        _, mig = self.there(handle, "nvmlGpuInstanceGetComputeInstanceById", is_device=False)
        if id_ not in mig.instances[handle.instance].compute:
            refuse(pynvml.NVML_ERROR_NOT_FOUND)
        return handle._replace(compute=id_).as_compute()

    def nvmlComputeInstanceGetInfo_v2(self, compute: Any) -> Any:
        """As in NVML."""
        handle = _compute_handle(compute)
        gpu, mig = self.there(handle, "nvmlComputeInstanceGetInfo")
        profile = compute_of(gpu, mig, handle.instance, handle.compute)
        info = pynvml.c_nvmlComputeInstanceInfo_t()
        info.device = ctypes.cast(ctypes.c_void_p(handle.slot + 1), pynvml.c_nvmlDevice_t)
        info.gpuInstance = handle.as_instance()
        info.id, info.profileId = handle.compute, profile.number
        info.placement.start = mig.instances[handle.instance].compute[handle.compute].start
        info.placement.size = profile.slices
        return info

    # MIG devices: compute instances as devices

    def nvmlDeviceIsMigDeviceHandle(self, handle: Any) -> ctypes.c_uint:
        """As in NVML, or rather as in pynvml."""
        return ctypes.c_uint(mig_handle(handle) is not None)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> ctypes.c_void_p:
        """As in NVML."""
        gpu = self._require_capable(handle, "nvmlDeviceGetMigDeviceHandleByIndex")
        slot = self._slot(handle)
        if index >= gpu.model.mig_devices:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        devices = self.state(slot).devices
        if index >= len(devices):
            refuse(pynvml.NVML_ERROR_NOT_FOUND)
        return MigHandle(slot, *devices[index]).as_device()

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: Any) -> ctypes.c_void_p:
        """As in NVML."""
        found = self._device(handle, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return ctypes.c_void_p(found.slot + 1)

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:
        """As in NVML."""
        return self._device(handle, "nvmlDeviceGetGpuInstanceId").instance

    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int:
        """As in NVML."""
        return self._device(handle, "nvmlDeviceGetComputeInstanceId").compute

    def nvmlDeviceGetAttributes_v2(self, handle: Any) -> Any:
        """As in NVML."""
        found = self._device(handle, "nvmlDeviceGetAttributes")
        gpu, mig = self.there(found, "nvmlDeviceGetAttributes")
        profile, compute = profile_of(gpu, mig, found.instance), compute_of(gpu, mig, found.instance, found.compute)
        attributes = pynvml.c_nvmlDeviceAttributes()
        attributes.multiprocessorCount = compute.multiprocessors
        _set_engines(attributes, profile, "shared{}EngineCount", "shared{}Count")
        attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount = profile.slices, compute.slices
        attributes.memorySizeMB = profile.memory_mib
        return attributes

    # What they share

    def _require_capable(self, handle: Any, call: str) -> GpuState:
        gpu = self._gpu(self._slot(handle), call)
        if not gpu.model.mig_devices:
            refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return gpu

    def _require_enabled(self, handle: Any, call: str) -> tuple[GpuState, MigState]:
        gpu, mig = self._require_capable(handle, call), self.state(self._slot(handle))
        if not mig.enabled:
            refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return gpu, mig

    def _instance(self, instance: Any) -> MigHandle:
        number = (ctypes.cast(instance, ctypes.c_void_p).value or 0) - _INSTANCE
        if number < 0:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return MigHandle(*divmod(number, _INSTANCES))

    def _device(self, handle: Any, call: str, otherwise: int = pynvml.NVML_ERROR_NOT_SUPPORTED) -> MigHandle:
        """``otherwise``: the error for a whole GPU."""
        found = mig_handle(handle)
        if found is None:
            self._gpu(self._slot(handle), call)
            return MigHandle(*refuse(otherwise))
        self.there(found, call)
        return found

    def _create(self, handle: Any, gpu: GpuState, profile: InstanceProfile, start: int | None) -> Any:
        slot = self._slot(handle)
        number = self._change(slot, lambda mig: create_instance(gpu, mig, profile, start))
        return MigHandle(slot, number).as_instance()

    def _create_compute(self, handle: MigHandle, gpu: GpuState, compute: ComputeProfile, start: int | None) -> Any:
        change = _creating_compute(gpu, handle.instance, compute, start)
        return handle._replace(compute=self._change(handle.slot, change)).as_compute()

    def _change(self, slot: int, change: Callable[[MigState], tuple[MigState, T]]) -> T:
        with lock_folder(self._folder):
            states = list(load_mig(self._folder, _INSTANCES * 2))
            states[slot], result = _asked(lambda: change(states[slot]))
            save_mig(self._folder, states)
        return result


def _creating_compute(
    gpu: GpuState, instance: int, compute: ComputeProfile, start: int | None
) -> Callable[[MigState], tuple[MigState, int]]:
    return lambda mig: create_compute(gpu, mig, instance, compute, start)


def _asked(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except MigRefusedError as error:
        raise pynvml.NVMLError(error.code) from None


def _compute_handle(compute: Any) -> MigHandle:
    number = (ctypes.cast(compute, ctypes.c_void_p).value or 0) - _COMPUTE
    if number < 0:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return _decode_handle(number)


def _by_id(gpu: GpuState, id_: int) -> InstanceProfile | None:
    return next((each for each in instance_profiles(gpu.model) if each.id == id_), None)


def _valid_profile(profile: InstanceProfile | None) -> InstanceProfile:
    return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT) if profile is None else profile


def _valid_compute(gpu: GpuState, mig: MigState, handle: MigHandle, number: int) -> ComputeProfile:
    found = compute_profile(profile_of(gpu, mig, handle.instance), number)
    return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT) if found is None else found


def _info_of(profile: InstanceProfile | None, version: int) -> Any:
    if profile is None:
        return refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    info = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t() if version == 2 else pynvml.c_nvmlGpuInstanceProfileInfo_t()
    info.id, info.sliceCount, info.instanceCount = profile.id, profile.slices, profile.most
    info.multiprocessorCount, info.memorySizeMB = profile.multiprocessors, profile.memory_mib
    _set_engines(info, profile, "{}EngineCount", "{}Count")
    if version == 2:
        info.name = f"MIG {profile.name}".encode()
    return info


def _set_engines(info: Any, profile: InstanceProfile, copy: str, other: str) -> None:
    """pynvml's fields have names of one shape."""
    engines = profile.engines
    names = ("copy", copy), ("decoder", other), ("encoder", other), ("jpeg", other), ("ofa", other)
    counts = (engines.copy, engines.decoders, engines.encoders, engines.jpeg, engines.ofa)
    for (name, shape), count in zip(names, counts, strict=True):
        setattr(info, shape.format(name.capitalize() if shape[0] != "{" else name), count)


def _part(compute: ComputeProfile, profile: InstanceProfile) -> str:
    return profile.name if compute.slices == profile.slices else f"{compute.slices}c.{profile.name}"


def _start_of(placement: Any, starts: Sequence[int], size: int) -> int:
    """Where a placement begins that may be. ``placement``: a pointer, or what ctypes made of one."""
    there: SimpleNamespace = getattr(placement, "contents", None) or placement._obj
    if there.size != size or there.start not in starts:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return int(there.start)


def _give_placements(starts: Sequence[int], size: int, placements: Any, count: Any) -> int:
    counter = count._obj
    room, counter.value = counter.value, len(starts)
    if placements is None:
        return int(pynvml.NVML_SUCCESS)
    if len(starts) > room:
        refuse(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for place, start in enumerate(sorted(starts)):
        placements[place].start, placements[place].size = start, size
    return int(pynvml.NVML_SUCCESS)


def _give(handles: Sequence[Any], into: Any, count: Any) -> int:
    counter = count._obj
    room, counter.value = counter.value, len(handles)
    if len(handles) > room:
        refuse(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for place, handle in enumerate(handles):
        into[place] = handle
    return int(pynvml.NVML_SUCCESS)
