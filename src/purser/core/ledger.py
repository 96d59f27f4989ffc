"""The ledger: which pod holds which share of which device, from reservation to release.

Explicit state, no I/O. Every change is checked against the capacities of the devices; what the cluster already decided
(a restart, another replica) is adopted unchecked, and `Ledger.violations` lists what is wrong with it. A device that is
unhealthy or has vanished keeps its grants: the pods that hold it still exist.

Errors::

    LedgerError
    |-- DuplicateError       the pod already holds a grant
    |-- UnknownDeviceError   the grant names a device that its node does not have
    |-- OvercommitError      the grant would take more than a device has
    |-- UnknownGrantError    there is no grant of that pod, or no such container in it
    `-- StateError           a grant would go backwards
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from purser.core.grant.quota import Demand, grant_demand
from purser.core.mig.on_demand import overlap
from purser.core.model import ContainerGrant, Device, DeviceShare, Grant, GrantState, MigPlacement, NodeInventory
from purser.core.pod.phases import phases
from purser.core.wording import counted

_ORDER = {state: place for place, state in enumerate(GrantState)}
_NOTHING: Mapping[str, "Usage"] = MappingProxyType({})

T = TypeVar("T", MigPlacement, str, int)

GrantProgress = tuple[Grant, Mapping[str, GrantState]]
"""A grant, and how far each of its containers is."""


class LedgerError(ValueError):
    """A change the book does not allow; the message says what and why."""


class DuplicateError(LedgerError):
    """The pod already holds a grant."""


class UnknownDeviceError(LedgerError):
    """The grant names a device that its node does not have."""


class OvercommitError(LedgerError):
    """The grant would take more of a device than it has."""


class UnknownGrantError(LedgerError):
    """No grant, or no such container in it."""


class StateError(LedgerError):
    """A grant's state only moves forward."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What is taken of one device."""

    slots: int = 0
    memory_mib: int = 0
    cores_percent: int = 0
    pods: int = 0
    exclusive: int = 0
    """How many pods hold the device alone; more than one pod beside such a one is a violation."""
    instances: tuple[MigPlacement, ...] = ()
    """Those of a GPU that is cut on demand, sorted; one that appears twice is held by two."""
    alike: tuple[str, ...] = ()
    """What shares there must have in common (`DeviceRequest.alike`), sorted, a word for each."""
    core_numbers: tuple[int, ...] = ()
    """Of a device whose cores have numbers, sorted; one that appears twice is held by two."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.slots + other.slots,
            self.memory_mib + other.memory_mib,
            self.cores_percent + other.cores_percent,
            self.pods + other.pods,
            self.exclusive + other.exclusive,
            _sum(self.instances, other.instances),
            _sum(self.alike, other.alike),
            _sum(self.core_numbers, other.core_numbers),
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            self.slots - other.slots,
            self.memory_mib - other.memory_mib,
            self.cores_percent - other.cores_percent,
            self.pods - other.pods,
            self.exclusive - other.exclusive,
            _less(self.instances, other.instances),
            _less(self.alike, other.alike),
            _less(self.core_numbers, other.core_numbers),
        )

    def peak(self, other: "Usage") -> "Usage":
        """The larger of the two in each dimension; an instance stays for the whole life of its pod."""
        return Usage(
            max(self.slots, other.slots),
            max(self.memory_mib, other.memory_mib),
            max(self.cores_percent, other.cores_percent),
            max(self.pods, other.pods),
            max(self.exclusive, other.exclusive),
            _union(self.instances, other.instances),
            _union(self.alike, other.alike),
            _union(self.core_numbers, other.core_numbers),
        )


def _sum(here: tuple[T, ...], others: tuple[T, ...]) -> tuple[T, ...]:
    """What both hold, sorted; what appears twice is held by two. Most devices have nothing of it: that is cheap."""
    return tuple(sorted(here + others)) if others else here


def _less(here: tuple[T, ...], others: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(sorted((Counter(here) - Counter(others)).elements())) if others else here


def _union(here: tuple[T, ...], others: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(sorted((Counter(here) | Counter(others)).elements())) if others else here


NO_USAGE = Usage()


class Violation(msgspec.Struct, frozen=True):
    """Something in the ledger that `Ledger.reserve` would not have allowed."""

    node: str
    uuid: str
    problem: str


def pod_usage(grant: Grant) -> dict[str, Usage]:
    """What a pod takes of each device: per device the peak over the pod's phases.

    The one accounting function, for shares and whole devices alike (Volcano kept two and forgot one of them on rebuild,
    volcano-sh/volcano#3824). The share of a finished init container stays in the ledger: kubelet keeps its device ids
    with the pod, and init containers run again when the pod's sandbox is lost.
    """
    peaks: dict[str, Usage] = {}
    for phase in phases(grant.containers):
        for uuid, usage in _concurrent_usage(phase).items():
            peaks[uuid] = peaks.get(uuid, NO_USAGE).peak(usage)
    return {uuid: msgspec.structs.replace(u, pods=1, exclusive=min(u.exclusive, 1)) for uuid, u in peaks.items()}


def _concurrent_usage(parts: tuple[ContainerGrant, ...]) -> dict[str, Usage]:
    """What containers that run at the same time take of each device; ``exclusive`` counts shares here."""
    taken: dict[str, Usage] = {}
    for part in parts:
        for share in part.shares:
            usage = share_usage(share)
            taken[share.uuid] = taken.get(share.uuid, NO_USAGE) + usage
    return taken


def share_usage(share: DeviceShare) -> Usage:
    """What one share takes of its device."""
    instances = () if share.mig is None else (share.mig,)
    alike = (share.alike,) if share.alike else ()
    is_whole = int(share.is_whole)
    return Usage(1, share.memory_mib, share.cores_percent, 0, is_whole, instances, alike, share.core_numbers)


class _Entry:
    """One grant in the ledger with what it takes, computed once."""

    __slots__ = ("containers", "demand", "grant", "usage")

    def __init__(self, grant: Grant, state: GrantState) -> None:
        self.grant = grant
        self.usage = pod_usage(grant)
        self.demand = grant_demand(grant)
        self.containers: Mapping[str, GrantState] = {part.container: state for part in grant.containers}
        """Another mapping with every change."""

    @property
    def state(self) -> GrantState:
        return least_advanced(self.containers)


def least_advanced(states: Mapping[str, GrantState]) -> GrantState:
    """How far a grant is whose containers are so far."""
    return min(states.values(), key=_ORDER.__getitem__, default=GrantState.RESERVED)


class Ledger:
    """Grants by pod and by node, and the usage of every device that follows from them."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._usage: dict[str, dict[str, Usage]] = {}
        self._devices: dict[str, dict[str, Device]] = {}
        self._namespaces: dict[tuple[str, str], Demand] = {}
        """By namespace and family of devices."""
        self.on_change: Callable[[str], None] = lambda node: None
        """Called for a node whose grants changed."""

    def set_inventory(self, inventory: NodeInventory) -> None:
        """Replace what is known of a node's devices; grants of devices that are gone stay in the ledger."""
        self._devices[inventory.node] = {device.uuid: device for device in inventory.devices}

    def forget_node(self, node: str) -> None:
        """Drop a node's devices; its pods' grants stay until they are released."""
        self._devices.pop(node, None)

    def reserve(self, grant: Grant) -> None:
        """Enter a new grant.

        Raises `DuplicateError`, `UnknownDeviceError` or `OvercommitError`, and then nothing has changed.
        """
        if grant.pod_uid in self._entries:
            raise DuplicateError(f"pod {grant.namespace}/{grant.pod} ({grant.pod_uid}) already holds a grant")
        _check_parts(grant, self._devices.get(grant.node, {}))
        self._check_room(grant)
        self._add_entry(_Entry(grant, GrantState.RESERVED))

    def adopt(self, grant: Grant, state: GrantState = GrantState.BOUND) -> None:
        """Enter a grant that the cluster already holds, unchecked.

        The same grant again only moves its state forward; another grant of the same pod replaces the one in the ledger,
        because what the API server stores is what runs.
        """
        entry = self._entries.get(grant.pod_uid)
        if entry is not None and entry.grant == grant:
            entry.containers = {name: max(old, state, key=_ORDER.__getitem__) for name, old in entry.containers.items()}
            return
        self.release(grant.pod_uid)
        self._add_entry(_Entry(grant, state))

    def advance(self, pod_uid: str, state: GrantState, container: str | None = None) -> None:
        """Move a pod's grant, or one container of it, forward.

        Raises `UnknownGrantError`, or `StateError` when it is already further than ``state``.
        """
        entry = self._entries.get(pod_uid)
        if entry is None or (container is not None and container not in entry.containers):
            raise UnknownGrantError(
                f"pod {pod_uid} does not hold a grant{f' for container {container}' if container else ''}"
            )
        names = tuple(entry.containers) if container is None else (container,)
        for name in names:
            if _ORDER[state] < _ORDER[entry.containers[name]]:
                raise StateError(
                    f"container {name} of pod {pod_uid} is {entry.containers[name]} and cannot become {state}"
                )
        entry.containers = {**entry.containers, **dict.fromkeys(names, state)}
        if entry.state is GrantState.RELEASED:
            self.release(pod_uid)

    def release(self, pod_uid: str) -> Grant | None:
        """Take a pod's grant off the book; None when there is none."""
        entry = self._entries.pop(pod_uid, None)
        if entry is None:
            return None
        grant = entry.grant
        self._by_node[grant.node].pop(pod_uid)
        if not self._by_node[grant.node]:
            del self._by_node[grant.node]
        self._subtract(entry)
        self.on_change(grant.node)
        return grant

    def usage(self, node: str) -> Mapping[str, Usage]:
        """What is taken of each device of a node that anything is taken of, vanished devices included."""
        return self._usage.get(node, _NOTHING)

    def grant(self, pod_uid: str) -> Grant | None:
        """A pod's grant."""
        entry = self._entries.get(pod_uid)
        return None if entry is None else entry.grant

    def state(self, pod_uid: str, container: str | None = None) -> GrantState | None:
        """How far a container's grant is; without one, how far the least advanced container of the pod is."""
        entry = self._entries.get(pod_uid)
        if entry is None:
            return None
        return entry.state if container is None else entry.containers.get(container)

    def grants(self, node: str | None = None) -> Iterator[Grant]:
        """All grants, or those of one node, in the order in which they were entered."""
        uids = self._entries if node is None else self._by_node.get(node, {})
        return (self._entries[uid].grant for uid in uids)

    def progress(self, node: str) -> tuple[GrantProgress, ...]:
        """The grants of a node as `grants` has them, each with how far it is; later changes change nothing of it."""
        entries = self._entries
        return tuple([((entry := entries[uid]).grant, entry.containers) for uid in self._by_node.get(node, ())])

    def uids(self, node: str | None = None) -> list[str]:
        """The uids of all pods with a grant, or of those listed under one node, in the order in which they were
        entered."""
        return list(self._entries if node is None else self._by_node.get(node, {}))

    def nodes(self) -> list[str]:
        """The nodes that anything is held of, sorted."""
        return sorted(self._by_node.keys() | self._usage.keys())

    def is_listed(self, pod_uid: str, node: str) -> bool:
        """Whether a pod's grant is listed under a node."""
        return pod_uid in self._by_node.get(node, ())

    def devices(self, node: str) -> Mapping[str, Device]:
        """The devices of a node, by uuid, that grants are checked against."""
        return MappingProxyType(self._devices.get(node, {}))

    def held(self, pod_uid: str) -> Mapping[str, Usage]:
        """What a pod's grant takes of which device, by uuid: of all pods together it is what `usage` says."""
        entry = self._entries.get(pod_uid)
        return {} if entry is None else entry.usage

    def namespace_usage(self, namespace: str, family: str = "") -> Demand:
        """What the pods of a namespace use of its quota for a family of devices (`DeviceShare.family`)."""
        return self._namespaces.get((namespace, family), Demand())

    def demands(self) -> dict[tuple[str, str], Demand]:
        """What the pods of every namespace use of their quotas, by namespace and family of devices."""
        return dict(self._namespaces)

    def violations(self, node: str | None = None) -> tuple[Violation, ...]:
        """Everything in the ledger that `reserve` would have refused, in stable order."""
        nodes = sorted(self._usage) if node is None else [node]
        return tuple(
            Violation(name, uuid, problem)
            for name in nodes
            for uuid, usage in sorted(self.usage(name).items())
            if (problem := self._problem(name, uuid, usage))
        )

    def _check_room(self, grant: Grant) -> None:
        devices = self._devices.get(grant.node, {})
        for uuid, asked in pod_usage(grant).items():
            if uuid not in devices:
                raise UnknownDeviceError(f"node {grant.node} has no device {uuid}")
            problem = self._problem(grant.node, uuid, self.usage(grant.node).get(uuid, NO_USAGE) + asked)
            if problem:
                raise OvercommitError(f"device {uuid} on node {grant.node}: {problem}")

    def _problem(self, node: str, uuid: str, usage: Usage) -> str:
        device = self._devices.get(node, {}).get(uuid)
        if device is None:
            return "the node does not report this device"
        return find_overcommit(device, usage)

    def _add_entry(self, entry: _Entry) -> None:
        grant = entry.grant
        self._entries[grant.pod_uid] = entry
        self._by_node.setdefault(grant.node, {})[grant.pod_uid] = None
        on_node = self._usage.setdefault(grant.node, {})
        for uuid, usage in entry.usage.items():
            on_node[uuid] = on_node.get(uuid, NO_USAGE) + usage
        whose = (grant.namespace, grant.family)
        self._namespaces[whose] = self.namespace_usage(*whose) + entry.demand
        self.on_change(grant.node)

    def _subtract(self, entry: _Entry) -> None:
        node, whose = entry.grant.node, (entry.grant.namespace, entry.grant.family)
        before = self._usage.get(node, {})  # a grant of no devices leaves nothing there
        left = {uuid: before[uuid] - usage for uuid, usage in entry.usage.items()}
        self._usage[node] = {u: usage for u, usage in {**before, **left}.items() if usage != NO_USAGE}
        if not self._usage[node]:
            del self._usage[node]
        demand = self.namespace_usage(*whose) - entry.demand
        if demand != Demand():
            self._namespaces[whose] = demand
        else:  # pods may be left there that use nothing of a quota
            self._namespaces.pop(whose, None)


def find_overcommit(device: Device, usage: Usage) -> str:
    """What is wrong with this usage of a device; empty when nothing is.

    A second check beside the rule of placement, on purpose: see "The ledger compares sums by itself" in decisions.md.
    """
    if device.mig_kind:
        if usage.slots > len(usage.instances):
            return "it is partitioned on demand, but a grant does not name one of its instances"
        return overlap(device, usage.instances)
    if usage.instances:
        return "it is not partitioned on demand, but a grant names one of its instances"
    if usage.slots > device.slots:
        return f"{counted(usage.slots, 'slot')} would be allocated, but the device has only {device.slots}"
    if usage.memory_mib > device.memory_mib:
        return f"{usage.memory_mib} MiB would be allocated, but the device has only {device.memory_mib} MiB"
    if usage.cores_percent > device.cores_percent:
        return (
            f"{usage.cores_percent}% of its compute would be allocated, but the device has only {device.cores_percent}%"
        )
    if usage.exclusive and usage.pods > 1:
        return f"{usage.pods} pods would hold it, although one of them has exclusive use"
    if len({word.partition(":")[0] for word in usage.alike}) > 1:
        return f"it would hold incompatible shares: {usage.alike[0]} and {usage.alike[-1]}"
    if 0 < len(usage.alike) < usage.slots:
        return f"it would hold incompatible shares: {usage.alike[0]} and others"
    if len(set(usage.core_numbers)) < len(usage.core_numbers) or any(n >= device.cores for n in usage.core_numbers):
        return (
            f"cores {', '.join(map(str, usage.core_numbers))} would be allocated, but it has "
            f"{counted(device.cores, 'core')}, and each core can be allocated only once"
        )
    return ""


def _check_parts(grant: Grant, devices: Mapping[str, Device]) -> None:
    """Refuse what no device's capacity can show: doubled devices, negative amounts, company when alone, MIG devices
    beside whole GPUs.

    Of a device that is divided into equal parts, or cut on demand, a container may have several.
    """
    for part in grant.containers:
        duplicates = [uuid for uuid, count in Counter(part.uuids).items() if count > 1]
        if not all(uuid in devices and (devices[uuid].replicas > 1 or devices[uuid].mig_kind) for uuid in duplicates):
            raise OvercommitError(f"container {part.container} holds one device twice")
        if len({devices[uuid].is_mig for uuid in part.uuids if uuid in devices}) > 1:
            raise OvercommitError(
                f"container {part.container} holds both whole GPUs and MIG devices, but must have only one kind"
            )
        if any(share.memory_mib < 0 or share.cores_percent < 0 for share in part.shares):
            raise OvercommitError(f"container {part.container} holds a negative share")
    for phase in phases(grant.containers):
        for uuid, usage in _concurrent_usage(phase).items():
            if usage.exclusive and usage.slots > 1:
                raise OvercommitError(
                    f"device {uuid}: {usage.slots} containers would share it, although one has exclusive use"
                )
