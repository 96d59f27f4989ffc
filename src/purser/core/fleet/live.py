"""A live fleet as arrays: rows that changed since the last decision are rewritten from the facts of nodes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.device.ids import MAX_SLOTS
from purser.core.device.resources import MIG_PREFIX
from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.fleet.fleet import DeviceState, Fleet, NodeState
from purser.core.fleet.free_resources import MANY, NO_LIMIT, FreeResources
from purser.core.interconnect import Topology, topology
from purser.core.mig.on_demand import taken_mask
from purser.core.model import WHOLE_PERCENT, Grant, NodeInventory


class LiveArrays:
    """The arrays of one `Fleet`, as of the last `refresh`."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.arrays = FleetArrays()
        self._links: dict[str, tuple[NodeInventory, Topology | None]] = {}
        self._one_resource: dict[str, tuple[NodeInventory, bool]] = {}
        """As ``lists_mig_and_gpus_as_one_resource``, of the inventory that it was found of."""
        self._uuids: dict[str, tuple[str, ...]] = {}
        self._nodes_with: dict[str, set[str]] = defaultdict(set)
        self.has_known_kubelet: npt.NDArray[np.bool_] = np.zeros(len(self.arrays.live), np.bool_)
        """By row, whether it is known of the node's kubelet what it may refuse."""
        self.has_pools: npt.NDArray[np.bool_] = np.zeros(len(self.arrays.live), np.bool_)
        """By row, whether the node has SR-IOV pools."""
        self.has_restricted_shares: npt.NDArray[np.bool_] = np.zeros(len(self.arrays.live), np.bool_)
        """By row, whether a device of the node has shares that only such as are alike may be beside."""
        self.lists_mig_and_gpus_as_one_resource: npt.NDArray[np.bool_] = np.zeros(len(self.arrays.live), np.bool_)
        """By row, whether the node has MIG devices and whole GPUs under one name: no container gets both."""
        self._asked: tuple[int, list[str], npt.NDArray[np.intp]] = (0, [], np.zeros(0, np.intp))
        self._as_of = 0
        self._ranks: Mapping[str, int] = {}
        self.refresh()

    def refresh(self) -> FleetArrays:
        """The arrays, brought up to the fleet as it now is."""
        changes = self.fleet.changes_since(self._as_of)
        if changes.has_removed_nodes:
            self._write([name for name in self.arrays.rows if self.fleet.node(name) is None])
        self._write(sorted(changes.names))
        self._as_of = changes.now
        return self.arrays

    def rank_nodes(self, names: Sequence[str]) -> None:
        """From now on nodes are in this order, and not in that of their names."""
        self._ranks = {name: rank for rank, name in enumerate(names)}
        self.arrays.rank_nodes(self._ranks)

    def rows(self, names: list[str]) -> npt.NDArray[np.intp]:
        """The row of each of these nodes, -1 for one that is not here; to be read only.

        From one pod to the next the same nodes are asked about, in between about the one that is chosen.
        """
        if len(names) == 1:
            return self._rows_of(names)
        moves, asked, found = self._asked
        if moves != self.arrays.moves or asked != names:
            found = self._rows_of(names)
            self._asked = self.arrays.moves, names.copy(), found
        return found

    def _rows_of(self, names: list[str]) -> npt.NDArray[np.intp]:
        known = self.arrays.rows
        try:
            return np.array(list(map(known.__getitem__, names)), np.intp)
        except KeyError:
            return np.array([known.get(name, -1) for name in names], np.intp)

    def places(self, uuids: Iterable[str]) -> Iterator[tuple[int, int]]:
        """(row, place among the node's GPUs) of each of these devices that is here."""
        for uuid in uuids:
            for name in self._nodes_with.get(uuid, ()):
                yield self.arrays.rows[name], self._uuids[name].index(uuid)

    def lists(self, uuid: str) -> bool:
        """Whether a device is here."""
        return uuid in self._nodes_with

    def _write(self, names: Iterable[str]) -> None:
        for name in names:
            node = self.fleet.node(name)
            self._forget(name)
            if node is None:
                self.arrays.remove_node(name)
                self._links.pop(name, None)
                self._one_resource.pop(name, None)
            else:
                self._put(node)

    def _put(self, node: NodeState) -> None:
        row = self.arrays.put_node(self.facts(node), self._ranks.get(node.name, 0))
        if missing := len(self.arrays.live) - len(self.has_known_kubelet):
            self.has_known_kubelet = np.pad(self.has_known_kubelet, (0, missing))
            self.has_pools = np.pad(self.has_pools, (0, missing))
            self.has_restricted_shares = np.pad(self.has_restricted_shares, (0, missing))
            self.lists_mig_and_gpus_as_one_resource = np.pad(self.lists_mig_and_gpus_as_one_resource, (0, missing))
        self.has_known_kubelet[row] = node.kubelet is not None
        self.has_pools[row] = bool(node.inventory.pools)
        self.has_restricted_shares[row] = any(state.usage.alike for state in node.devices)
        self.lists_mig_and_gpus_as_one_resource[row] = self._lists_mig_and_gpus_as_one_resource(node)
        self._uuids[node.name] = tuple(state.device.uuid for state in node.devices)
        for uuid in self._uuids[node.name]:
            self._nodes_with[uuid].add(node.name)

    def facts(self, node: NodeState) -> FleetNodeFacts:
        """What a node's row is made of."""
        kinds = tuple(sorted(_kinds(node, self.fleet.ledger.grants(node.name)).items()))
        return node_facts(node, self.fleet.free_resources(node.name), kinds, self._links_of(node))

    def _links_of(self, node: NodeState) -> Topology | None:
        """They change with the inventory, and only what is taken changes often."""
        inventory, links = self._links.get(node.name, (None, None))
        if inventory is not node.inventory:
            links = links_of(node)
            self._links[node.name] = node.inventory, links
        return links

    def _lists_mig_and_gpus_as_one_resource(self, node: NodeState) -> bool:
        inventory, is_one_resource = self._one_resource.get(node.name, (None, False))
        if inventory is not node.inventory:
            is_one_resource = lists_mig_and_gpus_as_one_resource(node)
            self._one_resource[node.name] = node.inventory, is_one_resource
        return is_one_resource

    def _forget(self, name: str) -> None:
        for uuid in self._uuids.pop(name, ()):
            self._nodes_with[uuid].discard(name)
            if not self._nodes_with[uuid]:
                del self._nodes_with[uuid]


def _kinds(node: NodeState, grants: Iterable[Grant]) -> "Counter[int]":
    """How many pods of each kind the node has (see `Take.kind`)."""
    memory = {state.device.uuid: state.device.memory_mib for state in node.devices}
    return Counter(_pod_kind(grant, memory) for grant in grants)


def _pod_kind(grant: Grant, memory: dict[str, int]) -> int:
    shares = {share.uuid: share for part in grant.containers for share in part.shares}
    if len(shares) != 1:
        return len(shares)
    ((uuid, share),) = shares.items()
    return int(share.cores_percent >= WHOLE_PERCENT or share.memory_mib >= memory.get(uuid, 0))


def node_facts(
    node: NodeState,
    free: FreeResources = NO_LIMIT,
    kinds: tuple[tuple[int, int], ...] = (),
    links: Topology | None = None,
) -> FleetNodeFacts:
    """A live node with what is left of it; without a word on that, only its GPUs are limited."""
    return FleetNodeFacts(
        node.name,
        tuple(map(gpu_facts, node.devices)),
        _bounded(free.cpu_free_milli),
        _bounded(free.memory_free_mib),
        _bounded(free.pods_free),
        kinds,
        links,
    )


def has_mixed_devices(node: NodeState) -> bool:
    """Whether some of a node's devices are MIG devices, and others are not."""
    return len({state.device.is_mig for state in node.devices}) > 1


def lists_mig_and_gpus_as_one_resource(node: NodeState) -> bool:
    """Whether a node lists MIG devices and whole GPUs as one resource. Of GPUs that are cut on demand that can be
    the name of a profile: who asks for several by another name gets none of them."""
    mig = [state.device for state in node.devices if state.device.is_mig]
    if not mig:
        return False
    listed, has_partitioned = {d.resource for d in mig if not d.mig_kind}, any(d.mig_kind for d in mig)
    others = (state.device.resource for state in node.devices if not state.device.is_mig)
    return any(name in listed or (has_partitioned and name.startswith(MIG_PREFIX)) for name in others)


def links_of(node: NodeState) -> Topology | None:
    """How a node's devices are connected, None where that is not known."""
    devices = [state.device for state in node.devices]
    return topology(devices) if any(device.links for device in devices) else None


def gpu_facts(whole: DeviceState) -> GpuFacts:
    """One device, and what is taken of it; of one that is divided its next part."""
    state = whole if whole.device.replicas == 1 else whole.as_replica(whole.parts > 0)
    device, used = state.device, state.usage
    facts = GpuFacts(
        device.model,
        _bounded(device.memory_mib),
        _bounded(device.slots),
        _bounded(device.cores_percent),
        device.mode,
        device.enforcement,
        state.closed,
        _bounded(used.memory_mib),
        _bounded(used.cores_percent),
        _bounded(used.slots),
        _bounded(min(used.exclusive, used.slots, 1000)),
        device.resource,
        whole.device.replicas,
        device.one_each,
        _bounded(min(whole.parts, MAX_SLOTS)),
        gpu_part=device.gpu_part if device.parent else 1.0,
    )
    if not device.mig_kind:
        return facts
    held = taken_mask(device, ())
    return msgspec.structs.replace(facts, mig_kind=device.mig_kind, mig_mask=whole.mig_mask, mig_held=held)


def _bounded(amount: int) -> int:
    """What nodes say of themselves may be anything."""
    return max(0, min(amount, MANY))
