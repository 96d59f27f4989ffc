"""HAMi's annotations: the lists of devices, which Volcano writes of vGPUs, too, and of GPU instances on pods, in the
encoding of HAMi v2.10 (``pkg/device/devices.go``, ``pkg/device/nvidia/mig_allocations.go``)."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from purser.core.decoding import size_error
from purser.core.wording import counted

MAX_HAMI_ANNOTATION_BYTES = 256 * 1024
"""Of one annotation: the API server lets all of an object's together have no more."""


class CodecError(ValueError):
    """Text that is not in HAMi's encoding; the message quotes the part that is wrong."""


class ContainerDevice(msgspec.Struct, frozen=True):
    """One device as a container holds it."""

    uuid: str
    vendor: str
    """HAMi's word for the kind of device that was asked for, such as ``NVIDIA``; not the model."""
    memory_mib: int
    cores_percent: int


class MigAllocationPlacement(msgspec.Struct, frozen=True):
    """Memory slices."""

    start: int
    size: int


class MigAllocation(msgspec.Struct, frozen=True):
    """A GPU instance that a container is to have, as HAMi's scheduler writes it. HAMi's device plugin adds three names
    that the driver gives it, all or none."""

    container_index: int = msgspec.field(name="containerIndex")
    """Among the pod's containers, init containers first."""
    device_index: int = msgspec.field(name="deviceIndex")
    """Among the container's."""
    gpu_uuid: str = msgspec.field(name="gpuUUID")
    profile: str
    placement: MigAllocationPlacement


def encode_mig_allocations(instances: Iterable[MigAllocation]) -> str:
    """The GPU instances of a pod's containers: JSON."""
    return msgspec.json.encode(list(instances)).decode()


def encode_pod_devices(containers: Iterable[Sequence[ContainerDevice]]) -> str:
    """The devices of a pod's containers, init containers first: each device ends in ``:``, each container in ``;``."""
    return "".join(f"{_encode_container(devices)};" for devices in containers)


def _encode_container(devices: Sequence[ContainerDevice]) -> str:
    return "".join(f"{device.uuid},{device.vendor},{device.memory_mib},{device.cores_percent}:" for device in devices)


def decode_pod_devices(text: str) -> tuple[tuple[ContainerDevice, ...], ...]:
    """The devices by container, read as HAMi reads them: the last ``;`` yields one more container, without devices.

    Raises `CodecError`.
    """
    if len(text) > MAX_HAMI_ANNOTATION_BYTES:
        raise CodecError(str(size_error("the device annotation", len(text), MAX_HAMI_ANNOTATION_BYTES)))
    return tuple(_decode_container(part) for part in text.split(";"))


def _decode_container(text: str) -> tuple[ContainerDevice, ...]:
    """What has no comma is not a device to HAMi."""
    return tuple(_decode_device(part) for part in text.split(":") if "," in part)


def _decode_device(text: str) -> ContainerDevice:
    """Fields after the fourth are skipped."""
    fields = text.split(",")
    if len(fields) < 4:
        raise CodecError(f'device "{text[:100]}" has {counted(len(fields), "field")}, not uuid,type,memory,cores')
    return ContainerDevice(fields[0], fields[1], _integer(fields[2], text), _integer(fields[3], text))


_INTEGER = re.compile(r"[+-]?[0-9]{1,32}", re.ASCII)
_INT32 = range(-(2**31), 2**31)


def _integer(field: str, text: str) -> int:
    if not _INTEGER.fullmatch(field) or int(field) not in _INT32:
        raise CodecError(f'device "{text[:100]}": "{field[:20]}" is not a 32-bit integer')
    return int(field)
