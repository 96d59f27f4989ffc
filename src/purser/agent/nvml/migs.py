"""The MIG devices of a GPU, asked of NVML call by call."""

from collections.abc import Iterator
from typing import Any

from purser.agent.nvml.calls import DeviceCalls, as_is
from purser.core.device.gpus import NodeMigDevice
from purser.core.kubernetes.quantities import MIB

MAX_MIG_DEVICES = 64
"""Of one GPU; no GPU has more than 14."""

_MIG_NAME_SEPARATOR = " MIG "
"""Of a MIG device, between its GPU's model and its profile."""


def mig_devices(calls: DeviceCalls, gpu: Any, total_mib: int) -> tuple[NodeMigDevice, ...]:
    """The existing ones, by their indexes; one without a readable identity is left out."""
    return tuple(_devices(calls, gpu, total_mib * MIB))


def mig_handles(calls: DeviceCalls, gpu: Any) -> Iterator[Any]:
    """Those of the MIG devices that there are, by their indexes."""
    most = calls.ask(int, "nvmlDeviceGetMaxMigDeviceCount", gpu) or 0
    for at in range(min(most, MAX_MIG_DEVICES)):
        handle = calls.ask(as_is, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, at)
        if handle is not None:
            yield handle


def mig_uuids(calls: DeviceCalls, gpu: Any) -> Iterator[str]:
    """The same of their uuids."""
    found = (calls.ask_mig_device(str, "nvmlDeviceGetUUID", handle) for handle in mig_handles(calls, gpu))
    return (uuid for uuid in found if uuid)


def _devices(calls: DeviceCalls, gpu: Any, total_bytes: int) -> Iterator[NodeMigDevice]:
    found = (_device(calls, handle, total_bytes) for handle in mig_handles(calls, gpu))
    return (device for device in found if device is not None)


def _device(calls: DeviceCalls, handle: Any, total_bytes: int) -> NodeMigDevice | None:
    uuid = calls.ask_mig_device(str, "nvmlDeviceGetUUID", handle)
    attributes = calls.ask_mig_device(_attributes, "nvmlDeviceGetAttributes_v2", handle)
    if not uuid or attributes is None:
        return None
    memory_mib = calls.ask_mig_device(total_mib, "nvmlDeviceGetMemoryInfo", handle)
    return NodeMigDevice(
        uuid=uuid,
        profile=_profile(calls.ask_mig_device(str, "nvmlDeviceGetName", handle) or "", attributes, total_bytes),
        memory_mib=attributes["memorySizeMB"] if memory_mib is None else memory_mib,
        gi_slices=attributes["gpuInstanceSliceCount"],
        ci_slices=attributes["computeInstanceSliceCount"],
        multiprocessors=attributes["multiprocessorCount"],
        copy_engines=attributes["sharedCopyEngineCount"],
        decoders=attributes["sharedDecoderCount"],
        encoders=attributes["sharedEncoderCount"],
        jpeg_engines=attributes["sharedJpegCount"],
        ofa_engines=attributes["sharedOfaCount"],
        gpu_instance=calls.ask_mig_device(int, "nvmlDeviceGetGpuInstanceId", handle) or 0,
        compute_instance=calls.ask_mig_device(int, "nvmlDeviceGetComputeInstanceId", handle) or 0,
    )


def _profile(name: str, attributes: dict[str, int], total_bytes: int) -> str:
    """As the driver names it; of one that does not, by its size. One slice with engines for pictures has the media
    extension of its GPU."""
    _, separator, profile = name.partition(_MIG_NAME_SEPARATOR)
    if separator and profile.strip():
        return profile.strip()
    from purser.core.mig.profiles import profile_name  # its package computes with numpy, for which agents have no room

    slices, compute = attributes["gpuInstanceSliceCount"], attributes["computeInstanceSliceCount"]
    has_media = slices == 1 and attributes["sharedJpegCount"] + attributes["sharedOfaCount"] > 0
    found = profile_name(slices, attributes["memorySizeMB"], total_bytes, "+me" if has_media else "")
    return found if compute >= slices else f"{compute}c.{found}"


_ATTRIBUTES = (
    "multiprocessorCount",
    "sharedCopyEngineCount",
    "sharedDecoderCount",
    "sharedEncoderCount",
    "sharedJpegCount",
    "sharedOfaCount",
    "gpuInstanceSliceCount",
    "computeInstanceSliceCount",
    "memorySizeMB",
)


def _attributes(found: Any) -> dict[str, int]:
    return {name: int(getattr(found, name)) for name in _ATTRIBUTES}


def total_mib(memory: Any) -> int:
    """Of what nvmlDeviceGetMemoryInfo answers."""
    return int(memory.total) // MIB
