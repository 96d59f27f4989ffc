"""What other vendors' device plugins say that a node has: HAMi's node annotations, or amounts in the node's capacity.

A device is healthy while its plugin says so and kubelet lists the family's resource: kubelet lists none of a plugin
that is gone. HAMi's scheduler asks plugins for signs of life by another annotation (``hami.io/node-handshake-...``),
which takes a write a minute for each node and says no more.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.core.device.ids import MAX_NODE_DEVICES, MAX_SLOTS
from purser.core.kubelet.masks import MAX_NUMA_NODE
from purser.core.kubernetes.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.core.model import WHOLE_PERCENT, Device, Enforcement
from purser.core.vendors.family import CapacityDevices, CountedBy, DeviceFamily, Encoding

MAX_REGISTER_BYTES = 256 * 1024
_MAX_AMOUNT = 1 << 30
_ID = re.compile(r"[^\s,:;]{1,253}", re.ASCII)
"""Of a device. What HAMi's lists have between devices is not in it."""
_MAX_MODEL = 64
"""Characters: it is part of metrics and messages."""
_GONE = "no device plugin lists it to kubelet"

Amounts = Mapping[str, QuantityLike]


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


class VendorDevices(msgspec.Struct, frozen=True):
    """Those of one node."""

    devices: tuple[Device, ...] = ()
    problems: tuple[str, ...] = ()
    """Of families that could not be read, and are left out."""


def vendor_devices(
    families: Iterable[DeviceFamily],
    node: str,
    annotations: Mapping[str, str],
    capacity: Amounts,
    allocatable: Amounts,
    own: Collection[str] = (),
) -> VendorDevices:
    """The devices of these families on a node beside its ``own``, by uuid. A registration that cannot be read, or does
    not go with what was read before it, costs its family alone."""
    found: list[Device] = []
    problems: list[str] = []
    known = set(own)
    for family in families:
        try:
            devices = _devices(family, node, annotations, capacity, allocatable)
            uuids = _uuids(devices, known)
        except (RegisterError, UnreadableError) as error:
            problems.append(brief(f"{family.name}: {error}"))
        else:
            found += devices
            known |= uuids
    return VendorDevices(tuple(found), tuple(problems))


def _uuids(devices: list[Device], known: Collection[str]) -> set[str]:
    """Of a family's devices, which the node can have beside others."""
    uuids: set[str] = set()
    for device in devices:
        if device.uuid in known or device.uuid in uuids:
            raise RegisterError(f"device {device.uuid!r} is there twice")
        uuids.add(device.uuid)
    if uuids and len(uuids) + len(known) > MAX_NODE_DEVICES:
        beside = f" beside {len(known)} others" if known else ""
        raise RegisterError(f"there are {len(uuids)} devices{beside}: {MAX_NODE_DEVICES} are the most of a node")
    return uuids


def _devices(
    family: DeviceFamily, node: str, annotations: Mapping[str, str], capacity: Amounts, allocatable: Amounts
) -> list[Device]:
    if family.capacity is not None:
        return list(_counted(family, family.capacity, node, capacity, allocatable))
    text = annotations.get(family.register.annotation) if family.register is not None else None
    if text is None or family.register is None:
        return []
    registered = _DECODERS[family.register.encoding](text)
    if len(registered) > MAX_NODE_DEVICES:
        raise RegisterError(f"{len(registered)} devices are registered: {MAX_NODE_DEVICES} are the most of a node")
    is_listed = _amount(allocatable, family.resource) > 0
    return [_device(family, each, is_listed) for each in registered]


def _counted(
    family: DeviceFamily, capacity: CapacityDevices, node: str, listed: Amounts, allocatable: Amounts
) -> Iterator[Device]:
    cores = family.cores if capacity.counted_by is CountedBy.CORES else None
    resource, each = (family.resource, 1) if cores is None else (cores.resource, cores.per_device)
    total = _amount(listed, resource)
    count, healthy = total // each, _amount(allocatable, resource) // each
    if count > MAX_NODE_DEVICES:
        raise RegisterError(f"the node lists {total} of {resource}: {MAX_NODE_DEVICES} devices are the most of a node")
    memory_mib = capacity.memory_mib
    if family.memory is not None and not memory_mib and total:
        memory_mib = min(_amount(listed, family.memory.resource) * family.memory.unit_mib * each // total, _MAX_AMOUNT)
    for index in range(count):
        uuid = capacity.id.format(node=node, index=index)
        device = RegisteredDevice(uuid, index, capacity.slots, memory_mib, each, family.word, -1, True)
        yield _device(family, device, index < healthy)


def check_names(registered: RegisteredDevice) -> None:
    """Id and model are such as others can print, count and list. Raises `RegisterError`."""
    if not _ID.fullmatch(registered.id):
        raise RegisterError(f"{registered.id[:64]!r} is no device's id")
    if len(registered.type) > _MAX_MODEL or not registered.type.isprintable():
        raise RegisterError(
            f"device {registered.id!r} has a type that is no name of a model: {registered.type[:_MAX_MODEL]!r}"
        )


def _device(family: DeviceFamily, registered: RegisteredDevice, is_listed: bool) -> Device:
    check_names(registered)
    if not 0 <= registered.count <= MAX_SLOTS or not 0 <= registered.devmem <= _MAX_AMOUNT:
        raise RegisterError(f"device {registered.id!r} has {registered.count} slots and {registered.devmem} MiB")
    if registered.numa > MAX_NUMA_NODE or not 0 <= registered.index <= _MAX_AMOUNT:
        raise RegisterError(f"device {registered.id!r} is number {registered.index} on NUMA node {registered.numa}")
    cores = family.cores
    percent = WHOLE_PERCENT if cores is None else registered.devcore * WHOLE_PERCENT // cores.per_device
    healthy = registered.health and is_listed
    return Device(
        uuid=registered.id,
        index=registered.index,
        model=registered.type or family.name,
        memory_mib=registered.devmem,
        cores_percent=min(max(percent, 0), _MAX_AMOUNT),
        slots=registered.count,
        numa_nodes=(registered.numa,) if registered.numa >= 0 else (),
        healthy=healthy,
        unhealthy_reason="" if healthy else _GONE if registered.health else "its device plugin says so",
        vendor=family.vendor,
        enforcement=Enforcement.VENDOR,
        resource=family.resource,
    )


def _amount(amounts: Amounts, resource: str) -> int:
    try:
        return max(0, min(quantity_ceil(amounts[resource]), _MAX_AMOUNT)) if resource in amounts else 0
    except QuantityError as error:
        raise RegisterError(f"{resource} of the node's capacity is no amount") from error


_json: JsonReader[list[RegisteredDevice]] = JsonReader(
    list[RegisteredDevice], "the registration", max_bytes=MAX_REGISTER_BYTES
)


def _of_colons(text: str) -> list[RegisteredDevice]:
    """``id,slots,MiB,cores,model,NUMA node,healthy:``, and in newer plugins ``,index,mode`` before the colon."""
    if len(text) > MAX_REGISTER_BYTES:
        raise RegisterError(f"the registration has {len(text)} bytes, more than {MAX_REGISTER_BYTES}")
    return [_of_fields(part, place) for place, part in enumerate(filter(None, text.split(":")))]


def _of_fields(text: str, place: int) -> RegisteredDevice:
    fields = text.split(",")
    if len(fields) not in (7, 9):
        raise RegisterError(f'device "{text[:100]}" has {len(fields)} fields, not 7 or 9')
    index = fields[7] if len(fields) == 9 else str(place)
    numbers = [_number(each, text) for each in (*fields[1:4], fields[5], index)]
    slots, memory, cores, numa, index_number = numbers
    return RegisteredDevice(
        fields[0], index_number, slots, memory, cores, fields[4], numa, fields[6].lower() in ("true", "t", "1")
    )


def _number(field: str, device: str) -> int:
    if not (field.removeprefix("-").isascii() and field.removeprefix("-").isdigit() and len(field) <= 10):
        raise RegisterError(f'device "{device[:100]}": "{field[:20]}" is no whole number')
    return int(field)


_DECODERS: Mapping[Encoding, Callable[[str], list[RegisteredDevice]]] = {
    Encoding.JSON: _json.read,
    Encoding.COLONS: _of_colons,
}
