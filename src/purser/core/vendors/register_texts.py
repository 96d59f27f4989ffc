"""The texts in which other vendors' device plugins register devices: HAMi's two forms, and lists of objects whose
fields have names of the vendor's own."""

import re
from typing import Any, TypeVar

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, convert_value
from purser.core.device.ids import MAX_SLOTS
from purser.core.device.slicing import SliceProfile, Slicing
from purser.core.vendors.family import Encoding, Register
from purser.core.wording import counted

MAX_REGISTER_BYTES = 256 * 1024
_ID = re.compile(r"[^\s,:;]{1,253}", re.ASCII)
"""Of a device. What HAMi's lists have between devices is not in it."""
_MAX_MODEL = 64
"""Characters: it is part of metrics and messages."""


class RegisterError(ValueError):
    """A registration that makes no sense; the message says of what."""


class RegisteredDevice(msgspec.Struct, frozen=True):
    """A device as HAMi's plugins write it; what is empty, zero or false is left out."""

    id: str = ""
    index: int = 0
    count: int = 0
    devmem: int = 0
    devcore: int = 0
    type: str = ""
    numa: int = 0
    health: bool = False
    slicing: Slicing | None = None


def read_register(
    register: Register, text: str, node: str = "", odd: list[str] | None = None
) -> list[RegisteredDevice]:
    """The devices in a register annotation. One that cannot be read is left out, and ``odd`` takes a sentence for it.
    Raises `UnreadableError` and `RegisterError` where that is so of the text as a whole."""
    odd = [] if odd is None else odd
    if register.encoding is Encoding.PROFILES:
        return _parse_slices(text, register.id, node)
    if register.encoding is Encoding.COLONS:
        return _parse_colons(text, odd)
    if register.fields:
        return _renamed(register, text, odd)
    return read_devices(text, _NAME, _json_reader, RegisteredDevice, odd)


Device = TypeVar("Device")


def read_devices(
    text: str, name: str, reader: JsonReader[list[Device]], kind: type[Device], odd: list[str]
) -> list[Device]:
    """A list of devices in JSON. Where one cannot be read the others are read one by one. Raises `UnreadableError`."""
    try:
        return reader.read(text)
    except UnreadableError:
        items = _item_list_reader.read(text)
    found = []
    for place, each in enumerate(items):
        try:
            found.append(convert_value(each, kind, f"{name}, device {place}"))
        except UnreadableError as error:
            odd.append(f"{error}; the device is ignored")
    return found


def check_id_and_model(registered: RegisteredDevice) -> None:
    """Id and model are such as others can print, count and list. Raises `RegisterError`."""
    if not _ID.fullmatch(registered.id):
        raise RegisterError(f"{registered.id[:64]!r} is not a device ID")
    if len(registered.type) > _MAX_MODEL or not registered.type.isprintable():
        raise RegisterError(
            f"device {registered.id!r} has a type that is not a model name: {registered.type[:_MAX_MODEL]!r}"
        )


def slots_of(registered: RegisteredDevice, problems: list[str]) -> int:
    """How many may share the device: Purser lists `MAX_SLOTS` at most, and then says so in ``problems``."""
    if registered.count > MAX_SLOTS:
        most = f"Purser shares a device among at most {MAX_SLOTS} containers, so only {MAX_SLOTS} slots are used"
        problems.append(f"device {registered.id!r} has {registered.count} slots: {most}. Register at most {MAX_SLOTS}")
    return min(registered.count, MAX_SLOTS)


_NAME = "the registration"
_json_reader: JsonReader[list[RegisteredDevice]] = JsonReader(
    list[RegisteredDevice], _NAME, max_bytes=MAX_REGISTER_BYTES
)
_item_list_reader: JsonReader[list[Any]] = JsonReader(list[Any], _NAME, max_bytes=MAX_REGISTER_BYTES)


def _parse_colons(text: str, odd: list[str]) -> list[RegisteredDevice]:
    """``id,slots,MiB,cores,model,NUMA node,healthy:``, and in newer plugins ``,index,mode`` before the colon."""
    if len(text) > MAX_REGISTER_BYTES:
        raise RegisterError(f"the registration has {len(text)} bytes, more than the maximum of {MAX_REGISTER_BYTES}")
    found = []
    for place, part in enumerate(filter(None, text.split(":"))):
        try:
            found.append(_parse_fields(part, place))
        except RegisterError as error:
            odd.append(f"{error}; the device is ignored")
    return found


def _parse_fields(text: str, place: int) -> RegisteredDevice:
    fields = text.split(",")
    if len(fields) not in (7, 9):
        raise RegisterError(f'device "{text[:100]}" has {counted(len(fields), "field")}, not 7 or 9')
    index = fields[7] if len(fields) == 9 else str(place)
    numbers = [_number(each, text) for each in (*fields[1:4], fields[5], index)]
    slots, memory, cores, numa, index_number = numbers
    return RegisteredDevice(
        fields[0], index_number, slots, memory, cores, fields[4], numa, fields[6].lower() in ("true", "t", "1")
    )


def _number(field: str, device: str) -> int:
    if not (field.removeprefix("-").isascii() and field.removeprefix("-").isdigit() and len(field) <= 10):
        raise RegisterError(f'device "{device[:100]}": "{field[:20]}" is not an integer')
    return int(field)


def _renamed(register: Register, text: str, odd: list[str]) -> list[RegisteredDevice]:
    """Where no field is the index, it is the place in the list."""
    found = []
    for place, each in enumerate(_item_list_reader.read(text)):
        where = f"{_NAME}, device {place}"
        try:
            one = convert_value(each, dict[str, Any], where)
            named = {ours: one[theirs] for ours, theirs in register.fields.items() if theirs in one}
            found.append(convert_value({"index": place, **named}, RegisteredDevice, where))
        except UnreadableError as error:
            odd.append(f"{error}; the device is ignored")
    return found


class _SlicedDevice(msgspec.Struct, frozen=True):
    index: str | int = ""
    minor: str | int = ""
    capacity: str | int | float = 0
    """Its slices."""


class _SlicedNode(msgspec.Struct, frozen=True):
    devices: list[_SlicedDevice] = []
    profiles: dict[str, str] = {}
    """By name the number that the driver knows each by."""


_slice_reader: JsonReader[_SlicedNode] = JsonReader(_SlicedNode, _NAME, max_bytes=MAX_REGISTER_BYTES)
_PROFILE = re.compile(r"([1-9][0-9]{0,2})g?\.([1-9][0-9]{0,3})(?:gb)?", re.ASCII)
"""``3g.20gb``: slices and GiB."""
_MAX_PROFILES = 64
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


def _parse_slices(text: str, id_form: str, node: str) -> list[RegisteredDevice]:
    """A device has the memory of the largest profile, and is its slices. Profiles whose names say no size are passed
    over, as by HAMi."""
    read = _slice_reader.read(text)
    matches = ((name, number, _PROFILE.fullmatch(name.strip().lower())) for name, number in read.profiles.items())
    profiles = [
        SliceProfile(name, number, int(match[1]), int(match[2]) * 1024)
        for name, number, match in matches
        if match is not None and len(name) <= _MAX_MODEL and len(number) <= _MAX_MODEL
    ]
    if not profiles or len(profiles) > _MAX_PROFILES:
        raise RegisterError(f"{len(profiles)} profiles have a size in their name: must be from 1 to {_MAX_PROFILES}")
    found = []
    profiles.sort(key=lambda each: (each.slices, each.memory_mib, each.name))
    for place, device in enumerate(read.devices):
        index = int(str(device.index)) if _NUMBER.fullmatch(str(device.index)) else place
        minor = str(device.minor).strip() or str(index)
        slices = str(device.capacity).strip().removesuffix(".0")
        if not _NUMBER.fullmatch(slices) or int(slices) < 1 or len(minor) > _MAX_MODEL or not minor.isprintable():
            raise RegisterError(
                f"device {index} has an invalid number of slices ({slices[:20]!r}) or an invalid minor number "
                f"({minor[:20]!r})"
            )
        uuid = id_form.format(node=node, index=index)
        memory_mib = max(each.memory_mib for each in profiles)
        slicing = Slicing(minor, tuple(profiles))
        found.append(RegisteredDevice(uuid, index, int(slices), memory_mib, 100, "", 0, True, slicing))
    return found
