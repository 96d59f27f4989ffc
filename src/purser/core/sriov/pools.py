"""Which pool a device belongs to: the first whose selectors mean it, in the order of the file.

What containers hold comes before that. A device that was handed out as one resource stays in the pool of that resource
until it is free, whatever the file or the device says by then: as another resource it would be handed out twice.
"""

from collections.abc import Mapping, Sequence

import msgspec

from purser.core.sriov.configuration import SriovConfig, SriovPoolConfig, SriovSelector
from purser.core.sriov.devices import NodeDevices, SriovDevice
from purser.core.sriov.selecting import SelectorFilter, candidates
from purser.core.wording import counted

VFIO_DRIVER = "vfio-pci"
UIO_DRIVERS = ("uio", "igb_uio")
"""As the SR-IOV network device plugin knows them."""

_VHOST = "vhost"
"""Of vDPA: the type that containers use by a device file."""

UNSELECTED_TROUBLE = "its selectors no longer match it"

_MAX_DEVICES_SHOWN = 4
"""Devices that a message names at most."""


class PoolMember(msgspec.Struct, frozen=True):
    """A device in its pool."""

    device: SriovDevice
    selector: SriovSelector
    """The one by which it is there."""
    trouble: str = ""
    """Why no other container gets it, as a part of a sentence; empty: one may."""


class SriovPool(msgspec.Struct, frozen=True):
    """A pool with its devices."""

    config: SriovPoolConfig
    members: tuple[PoolMember, ...] = ()
    missing: tuple[str, ...] = ()
    """Ids that containers hold, of devices that the node does not have any more."""
    empty: str = ""
    """Why it has no devices, in a sentence's parts; empty: it has some."""

    @property
    def resource(self) -> str:
        """As kubelet calls it."""
        return self.config.resource

    def by_id(self) -> dict[str, PoolMember]:
        """Its members by kubelet's ids."""
        return {each.device.id: each for each in self.members}


def make_pools(config: SriovConfig, node: NodeDevices, held: Mapping[str, str]) -> tuple[SriovPool, ...]:
    """All pools of the file that are served. ``held``: by id, the resource as which a container holds the device."""
    owners = dict(held)
    pools = [_build_pool(each, node.devices, held, owners) for each in config.pools]
    return tuple(pool for pool in pools if not pool.config.is_refused)


def selector_problems(config: SriovConfig) -> list[str]:
    """Values in the file's selectors that mean nothing, a sentence each."""
    return [
        f"{pool.resource}: {problem}"
        for pool in config.pools
        for each in pool.selectors
        for problem in SelectorFilter(each).problems
    ]


def _build_pool(
    config: SriovPoolConfig, devices: Sequence[SriovDevice], held: Mapping[str, str], owners: dict[str, str]
) -> SriovPool:
    """``owners``: by id, the resource of each device that has one; those of this pool are added."""
    filters = [SelectorFilter(each) for each in config.selectors]
    possible = candidates(config, devices)
    members: dict[str, PoolMember] = {}
    for each in filters:
        for device in possible:
            owner = owners.get(device.id, config.resource)
            if device.id not in members and owner == config.resource and each.selects(device):
                members[device.id] = PoolMember(device, each.selector, trouble_of(device, each.selector))
                owners[device.id] = config.resource
    there = {device.id: device for device in devices}
    mine = sorted(id_ for id_, resource in held.items() if resource == config.resource and id_ not in members)
    for id_ in mine:
        if (kept := there.get(id_)) is not None:
            trouble = kept.in_use or trouble_of(kept, config.selectors[0]) or UNSELECTED_TROUBLE
            members[id_] = PoolMember(kept, config.selectors[0], trouble)
    missing = tuple(id_ for id_ in mine if id_ not in there)
    empty = "" if members or missing else _why_empty(config, devices, possible, filters, owners)
    return SriovPool(config, tuple(members.values()), missing, empty)


def trouble_of(device: SriovDevice, selector: SriovSelector) -> str:
    """What is wrong with a device, as a part of a sentence; empty: nothing is known of it. ``selector``: the one by
    which it is in its pool, for what containers are to get with it."""
    if device.driver == VFIO_DRIVER and not device.vfio_group:
        return f"its driver is {VFIO_DRIVER}, but it has no IOMMU group"
    if device.driver in UIO_DRIVERS and not device.uio:
        return f"its driver is {device.driver}, but it has no device file"
    if selector.vdpa_type == _VHOST and device.vdpa is not None and not device.vdpa.path:
        return f"its vDPA device {device.vdpa.name} has no device file"
    if (
        selector.is_rdma
        and device.rdma
        and not any(_is_verbs(path) for each in device.rdma for path in each.device_files)
    ):
        return f"there is no uverbs device file for {device.rdma_name}: is the kernel module ib_uverbs loaded?"
    if device.no_link:
        return f"the port of {device.pf_name or device.address} has no link"
    return ""


def _is_verbs(path: str) -> bool:
    return path.rpartition("/")[2].startswith("uverbs")


def _why_empty(
    config: SriovPoolConfig,
    devices: Sequence[SriovDevice],
    possible: Sequence[SriovDevice],
    filters: Sequence[SelectorFilter],
    owners: Mapping[str, str],
) -> str:
    of_type = [each for each in devices if each.type is config.device_type]
    if not of_type:
        return f"the node has no device of type {config.device_type}"
    if not possible:
        return f"no device of type {config.device_type} can be given to pods: {_used(of_type)}"
    found = []
    for place, each in enumerate(filters):
        taken = [device for device in possible if each.selects(device)]
        if taken:
            others = ", ".join(sorted({owners[device.id] for device in taken})[:_MAX_DEVICES_SHOWN])
            verb = "belongs" if len(taken) == 1 else "belong"
            found.append(f"selector {place}: the {counted(len(taken), 'device')} that it matches {verb} to {others}")
        else:
            found.append(f"selector {place}: {each.why_none(possible)}")
    used = [each for each in of_type if each.in_use]
    suffix = f"; {len(used)} more cannot be given to pods: {_used(used)}" if used else ""
    return "; ".join(found[:_MAX_DEVICES_SHOWN]) + suffix


def _used(devices: Sequence[SriovDevice]) -> str:
    shown = [f"{each.id} {each.in_use}" for each in devices[:_MAX_DEVICES_SHOWN]]
    left = len(devices) - len(shown)
    return "; ".join([*shown, f"and {counted(left, 'more device')}"] if left else shown)
