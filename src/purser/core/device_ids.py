"""Device ids as kubelet knows them: ``<uuid>`` for a whole card, ``<uuid>::<n>`` for slot n of a shared one. Pure.

The form is that of NVIDIA's device plugin, whose exporters and dashboards cut the ``::n`` off.
"""

from collections.abc import Iterable

from purser.core.model import Device, DeviceMode

_SEPARATOR = "::"


def device_ids(device: Device) -> tuple[str, ...]:
    """The ids that one device is advertised as: one, or as many as it has slots."""
    if device.mode is DeviceMode.WHOLE:
        return (device.uuid,)
    return tuple(f"{device.uuid}{_SEPARATOR}{slot}" for slot in range(device.slots))


def told_numa_nodes(device: Device) -> tuple[int, ...]:
    """The NUMA nodes that kubelet is told of a device's ids: none of a card with several slots.

    kubelet counts slots, not cards, and would align a pod with a node whose cards are full but for slots that nobody
    can use, while the cards of the other node stay idle. Which NUMA node is right for a share the scheduler decides,
    who knows both.
    """
    return device.numa_nodes if len(device_ids(device)) == 1 else ()


def uuid_of(device_id: str) -> str:
    """The device that an id is of."""
    return device_id.partition(_SEPARATOR)[0]


def uuids_of(ids: Iterable[str]) -> tuple[str, ...]:
    """The devices of some ids, sorted; one that occurs twice stays twice."""
    return tuple(sorted(map(uuid_of, ids)))


def id_order(device_id: str) -> tuple[str, int, str]:
    """Sort key: by device, then by slot as a number, then by the id itself, so that the order is total."""
    uuid, _, slot = device_id.partition(_SEPARATOR)
    return uuid, int(slot) if slot.isdecimal() else -1, device_id
