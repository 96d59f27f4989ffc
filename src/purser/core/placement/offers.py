"""What the nodes that have an inventory can give one container at most."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from purser.core.device.resources import MIG_PREFIX, mig_resource
from purser.core.fleet import NodeState
from purser.core.mig import MigKind
from purser.core.mig.choice import chooser
from purser.core.mig.on_demand import asked_profile, can_use_instances, kind_of, taken_mask
from purser.core.model import Device, DeviceMode, DeviceRequest, Enforcement, MigPlacement


class DeviceOffer(NamedTuple):
    """Devices that are the same to containers."""

    resource: str
    mode: DeviceMode
    enforcement: Enforcement
    memory_mib: int
    replicas: int
    one_each: bool
    mig_kind: str
    mig_held: tuple[MigPlacement, ...]

    @property
    def kind(self) -> MigKind | None:
        """How they are cut on demand; None: they are not."""
        return kind_of(self._device)

    @property
    def is_mig(self) -> bool:
        """Whether containers get MIG devices of it."""
        return self._device.is_mig

    @property
    def largest_mib(self) -> int:
        """The largest share that there is of one; 0: none."""
        if (kind := self.kind) is not None:
            return max(profile.memory_mib for profile in kind.profiles)
        return self.memory_mib if self._device.takes_amounts else 0

    @property
    def resources(self) -> tuple[str, ...]:
        """Under which they are listed."""
        profiles = kind.profiles if (kind := self.kind) else ()
        return (self.resource, *(mig_resource(profile.name) for profile in profiles))

    def most_of(self, asked: DeviceRequest) -> int:
        """How many, or how many parts or instances, the container can have of one while nothing is taken of it."""
        if asked.modes_allowed and self.mode not in asked.modes_allowed:
            return 0
        if not self.mig_kind:
            return self.replicas if self.resource == asked.resource else 0
        kind, profile = self.kind, asked_profile(self._device, asked)
        if kind is None or profile is None or not can_use_instances(asked.resource, asked.count, asked.modes_allowed):
            return 0
        tables = chooser(kind)
        return int(tables.counts[taken_mask(self._device, ()), tables.column(profile.name)])

    @property
    def _device(self) -> Device:
        """One of them, without what tells it from others."""
        return Device(
            "",
            0,
            "",
            self.memory_mib,
            mode=self.mode,
            replicas=self.replicas,
            resource=self.resource,
            mig_kind=self.mig_kind,
            mig_held=self.mig_held,
        )


_facts = attrgetter(*DeviceOffer._fields)
"""Of a device, as a plain tuple: there are tens of thousands of devices, and few that differ."""


class FleetOffers(msgspec.Struct, frozen=True):
    """Of all nodes together."""

    nodes: frozenset[tuple[DeviceOffer, ...]]
    """What nodes have; those that have the same are one."""
    largest_mib: Mapping[DeviceMode, int]
    """By mode: of a device of which there are shares, or of an instance."""
    enforcements: frozenset[Enforcement]
    """What holds shares of NVIDIA's devices to their limits."""
    modes: Mapping[str, frozenset[DeviceMode]]
    """By resource, how its devices are handed out."""
    profiles: frozenset[str]
    """MIG profiles of GPUs that are cut on demand."""

    def most_of(self, asked: DeviceRequest) -> int:
        """How many devices, or parts or instances of them, a container can have on any one node."""
        return max((_max_devices_on(node, asked) for node in self.nodes), default=0)

    def largest_of(self, modes: Iterable[DeviceMode]) -> int:
        """The memory of the largest share in any of these modes, none: in any; 0: there is none."""
        wanted = frozenset(modes)
        return max((mib for mode, mib in self.largest_mib.items() if not wanted or mode in wanted), default=0)

    def is_partitioned(self, modes: Iterable[DeviceMode]) -> bool:
        """Whether the largest of these is an instance of a GPU that is cut on demand."""
        return bool(self.profiles) and self.largest_of(modes) == self.largest_mib.get(DeviceMode.MIG)

    @property
    def mig_resources(self) -> tuple[str, ...]:
        """Under which MIG devices are listed by profile."""
        return tuple(sorted(name for name in self.modes if name.startswith(MIG_PREFIX)))


def offers_of(nodes: Iterable[NodeState]) -> FleetOffers | None:
    """None: there is no node."""
    distinct_nodes = {tuple([_facts(state.device) for state in node.devices]) for node in nodes}
    if not distinct_nodes:
        return None
    offered = frozenset(tuple(map(DeviceOffer._make, devices)) for devices in distinct_nodes)
    largest: dict[DeviceMode, int] = {}
    modes: dict[str, set[DeviceMode]] = {}
    each = {device for devices in offered for device in devices}
    for device in each:
        largest[device.mode] = max(device.largest_mib, largest.get(device.mode, 0))
        for resource in device.resources:
            modes.setdefault(resource, set()).add(device.mode)
    kinds = {kind for device in each if (kind := device.kind) is not None}
    return FleetOffers(
        nodes=offered,
        largest_mib={mode: mib for mode, mib in largest.items() if mib},
        enforcements=frozenset(device.enforcement for device in each),
        modes={resource: frozenset(found) for resource, found in modes.items()},
        profiles=frozenset(profile.name for kind in kinds for profile in kind.profiles),
    )


def _max_devices_on(node: Sequence[DeviceOffer], asked: DeviceRequest) -> int:
    most = [(offer, count * offer.most_of(asked)) for offer, count in Counter(node).items()]
    count_by_kind = Counter[bool]()
    for offer, each in most:
        count_by_kind[offer.is_mig] += 0 if offer.one_each else each
    return max((*count_by_kind.values(), *(min(each, 1) for _, each in most)), default=0)
