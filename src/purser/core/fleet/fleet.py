"""The fleet: every node's devices together with what is taken of them.

A node's state is built from scratch whenever its inventory changes, so that a GPU that disappeared is gone (Volcano
kept it and gave it to pods, volcano-sh/volcano PR 2215); between two inventories only the usage follows the book.

The Structs here are tens of thousands, live long and hold no cycles: the garbage collector need not walk them.

Nodes in equal state (the same devices apart from their uuids, the same usage) share a class, so that a decision about
one of them is a decision about all.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from itertools import takewhile
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from purser.core.fleet.facts import CORDONED, DISPUTED, UNHEALTHY
from purser.core.fleet.free_resources import NO_LIMIT, FreeResources
from purser.core.fleet.kept import NominatedUsage
from purser.core.fleet.kubelet_snapshot import (
    KubeletPods,
    KubeletSnapshot,
    KubeletSnapshots,
    ReportedKubelet,
    without_allocations,
)
from purser.core.kubelet.pod import KubeletPod
from purser.core.kubelet.report import aligns
from purser.core.kubelet.state import KubeletNode
from purser.core.kubelet.state import KubeletState as KubeletState
from purser.core.ledger import NO_USAGE, Ledger, Usage, pod_usage
from purser.core.mig.on_demand import taken_mask
from purser.core.model import NVIDIA, Device, NodeInventory
from purser.core.sriov.pairs import TakenDevices, taken_by_grants

_NO_DISPUTES: Mapping[str, str] = MappingProxyType({})
_NO_TAKEN_POOLS: TakenDevices = MappingProxyType({})


class DeviceState(msgspec.Struct, frozen=True, gc=False):
    """A device and what is taken of it."""

    device: Device
    usage: Usage = NO_USAGE
    cordoned: bool = False
    """It takes no new grants."""
    disputed: str = ""
    """Why it takes none until its node's books agree; empty where they do."""

    @property
    def closed(self) -> int:
        """Why it takes no new grants, as bits; see `purser.core.fleet.facts`."""
        is_healthy, cordoned, disputed = self.device.healthy, self.cordoned, bool(self.disputed)
        return (not is_healthy) * UNHEALTHY | cordoned * CORDONED | disputed * DISPUTED

    @property
    def parts(self) -> int:
        """How many devices of one container it can be: 1, of one that is divided so many of its parts as are free."""
        device, used = self.device, self.usage
        if device.replicas == 1:
            return 1
        by_slots = device.slots - used.slots
        # NVML reports no memory for a GPU that shares the host's.
        by_memory = (device.memory_mib - used.memory_mib) // device.replica_mib if device.replica_mib else by_slots
        return 0 if used.exclusive else max(0, min(by_slots, by_memory))

    @property
    def mig_mask(self) -> int:
        """What is taken of it where it is cut on demand."""
        return taken_mask(self.device, self.usage.instances)

    def as_replica(self, is_free: bool) -> "DeviceState":
        """One part of it as a device of its own, unused or held exclusively; the whole device where it is not
        divided."""
        device = self.device
        if device.replicas == 1:
            return self
        part = msgspec.structs.replace(device, memory_mib=device.replica_mib, slots=1, replicas=1)
        taken = NO_USAGE if is_free else Usage(1, part.memory_mib, part.cores_percent, 1, 1)
        return msgspec.structs.replace(self, device=part, usage=taken)


class NodeState(msgspec.Struct, frozen=True, gc=False):
    """A node's devices, ordered by index and uuid, with their usage."""

    name: str
    inventory: NodeInventory
    devices: tuple[DeviceState, ...]
    hardware: Hashable
    """Equal for nodes whose devices are equal but for their uuids."""
    kubelet: KubeletSnapshot | None = None
    """What its kubelet will decide from; None where kubelet refuses nothing that has room."""
    pools_taken: TakenDevices = _NO_TAKEN_POOLS
    """What grants have of its SR-IOV pools."""

    @property
    def key(self) -> Hashable:
        """Equal for nodes in equal state."""
        of_devices = tuple((*_usage_key(state.usage), state.disputed) for state in self.devices)
        usage = (of_devices, frozenset(self.pools_taken.items()))
        if self.kubelet is None:
            return (self.hardware, usage)
        return (self.hardware, usage, self.kubelet.key({s.device.uuid: p for p, s in enumerate(self.devices)}))

    def plus(self, kept: NominatedUsage) -> "NodeState":
        """The same node with more taken of it: perhaps more than it has."""
        if not kept:
            return self
        usage = {s.device.uuid: s.usage + kept.usage.get(s.device.uuid, NO_USAGE) for s in self.devices}
        pools = (NominatedUsage(pools=self.pools_taken) + NominatedUsage(pools=kept.pools)).pools
        return _with_usage(self, usage, self.kubelet, _disputed(self), pools)

    @property
    def unused(self) -> "NodeState":
        """The same node with nothing taken."""
        return _with_usage(self, {}, self.kubelet and without_allocations(self.kubelet), _disputed(self))


def node_state(
    inventory: NodeInventory, usage: Mapping[str, Usage], disputes: Mapping[str, str] = _NO_DISPUTES
) -> NodeState:
    """A node's state from scratch."""
    devices = sorted(inventory.devices, key=lambda device: (device.index, device.uuid))
    cordoned = frozenset(inventory.cordoned)
    states = tuple(
        DeviceState(d, usage.get(d.uuid, NO_USAGE), d.uuid in cordoned, disputes.get(d.uuid, "")) for d in devices
    )
    return NodeState(inventory.node, inventory, states, (_hardware_key(states), inventory.pools))


def _with_usage(
    node: NodeState,
    usage: Mapping[str, Usage],
    kubelet: KubeletSnapshot | None,
    disputes: Mapping[str, str],
    pools_taken: TakenDevices = _NO_TAKEN_POOLS,
) -> NodeState:
    states = tuple(
        DeviceState(s.device, usage.get(s.device.uuid, NO_USAGE), s.cordoned, disputes.get(s.device.uuid, ""))
        for s in node.devices
    )
    return NodeState(node.name, node.inventory, states, node.hardware, kubelet, pools_taken)


def _disputed(node: NodeState) -> dict[str, str]:
    return {state.device.uuid: state.disputed for state in node.devices if state.disputed}


def _usage_key(usage: Usage) -> tuple[Hashable, ...]:
    return (usage.slots, usage.memory_mib, usage.cores_percent, usage.exclusive > 0, usage.instances, usage.alike)


def _hardware_key(states: tuple[DeviceState, ...]) -> Hashable:
    """Everything a decision reads of devices, with peers by position in place of uuids."""
    position = {state.device.uuid: place for place, state in enumerate(states)}
    return tuple((_facts(state), _links(state.device, position)) for state in states)


def _facts(state: DeviceState) -> Hashable:
    d = state.device
    handed_out = (d.mode, d.enforcement, d.resource, d.replicas, d.one_each, d.packed)
    amounts = (d.memory_mib, d.cores_percent, d.slots, d.mig_kind, d.mig_held)
    # Other vendors' links are by index.
    of_vendor = None if d.vendor == NVIDIA else (d.index, d.ring, d.cores, d.slicing, d.soft_split)
    return (d.model, amounts, d.numa_nodes, handed_out, d.healthy, state.cordoned, d.pcie, of_vendor)


def _links(device: Device, position: Mapping[str, int]) -> Hashable:
    known = (link for link in device.links if link.peer in position)
    return tuple(sorted((position[link.peer], link.pcie or "", link.nvlinks) for link in known))


class _Classes:
    """Nodes by what they have in common: a small number for each key, forgotten when no node has it any more.

    A number is never used again for another key.
    """

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._keys: dict[int, Hashable] = {}
        self._members: Counter[int] = Counter()
        self._next = 0

    def put(self, name: str, key: Hashable) -> int:
        number = self._number(key)
        self._members[number] += 1  # before the node leaves its class: it may be the same one
        self.remove(name)
        self.of[name] = number
        return number

    def remove(self, name: str) -> None:
        number = self.of.pop(name, None)
        if number is None:
            return
        self._members[number] -= 1
        if not self._members[number]:
            del self._members[number], self._numbers[self._keys.pop(number)]

    def _number(self, key: Hashable) -> int:
        if key not in self._numbers:
            self._numbers[key] = self._next
            self._keys[self._next] = key
            self._next += 1
        return self._numbers[key]


class Changes(NamedTuple):
    """What is not as a reader saw it."""

    now: int
    """The revision to ask from the next time."""
    names: list[str]
    """The nodes that changed, or came, and are there: the last change first."""
    has_removed_nodes: bool
    """Whether other nodes have gone. Which ones is not kept: callers check their names."""


class Fleet:
    """Nodes with inventory, their states kept fresh from the ledger."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._nodes: dict[str, NodeState] = {}
        self._kubelets = KubeletSnapshots()
        self._outdated: set[str] = set()
        """Nodes, perhaps without inventory, of which more is known than their states say."""
        self.ledger.on_change = self._outdated.add
        self._classes = _Classes()
        self._hardware = _Classes()
        self._free_resources: dict[str, FreeResources] = {}
        self._disputes: dict[str, Mapping[str, str]] = {}
        self._revision = 0
        self._gone_at = 0
        self._changed_at: dict[str, int] = {}
        """In the order of the changes: what changes again moves to the end."""

    def set_inventory(self, inventory: NodeInventory) -> None:
        """Take a node's devices as they now are."""
        self.ledger.set_inventory(inventory)
        state = node_state(inventory, self.ledger.usage(inventory.node), self.disputes(inventory.node))
        # A number stands in for the hardware, so that keys stay small and quick to compare.
        state = msgspec.structs.replace(state, hardware=self._hardware.put(state.name, state.hardware))
        kubelet, taken = self._kubelet(inventory), self._pools_taken(inventory)
        self._put(msgspec.structs.replace(state, kubelet=kubelet, pools_taken=taken))

    def set_disputes(self, name: str, disputes: Mapping[str, str]) -> None:
        """Say of which of a node's devices no new grants are to be made, and why: by uuid."""
        if self.disputes(name) != disputes:
            self._disputes[name] = dict(disputes)
            if not disputes:
                del self._disputes[name]
            self._outdated.add(name)

    def disputes(self, name: str) -> Mapping[str, str]:
        """Of which of a node's devices no new grants are to be made, and why: by uuid."""
        return self._disputes.get(name, _NO_DISPUTES)

    def remove_node(self, name: str) -> None:
        """Forget a node; grants on it stay in the ledger until its pods are gone."""
        self.ledger.forget_node(name)
        if self._nodes.pop(name, None) is not None:
            self._changed_at.pop(name, None)
            self._revision += 1
            self._gone_at = self._revision
        self._classes.remove(name)
        self._hardware.remove(name)

    def set_kubelet(self, name: str, node: KubeletNode, state: KubeletState, *, is_anonymous: bool = False) -> None:
        """Take what a node's kubelet was last seen to have and to hold. One that refuses nothing is not looked into.

        ``is_anonymous``: it is known how much is taken, and not by whom.
        """
        if aligns(node.config):
            self._kubelets.set_report(name, node, state, is_anonymous=is_anonymous)
        else:
            self._kubelets.forget_report(name)
        self._outdated.add(name)

    def forget_kubelet(self, name: str) -> None:
        """Nothing is known of a node's kubelet any more."""
        self._kubelets.forget_report(name)
        self._outdated.add(name)

    def kubelet_report(self, name: str) -> ReportedKubelet | None:
        """What is known of a node's kubelet; None: nothing, or that it refuses nothing."""
        return self._kubelets.report(name)

    def kubelet_pods(self, name: str) -> KubeletPods:
        """The pods on a node, as far as they concern its kubelet."""
        return self._kubelets.pods(name)

    def restore_kubelet(self, name: str, report: ReportedKubelet | None, pods: KubeletPods) -> None:
        """A node's kubelet and pods as `kubelet_report` and `kubelet_pods` had them."""
        self._kubelets.restore(name, report, pods)
        self._outdated.add(name)

    @property
    def has_kubelets(self) -> bool:
        """Whether any node's kubelet may refuse what has room."""
        return bool(self._kubelets)

    def put_pod(self, name: str, pod: KubeletPod) -> None:
        """A pod is on a node or about to be, be it one that asks for no GPU."""
        before = self._kubelets.put_pod(name, pod)
        self._outdated.update({name, before or name})

    def mark_pod_admitted(self, uid: str) -> None:
        """kubelet took a pod."""
        self._kubelets.mark_pod_admitted(uid)
        name = self._kubelets.node_of(uid)
        if name is not None:
            self._outdated.add(name)

    def forget_pod(self, uid: str) -> None:
        """A pod has ended."""
        name = self._kubelets.forget_pod(uid)
        if name is not None:
            self._outdated.add(name)

    def pod_node(self, uid: str) -> str | None:
        """The node that a pod was put on, None for one that was not."""
        return self._kubelets.node_of(uid)

    def set_free_resources(self, name: str, free_resources: FreeResources) -> None:
        """Take what is free of a node beside its GPUs; it is remembered for nodes without inventory as well."""
        if self._free_resources.get(name) != free_resources:
            self._free_resources[name] = free_resources
            self._note_change(name)

    def forget_free_resources(self, name: str) -> None:
        """Nothing is known of what a node has beside its GPUs any more."""
        if self._free_resources.pop(name, None) is not None:
            self._note_change(name)

    def free_resources(self, name: str) -> FreeResources:
        """What is free on a node beside its GPUs; unlimited where it is not known."""
        return self._free_resources.get(name, NO_LIMIT)

    def _note_change(self, name: str) -> None:
        if name in self._nodes:
            self._revision += 1
            self._changed_at.pop(name, None)
            self._changed_at[name] = self._revision

    def changes_since(self, revision: int) -> Changes:
        """The nodes whose state or free resources changed, or that came or went, after this revision; 0: ever."""
        self._refresh()
        newest = reversed(self._changed_at.items())
        names = [name for name, _ in takewhile(lambda change: change[1] > revision, newest)]
        return Changes(self._revision, names, self._gone_at > revision)

    def node(self, name: str) -> NodeState | None:
        """A node's state, None for one without inventory."""
        self._refresh()
        return self._nodes.get(name)

    def names(self) -> list[str]:
        """All nodes with inventory, sorted."""
        return sorted(self._nodes)

    def classes(self) -> Mapping[str, int]:
        """The class of every node: equal numbers mean equal states; a number is never used again for another state."""
        self._refresh()
        return self._classes.of

    def without(self, name: str, pod_uids: Collection[str]) -> NodeState | None:
        """A node's state as it would be without these pods' grants."""
        node = self.node(name)
        if node is None:
            return None
        usage: dict[str, Usage] = {}
        for grant in self.ledger.grants(name):
            if grant.pod_uid not in pod_uids:
                for uuid, taken in pod_usage(grant).items():
                    usage[uuid] = usage.get(uuid, NO_USAGE) + taken
        kubelet, pools_taken = self._kubelet(node.inventory, pod_uids), self._pools_taken(node.inventory, pod_uids)
        return _with_usage(node, usage, kubelet, self.disputes(name), pools_taken)

    def __iter__(self) -> Iterator[NodeState]:
        self._refresh()
        return iter([self._nodes[name] for name in self.names()])

    def __len__(self) -> int:
        return len(self._nodes)

    def _refresh(self) -> None:
        """Bring the nodes whose grants or pods changed up to the book."""
        if not self._outdated:
            return
        changed = list(self._outdated)
        self._outdated.clear()
        for name in changed:
            node = self._nodes.get(name)
            if node is not None:
                usage, kubelet = self.ledger.usage(name), self._kubelet(node.inventory)
                self._put(_with_usage(node, usage, kubelet, self.disputes(name), self._pools_taken(node.inventory)))

    def _pools_taken(self, inventory: NodeInventory, gone: Collection[str] = ()) -> TakenDevices:
        if not inventory.pools:
            return _NO_TAKEN_POOLS
        return taken_by_grants(grant for grant in self.ledger.grants(inventory.node) if grant.pod_uid not in gone)

    def _kubelet(self, inventory: NodeInventory, gone: Collection[str] = ()) -> KubeletSnapshot | None:
        grants = self.ledger.grants(inventory.node)
        return self._kubelets.of(inventory.node, grants, gone, inventory.devices, inventory.pools)

    def _put(self, node: NodeState) -> None:
        self._classes.put(node.name, node.key)
        self._nodes[node.name] = node
        self._note_change(node.name)
