"""What the nodes that have an inventory can give one container at most."""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from purser.core.fleet import NodeState
from purser.core.model import Device, DeviceMode, Enforcement


class FleetOffers(msgspec.Struct, frozen=True):
    """Of all nodes together."""

    most: Mapping[str, int]
    """By resource: devices, or parts of them, of any one node."""
    largest_mib: int
    """Of a device of which there are shares; 0 where there is none."""
    enforcements: frozenset[Enforcement]
    """What holds shares of devices to their limits."""
    modes: frozenset[DeviceMode]
    """How devices are handed out."""


def offers_of(nodes: Iterable[NodeState]) -> FleetOffers | None:
    """None: there is no node."""
    fleet = [[state.device for state in node.devices] for node in nodes]
    if not fleet:
        return None
    most: Counter[str] = Counter()
    for devices in fleet:
        most |= _most(devices)
    each = [device for devices in fleet for device in devices]
    return FleetOffers(
        most=most,
        largest_mib=max((device.memory_mib for device in each if device.takes_amounts), default=0),
        enforcements=frozenset(device.enforcement for device in each),
        modes=frozenset(device.mode for device in each),
    )


def _most(devices: Iterable[Device]) -> Counter[str]:
    found: Counter[str] = Counter()
    for device in devices:
        found[device.resource] = 1 if device.one_each else found[device.resource] + device.replicas
    return found
