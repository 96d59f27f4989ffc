"""The GPU instances of a GPU in MIG mode: listed, made and removed, asked of NVML call by call.

What NVML answers when it refuses is in its reference, chapter "Multi Instance GPU Management"; here each answer becomes
a `MigTrouble` and a sentence.
"""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from purser.agent.nvml.calls import DeviceCalls, Nvml
from purser.agent.nvml.driver import GpuInstance, MigCallError, MigContents, MigTrouble
from purser.agent.nvml.migs import mig_devices, total_mib

T = TypeVar("T")

_ERROR_MEANINGS = {
    "NVML_ERROR_IN_USE": (MigTrouble.IN_USE, "processes are running on the instance"),
    "NVML_ERROR_INSUFFICIENT_RESOURCES": (MigTrouble.NO_ROOM, "the GPU has no room for the instance at that position"),
    "NVML_ERROR_INVALID_ARGUMENT": (
        MigTrouble.NOT_OFFERED,
        "the driver does not support the instance on this GPU or at this position",
    ),
    "NVML_ERROR_NOT_SUPPORTED": (MigTrouble.OFF, "MIG is not enabled on the GPU, or the node is a vGPU guest"),
    "NVML_ERROR_NO_PERMISSION": (
        MigTrouble.NO_PERMISSION,
        "no permission: only root with CAP_SYS_ADMIN, or with the capability mig/config, may list or change GPU "
        "instances",
    ),
    "NVML_ERROR_NOT_FOUND": (MigTrouble.GONE, "the instance no longer exists"),
    "NVML_ERROR_GPU_IS_LOST": (MigTrouble.LOST, "the GPU is lost and cannot be reached"),
    "NVML_ERROR_RESET_REQUIRED": (MigTrouble.LOST, "the GPU needs a reset"),
    "NVML_ERROR_UNINITIALIZED": (MigTrouble.LOST, "NVML has been shut down"),
    "NVML_ERROR_DRIVER_NOT_LOADED": (MigTrouble.LOST, "the driver is not loaded"),
    "NVML_ERROR_TIMEOUT": (MigTrouble.OTHER, "the driver timed out"),
}
"""By the name of NVML's constant."""


def mig_contents(nvml: Nvml, gpu: Any) -> MigContents:
    """What a GPU is cut into. Raises `MigCallError`, also where it is not in MIG mode."""
    what = "reading the GPU's instances"
    found = {each.id: each for each in _instances(nvml, gpu, what)}
    calls = DeviceCalls(nvml)
    memory_mib = calls.ask(total_mib, "nvmlDeviceGetMemoryInfo", gpu) or 0
    devices = mig_devices(calls, gpu, memory_mib) if found else ()
    return MigContents(tuple(found[number] for number in sorted(found)), devices)


def create_instance(nvml: Nvml, gpu: Any, number: int, start: int, size: int) -> int:
    """Make a GPU instance, without a compute instance yet; its id. Raises `MigCallError`.

    ``number``: NVML's of the profile; ``start``, ``size``: in memory slices.
    """
    what = "creating a GPU instance"
    profile = _profile(nvml, gpu, number)
    if profile is None:
        raise MigCallError(MigTrouble.NOT_OFFERED, f"{what}: the driver does not support this profile on this GPU")
    placement = nvml.c_nvmlGpuInstancePlacement_t(start, size)
    create = nvml.nvmlDeviceCreateGpuInstanceWithPlacement
    instance = _ask(nvml, what, create, gpu, int(profile.id), ctypes.byref(placement))
    return int(_ask(nvml, what, nvml.nvmlGpuInstanceGetInfo, instance).id)


def fill_instance(nvml: Nvml, gpu: Any, id_: int) -> None:
    """Make the one compute instance that is as large as its GPU instance. Raises `MigCallError`."""
    what = "creating the compute instance"
    fill_handle(nvml, _ask(nvml, what, nvml.nvmlDeviceGetGpuInstanceById, gpu, id_), what)


def destroy_instance(nvml: Nvml, gpu: Any, id_: int) -> None:
    """Remove a GPU instance and the compute instances in it. One that is gone is no error. Raises `MigCallError`: with
    `MigTrouble.IN_USE` while processes run on it."""
    what = "removing a GPU instance"
    try:
        destroy_handle(nvml, _ask(nvml, what, nvml.nvmlDeviceGetGpuInstanceById, gpu, id_), what)
    except MigCallError as error:
        if error.trouble is not MigTrouble.GONE:
            raise


# --- by handle


def offered_profiles(nvml: Nvml, gpu: Any) -> list[tuple[int, Any]]:
    """NVML's profiles of GPU instances that a GPU offers: number, and what NVML says of it. Of several that share an
    id, the first. Raises `MigCallError`."""
    found: dict[int, tuple[int, Any]] = {}
    for number in range(int(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT)):
        if (profile := _profile(nvml, gpu, number)) is not None:
            found.setdefault(int(profile.id), (number, profile))
    return list(found.values())


def instances_of_profile(nvml: Nvml, gpu: Any, profile_id: int, most: int, what: str) -> list[Any]:
    """Handles of the GPU instances of an offered profile, ``most`` at most. Raises `MigCallError`."""
    return _list(nvml, what, nvml.nvmlDeviceGetGpuInstances, nvml.c_nvmlGpuInstance_t, gpu, profile_id, most)


def compute_instances(nvml: Nvml, instance: Any, what: str) -> list[tuple[int, Any]]:
    """Slices and handles of the compute instances in a GPU instance. Profiles may share an id, and then list the same
    ones. Raises `MigCallError`."""
    call, kind = nvml.nvmlGpuInstanceGetComputeInstances, nvml.c_nvmlComputeInstance_t
    return [
        (int(profile.sliceCount), each)
        for profile in _compute_profiles(nvml, instance)
        for each in _list(nvml, what, call, kind, instance, int(profile.id), int(profile.instanceCount))
    ]


def fill_handle(nvml: Nvml, instance: Any, what: str) -> None:
    """See `fill_instance`."""
    largest = max(_compute_profiles(nvml, instance), key=lambda each: int(each.sliceCount), default=None)
    if largest is None:
        raise MigCallError(MigTrouble.NOT_OFFERED, f"{what}: the driver does not list a compute instance profile")
    _ask(nvml, what, nvml.nvmlGpuInstanceCreateComputeInstance, instance, int(largest.id))


def destroy_handle(nvml: Nvml, instance: Any, what: str) -> None:
    """Remove a GPU instance and the compute instances in it. Raises `MigCallError`."""
    for _, compute in compute_instances(nvml, instance, what):
        _ask(nvml, what, nvml.nvmlComputeInstanceDestroy, compute)
    _ask(nvml, what, nvml.nvmlGpuInstanceDestroy, instance)


def _instances(nvml: Nvml, gpu: Any, what: str) -> Iterator[GpuInstance]:
    offered = offered_profiles(nvml, gpu)
    if not offered:
        current, _ = _ask(nvml, what, nvml.nvmlDeviceGetMigMode, gpu)
        if not current:
            raise MigCallError(MigTrouble.OFF, f"{what}: MIG is not enabled on the GPU")
    for number, profile in offered:
        for instance in instances_of_profile(nvml, gpu, int(profile.id), int(profile.instanceCount), what):
            info = _ask(nvml, what, nvml.nvmlGpuInstanceGetInfo, instance)
            yield GpuInstance(
                id=int(info.id),
                number=number,
                start=int(info.placement.start),
                size=int(info.placement.size),
                computes=len(_compute_ids(nvml, instance, what)),
            )


def _profile(nvml: Nvml, gpu: Any, number: int) -> Any:
    """One of NVML's profiles; None where the GPU does not offer it. Raises `MigCallError` where the GPU is at fault."""
    for version in (2, 1):
        try:
            return nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number, version)
        except nvml.NVMLError as error:
            read = _error(nvml, "reading the GPU instance profiles", error)
            if read.trouble in (MigTrouble.LOST, MigTrouble.NO_PERMISSION):
                raise read from error
    return None


def _compute_profiles(nvml: Nvml, instance: Any) -> Iterator[Any]:
    for number in range(int(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)):
        for version in (2, 1):
            try:
                yield nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, number, 0, version)
            except nvml.NVMLError:
                continue
            break


def _compute_ids(nvml: Nvml, instance: Any, what: str) -> set[int]:
    found = compute_instances(nvml, instance, what)
    return {int(_ask(nvml, what, nvml.nvmlComputeInstanceGetInfo_v2, each).id) for _, each in found}


def _list(
    nvml: Nvml, what: str, call: Callable[..., Any], kind: Any, owner: Any, profile_id: int, most: int
) -> list[Any]:
    handles, count = (kind * most)(), ctypes.c_uint(most)
    _ask(nvml, what, call, owner, profile_id, handles, ctypes.byref(count))
    return list(handles[: count.value])


def _ask(nvml: Nvml, what: str, call: Callable[..., T], *arguments: Any) -> T:
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        raise _error(nvml, what, error) from error


def _error(nvml: Nvml, what: str, error: Any) -> MigCallError:
    for name, (trouble, sentence) in _ERROR_MEANINGS.items():
        if getattr(nvml, name, None) == error.value:
            return MigCallError(trouble, f"{what}: {sentence}")
    return MigCallError(MigTrouble.OTHER, f"{what}: {error}")
