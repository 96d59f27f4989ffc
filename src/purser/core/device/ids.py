"""Device ids as kubelet knows them: ``<uuid>`` for a whole GPU or MIG device, ``<uuid>::<n>`` for slot n of one that is
shared. Pure.

The form is that of NVIDIA's device plugin, whose exporters and dashboards cut the ``::n`` off. HAMi's plugin writes
``<uuid>-<n>``: pods that it served run on when Purser takes a node over, and kubelet lists what they hold.
"""

import re
from collections.abc import Iterable

from purser.core.model import Device, DeviceMode

MAX_SLOTS = 1000
"""Of one device: each is an id that kubelet keeps, and lists."""

MAX_NODE_DEVICES = 256
"""On one node, of all vendors: 32 GPUs cut into 7 MIG devices each are fewer. One node's number is every node's
column."""

_SEPARATOR = "::"

_HAMI = re.compile(r"((?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9]{1,4}", re.ASCII | re.IGNORECASE)
"""A GPU's or MIG device's whole uuid, and one number more: uuids contain dashes themselves."""


def device_ids(device: Device) -> tuple[str, ...]:
    """The ids that one device is advertised as under its resource: one, or as many as it has slots."""
    if device.mode in (DeviceMode.WHOLE, DeviceMode.MIG) and not device.mig_kind:
        return (device.uuid,)
    return slot_ids(device.uuid, device.slots)


def slot_ids(uuid: str, slots: int) -> tuple[str, ...]:
    """The ids of so many slots of a device."""
    return tuple(f"{uuid}{_SEPARATOR}{slot}" for slot in range(slots))


def part_ids(uuid: str, name: str, count: int) -> tuple[str, ...]:
    """The ids of so many parts of a device that go by a name: ``GPU-...::1g.5gb::0``."""
    return tuple(f"{uuid}{_SEPARATOR}{name}{_SEPARATOR}{part}" for part in range(count))


def reported_numa_nodes(device: Device) -> tuple[int, ...]:
    """The NUMA nodes reported to kubelet for a device's ids: none for a GPU with several slots.

    kubelet counts slots, not GPUs, and would align a pod with a node whose GPUs are full except for unusable slots,
    while the GPUs of the other node stay idle. The scheduler chooses the NUMA node of a share, because it knows both.
    """
    return device.numa_nodes if len(device_ids(device)) == 1 else ()


def uuid_of(device_id: str) -> str:
    """The device that an id is of."""
    uuid = device_id.partition(_SEPARATOR)[0]
    match = _HAMI.fullmatch(uuid)
    return match[1] if match else uuid


def is_hami_id(device_id: str) -> bool:
    """Whether HAMi's plugin made the id."""
    return _HAMI.fullmatch(device_id) is not None


def uuids_of(ids: Iterable[str]) -> tuple[str, ...]:
    """The devices of some ids, sorted; one that occurs twice stays twice."""
    return tuple(sorted(map(uuid_of, ids)))


def id_sort_key(device_id: str) -> tuple[str, int, str]:
    """Sort key: by device, then by slot as a number, then by the id itself, so that the order is total."""
    uuid, _, slot = device_id.partition(_SEPARATOR)
    return uuid, int(slot) if slot.isdecimal() else -1, device_id
