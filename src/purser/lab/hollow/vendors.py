"""What a device plugin of another vendor, written for HAMi, does on a hollow node: by the data of its family alone."""

from collections.abc import Mapping

import msgspec

from purser.core.dialects.hami_codec import CodecError, decode_pod_devices, encode_pod_devices
from purser.core.vendors.catalogue import FAMILIES
from purser.core.vendors.family import CountedBy, DeviceFamily, Encoding, Register

_SLOTS = 10
_MEMORY_MIB = 64 * 1024
_PROFILES = {"1g.6gb": "0", "3g.20gb": "1", "6g.40gb": "2"}
"""As of HAMi's tests."""
_PHASE, _ALLOCATING, _SUCCESS = "hami.io/bind-phase", "allocating", "success"
_TO_ALLOCATE = "-devices-to-allocate"

_BY_NAME = {family.name: family for family in FAMILIES}


def family_of(name: str) -> DeviceFamily | None:
    """By its name."""
    return _BY_NAME.get(name)


def registration(family: DeviceFamily, node: str, count: int) -> dict[str, str]:
    """The node annotations in which the plugin registers so many devices; none where devices are only counted."""
    if family.register is None:
        return {}
    soft = {family.soft_split.node_annotation: "true"} if family.soft_split is not None else {}
    return soft | _registration(family, family.register, node, count)


def _registration(family: DeviceFamily, register: Register, node: str, count: int) -> dict[str, str]:
    memory_mib, cores = _memory_mib(family), 100 if family.cores is None else family.cores.per_device
    ids = [f"{node}-{family.word}-{index}" for index in range(count)]
    if register.encoding is Encoding.COLONS:
        text = "".join(f"{each},{_SLOTS},{memory_mib},{cores},{family.word},0,true:" for each in ids)
        return {register.annotation: text}
    if register.encoding is Encoding.PROFILES:
        sliced = [{"index": str(index), "minor": str(index), "capacity": 6} for index in range(count)]
        return {register.annotation: msgspec.json.encode({"devices": sliced, "profiles": _PROFILES}).decode()}
    devices = [
        {
            "id": each,
            "index": index,
            "count": _SLOTS,
            "devmem": memory_mib,
            "devcore": cores,
            "type": family.word,
            "health": True,
        }
        for index, each in enumerate(ids)
    ]
    fields = register.fields
    if fields:
        devices = [{fields[key]: value for key, value in each.items() if key in fields} for each in devices]
    return {register.annotation: msgspec.json.encode(devices).decode()}


def listed(family: DeviceFamily, count: int) -> dict[str, str]:
    """What kubelet lists of so many devices."""
    capacity, cores, memory = family.capacity, family.cores, family.memory
    slots = _SLOTS if capacity is None else capacity.slots
    if capacity is None or capacity.counted_by is CountedBy.DEVICES:
        numbered = {cores.resource: str(cores.per_device * count)} if cores is not None and cores.numbered else {}
        return {family.resource: str(slots * count if capacity is None else count), **numbered}
    found = {} if cores is None else {cores.resource: str(cores.per_device * count)}
    if memory is not None:
        found[memory.resource] = str(_memory_mib(family) // memory.unit_mib * count)
    return found


def served(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a pod that change once the plugin has given its devices; none where it waits for none."""
    if annotations.get(_PHASE) != _ALLOCATING:
        return {}
    lists = {name: text for name, text in annotations.items() if name.endswith(_TO_ALLOCATE)}
    return {_PHASE: _SUCCESS, **{name: _consume_devices(text) for name, text in lists.items()}}


def _consume_devices(text: str) -> str:
    try:
        containers = decode_pod_devices(text)
    except CodecError:
        return text
    return encode_pod_devices([()] * (len(containers) - 1))


def _memory_mib(family: DeviceFamily) -> int:
    if family.capacity is not None and family.capacity.memory_mib:
        return family.capacity.memory_mib
    if family.memory is not None and family.memory.whole:
        return family.memory.whole * family.memory.unit_mib
    return family.templates_up_to_mib or _MEMORY_MIB
