"""What other vendors' device plugins say that a node has: HAMi's node annotations, or amounts in the node's capacity.

A device is healthy while its plugin says so and kubelet lists the family's resource: kubelet lists none of a plugin
that is gone. HAMi's scheduler asks plugins for signs of life by another annotation (``hami.io/node-handshake-...``),
which takes a write a minute for each node and says no more.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from purser.core.decoding import UnreadableError, brief
from purser.core.device.ids import MAX_NODE_DEVICES
from purser.core.kubelet.masks import MAX_NUMA_NODE
from purser.core.kubernetes.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.core.model import WHOLE_PERCENT, Device, DeviceMode, Enforcement
from purser.core.names import NOT_LISTED
from purser.core.vendors.family import CapacityDevices, CountedBy, DeviceFamily
from purser.core.vendors.register_texts import (
    RegisteredDevice,
    RegisterError,
    check_id_and_model,
    read_register,
    slots_of,
)
from purser.core.wording import counted

MAX_PROBLEMS = 8
"""Of one family's devices: an event each."""

_MAX_AMOUNT = 1 << 30
_CAPACITY, _ALLOCATABLE = "capacity", "allocatable resources"

Amounts = Mapping[str, QuantityLike]


class VendorDevices(msgspec.Struct, frozen=True):
    """Those of one node."""

    devices: tuple[Device, ...] = ()
    problems: tuple[str, ...] = ()
    """Of families and devices that could not be read, and are left out."""


def vendor_devices(
    families: Iterable[DeviceFamily],
    node: str,
    annotations: Mapping[str, str],
    capacity: Amounts,
    allocatable: Amounts,
    own: Collection[str] = (),
    labels: Mapping[str, str] = MappingProxyType({}),
) -> VendorDevices:
    """The devices of these families on a node beside its ``own``, by uuid. A device that makes no sense costs itself
    alone; a registration that cannot be read, or does not go with what was read before it, its family."""
    found: list[Device] = []
    problems: list[str] = []
    known = set(own)
    for family in families:
        odd: list[str] = []
        try:
            read = _devices(family, node, annotations, capacity, allocatable, odd)
            devices = _with_words(family, labels, annotations, read)
            uuids = _uuids(devices, known)
        except (RegisterError, UnreadableError) as error:
            odd = [f"{error}; all devices of this family are ignored"]
        else:
            found += devices
            known |= uuids
        problems += (brief(f"{family.name}: {each}") for each in odd[:MAX_PROBLEMS])
    return VendorDevices(tuple(found), tuple(problems))


def _with_words(
    family: DeviceFamily, labels: Mapping[str, str], annotations: Mapping[str, str], devices: list[Device]
) -> list[Device]:
    """The devices, with what labels and annotations of the node say of all of them."""
    ring, soft = None if family.linked is None else family.linked.ring, family.soft_split
    is_in_ring = ring is not None and ring.names(labels)
    is_soft = soft is not None and annotations.get(soft.node_annotation) == "true"
    if not (is_in_ring or is_soft):
        return devices
    return [msgspec.structs.replace(device, ring=is_in_ring, soft_split=is_soft) for device in devices]


def _uuids(devices: list[Device], known: Collection[str]) -> set[str]:
    """Of a family's devices, which the node can have beside others."""
    uuids: set[str] = set()
    for device in devices:
        if device.uuid in known or device.uuid in uuids:
            raise RegisterError(f"device {device.uuid!r} appears twice")
        uuids.add(device.uuid)
    if uuids and len(uuids) + len(known) > MAX_NODE_DEVICES:
        beside = f" in addition to {counted(len(known), 'other')}" if known else ""
        raise RegisterError(
            f"lists {counted(len(uuids), 'device')}{beside}: the maximum for a node is {MAX_NODE_DEVICES}"
        )
    return uuids


def _devices(
    family: DeviceFamily,
    node: str,
    annotations: Mapping[str, str],
    capacity: Amounts,
    allocatable: Amounts,
    odd: list[str],
) -> list[Device]:
    """``odd`` takes what is wrong with single devices."""
    if family.capacity is not None:
        return list(_counted_devices(family, family.capacity, node, capacity, allocatable))
    text = annotations.get(family.register.annotation) if family.register is not None else None
    if text is None or family.register is None:
        return []
    registered = read_register(family.register, text, node, odd)
    if len(registered) > MAX_NODE_DEVICES:
        raise RegisterError(f"{len(registered)} devices are registered: the maximum for a node is {MAX_NODE_DEVICES}")
    is_listed = _amount(allocatable, family.resource, _ALLOCATABLE) > 0
    found = []
    for each in registered:
        try:
            found.append(_device(family, each, is_listed, odd))
        except RegisterError as error:
            odd.append(f"{error}; the device is ignored")
    return found


def _counted_devices(
    family: DeviceFamily, capacity: CapacityDevices, node: str, listed: Amounts, allocatable: Amounts
) -> Iterator[Device]:
    cores = family.cores if capacity.counted_by is CountedBy.CORES else None
    resource, each = (family.resource, 1) if cores is None else (cores.resource, cores.per_device)
    total = _amount(listed, resource, _CAPACITY)
    count, healthy = total // each, _amount(allocatable, resource, _ALLOCATABLE) // each
    if count > MAX_NODE_DEVICES:
        raise RegisterError(f"the node lists {total} {resource}: the maximum for a node is {MAX_NODE_DEVICES} devices")
    memory_mib = capacity.memory_mib
    if family.memory is not None and not memory_mib and total:
        memory_mib = min(
            _amount(listed, family.memory.resource, _CAPACITY) * family.memory.unit_mib * each // total, _MAX_AMOUNT
        )
    numbered = family.cores if family.cores is not None and family.cores.numbered else None
    has_numbers = numbered is not None and _amount(listed, numbered.resource, _CAPACITY) == count * numbered.per_device
    for index in range(count):
        uuid = capacity.id.format(node=node, index=index)
        of_each = each if numbered is None else numbered.per_device
        device = RegisteredDevice(uuid, index, capacity.slots, memory_mib, of_each, family.word, -1, True)
        found = _device(family, device, index < healthy, [])
        if numbered is not None and has_numbers:
            found = msgspec.structs.replace(found, cores=numbered.per_device)
        elif numbered is not None:
            found = msgspec.structs.replace(found, slots=1, mode=DeviceMode.WHOLE)
        yield found


def _device(family: DeviceFamily, registered: RegisteredDevice, is_listed: bool, odd: list[str]) -> Device:
    check_id_and_model(registered)
    if registered.count < 0 or not 0 <= registered.devmem <= _MAX_AMOUNT:
        raise RegisterError(
            f"device {registered.id!r} has an invalid number of slots ({registered.count}) or an invalid amount of "
            f"memory ({registered.devmem} MiB)"
        )
    if registered.numa > MAX_NUMA_NODE or not 0 <= registered.index <= _MAX_AMOUNT:
        raise RegisterError(
            f"device {registered.id!r} has an invalid index ({registered.index}) or NUMA node ({registered.numa})"
        )
    cores = family.cores
    percent = WHOLE_PERCENT if cores is None else registered.devcore * WHOLE_PERCENT // cores.per_device
    healthy = registered.health and is_listed
    return Device(
        uuid=registered.id,
        index=registered.index,
        model=registered.type or family.name,
        memory_mib=registered.devmem,
        cores_percent=min(max(percent, 0), _MAX_AMOUNT),
        slots=slots_of(registered, odd),
        numa_nodes=(registered.numa,) if registered.numa >= 0 else (),
        healthy=healthy,
        unhealthy_reason=""
        if healthy
        else NOT_LISTED
        if registered.health
        else "its device plugin reports it as unhealthy",
        vendor=family.vendor,
        enforcement=Enforcement.VENDOR,
        resource=family.resource,
        slicing=registered.slicing if family.has_profiles else None,
    )


def _amount(amounts: Amounts, resource: str, where: str) -> int:
    """``where``: of the node, for a message."""
    try:
        return max(0, min(quantity_ceil(amounts[resource]), _MAX_AMOUNT)) if resource in amounts else 0
    except QuantityError as error:
        shown = str(amounts[resource])[:64]
        raise RegisterError(f"{resource} in the node's {where} is {shown!r}, which is not a valid quantity") from error
