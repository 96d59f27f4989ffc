"""HAMi's annotations: device lists on pods, and what a node registers.

Encodings are those of HAMi v2.10 (``pkg/device/devices.go``); older plugins registered with colons, and some
vendors' still do.
"""

from collections.abc import Iterable, Sequence

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, too_long

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


class MigPlacement(msgspec.Struct, frozen=True):
    """Where on the card an instance may lie."""

    start: int
    size: int


class MigProfile(msgspec.Struct, frozen=True):
    """A MIG profile that a card offers; unlike in the device itself, every field is written."""

    name: str
    memory_mb: int = msgspec.field(name="memoryMB")
    core: int
    slice_count: int = msgspec.field(name="sliceCount")
    placements: tuple[MigPlacement, ...]


class RegisteredDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device in ``hami.io/node-nvidia-register``.

    HAMi leaves out every zero value: no ``index`` is index 0, no ``numa`` node 0, no ``health`` an unhealthy device.
    """

    id: str = ""
    index: int = 0
    count: int = 0
    """Slots."""
    devmem: int = 0
    """MiB, already scaled."""
    devcore: int = 0
    """100 for the whole card, already scaled."""
    type: str = ""
    numa: int = 0
    mode: str = ""
    mig_profiles: tuple[MigProfile, ...] = msgspec.field(default=(), name="migProfiles")
    health: bool = False
    devicevendor: str = ""
    custominfo: dict[str, object] = {}


_registers: JsonReader[tuple[RegisteredDevice, ...]] = JsonReader(
    tuple[RegisteredDevice, ...], "the register annotation", max_bytes=MAX_HAMI_ANNOTATION_BYTES
)
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
"""Go's strconv.ParseBool."""


def encode_pod_devices(containers: Iterable[Sequence[ContainerDevice]]) -> str:
    """The devices of a pod's containers, init containers first: each device ends in ``:``, each container in ``;``."""
    return "".join(f"{_encode_container(devices)};" for devices in containers)


def _encode_container(devices: Sequence[ContainerDevice]) -> str:
    return "".join(f"{device.uuid},{device.vendor},{device.memory_mib},{device.cores_percent}:" for device in devices)


def decode_pod_devices(text: str) -> tuple[tuple[ContainerDevice, ...], ...]:
    """The devices by container, read as HAMi reads them: the last ``;`` yields one more container, without devices.

    Raises `CodecError`.
    """
    _check_length(text, "the device annotation")
    return tuple(_decode_container(part) for part in text.split(";"))


def _decode_container(text: str) -> tuple[ContainerDevice, ...]:
    return tuple(_decode_device(part) for part in text.split(":") if part)


def _decode_device(text: str) -> ContainerDevice:
    fields = text.split(",")
    if len(fields) != 4:
        raise CodecError(f'device "{text[:100]}" has {len(fields)} fields, not uuid,type,memory,cores')
    return ContainerDevice(fields[0], fields[1], _integer(fields[2], text), _integer(fields[3], text))


def encode_node_register(devices: Sequence[RegisteredDevice]) -> str:
    """The JSON of a node's devices."""
    return msgspec.json.encode(devices).decode()


def decode_node_register(text: str) -> tuple[RegisteredDevice, ...]:
    """A node's devices, from JSON or from the older form with colons. Raises `CodecError`."""
    _check_length(text, "the register annotation")
    if not text.lstrip().startswith("["):
        return tuple(_decode_legacy(part) for part in text.split(":") if part.strip())
    try:
        return _registers.read(text)
    except UnreadableError as error:
        raise CodecError(str(error)) from error


def encode_legacy_register(devices: Iterable[RegisteredDevice]) -> str:
    """The older form: ``uuid,count,memory,cores,type,numa,health,index,mode:`` for each device."""
    return "".join(
        f"{d.id},{d.count},{d.devmem},{d.devcore},{d.type},{d.numa},{str(d.health).lower()},{d.index},{d.mode}:"
        for d in devices
    )


def _decode_legacy(text: str) -> RegisteredDevice:
    """Seven fields, without index and mode, or nine."""
    fields = text.split(",")
    if len(fields) not in (7, 9):
        raise CodecError(f'device "{text[:100]}" has {len(fields)} fields, neither 7 nor 9')
    return RegisteredDevice(
        id=fields[0],
        count=_integer(fields[1], text),
        devmem=_integer(fields[2], text),
        devcore=_integer(fields[3], text),
        type=fields[4],
        numa=_integer(fields[5], text),
        health=_boolean(fields[6], text),
        index=_integer(fields[7], text) if len(fields) == 9 else 0,
        mode=fields[8] if len(fields) == 9 else "hami-core",
    )


def _check_length(text: str, name: str) -> None:
    if len(text) > MAX_HAMI_ANNOTATION_BYTES:
        raise CodecError(str(too_long(name, len(text), MAX_HAMI_ANNOTATION_BYTES)))


def _integer(field: str, text: str) -> int:
    if not (field.removeprefix("-").isascii() and field.removeprefix("-").isdigit() and len(field) <= 11):
        raise CodecError(f'device "{text[:100]}": "{field[:20]}" is no whole number')
    return int(field)


def _boolean(field: str, text: str) -> bool:
    try:
        return _BOOLEANS[field]
    except KeyError:
        raise CodecError(f'device "{text[:100]}": "{field[:20]}" is neither true nor false') from None
