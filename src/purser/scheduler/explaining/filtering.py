"""kube-scheduler's own filters, asked of the nodes and pods of one cluster as they are, or would be after a change."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain, islice

import msgspec

from purser.adapters.objects import ClusterObjects
from purser.adapters.pods import pod_spec
from purser.core.device.resources import is_gpu_resource
from purser.core.dialects import is_device_word
from purser.core.explaining.filters import (
    Amounts,
    FilteredNode,
    FilterRejection,
    PodNeeds,
    all_rejections,
    amounts_of,
    first_rejection,
    requested_amounts,
)
from purser.core.explaining.neighbours import Neighbours
from purser.core.explaining.reasons import FilterReason
from purser.core.kubernetes.affinity import NodeTerms, read_affinity, read_spread
from purser.core.kubernetes.quantities import QuantityError
from purser.core.vendors.catalogue import FAMILIES, FAMILY_NAMES
from purser.kube.objects import Node, Pod
from purser.scheduler.explaining.claims import Claims
from purser.scheduler.explaining.device_claims import DeviceClaims
from purser.scheduler.explaining.placed_pods import PlacedPods, host_ports

_SERVED = frozenset(FAMILY_NAMES)


class KnownFilters:
    """What the filters of one cluster say."""

    def __init__(
        self, objects: ClusterObjects, placed: PlacedPods, note: Callable[[str], None], *, has_fleet: bool
    ) -> None:
        """``placed``: the pods on nodes, which come and go; ``note`` is told what cannot be read. ``has_fleet``:
        whether any node's GPUs are known, so that a scheduler that knows more than amounts is there."""
        self._has_fleet = has_fleet
        self._placed, self._note = placed, note
        self._claims = Claims(objects)
        self._device_claims = DeviceClaims(objects)
        self._namespaces = {each.metadata.name: each.metadata.labels for each in objects.namespaces}
        self._nodes = {node.metadata.name: self._facts(node) for node in objects.nodes}
        self._version = 0
        """Of the nodes."""
        self._known_neighbours: tuple[object, Neighbours | None] | None = None

    @property
    def nodes(self) -> Mapping[str, FilteredNode]:
        """By name."""
        return self._nodes

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        """Nodes as they are from now on."""
        self._version += 1
        for node in nodes:
            self._nodes[node.metadata.name] = self._facts(node)

    def objection(self, pod: Pod) -> str:
        """What keeps a pod from all nodes, whatever they have, in a sentence without its end; empty: nothing."""
        if missing := self._claims.missing(pod):
            return f"PersistentVolumeClaim {missing} does not exist"
        if unbound := self._claims.unbound(pod):
            one = len(unbound) == 1
            name = f"PersistentVolumeClaim{'' if one else 's'} {', '.join(unbound)}"
            return f"{name} {'is' if one else 'are'} not bound, and kube-scheduler does not place the pod before that"
        return self._device_claims.objection(pod)

    def note(self, pod: Pod) -> str:
        """What keeps a pod from nodes, perhaps, and is not looked at; empty: nothing."""
        return self._device_claims.note(pod)

    def rejections(self, pod: Pod) -> dict[str, FilterRejection]:
        """By node, of those that do not take a pod. Raises `QuantityError`, `purser.core.decoding.UnreadableError`."""
        needs, neighbours = self.needs(pod), self._neighbours(pod)
        devices = tuple(self._device_claims.availability(pod))
        found: dict[str, FilterRejection] = {}
        for name, node in self._nodes.items():
            ports = self._placed.ports_on(name) if needs.ports else ()
            rejection = first_rejection(needs, node, self._placed.used(name), ports)
            if rejection is None and neighbours is not None:
                rejection = neighbours.rejection(node)
            if rejection is None and devices:
                rejection = _device_rejection(devices, node)
            if rejection is not None:
                found[name] = rejection
        return found

    def later_rejections(self, pod: Pod, names: Iterable[str]) -> Iterator[tuple[str, FilterRejection]]:
        """All but the first of each of these nodes. Raises as `rejections`."""
        needs, neighbours = self.needs(pod), self._neighbours(pod)
        devices = tuple(self._device_claims.availability(pod))
        for name in names:
            node, ports = self._nodes[name], self._placed.ports_on(name) if needs.ports else ()
            found = all_rejections(needs, node, self._placed.used(name), ports)
            others = (None if neighbours is None else neighbours.rejection(node), _device_rejection(devices, node))
            for each in islice(filter(None, chain(found, others)), 1, None):
                yield name, each

    def fits_without_pods(self, pod: Pod, node: str, gone: Collection[str]) -> bool:
        """Whether a node takes a pod if these pods, by uid, were gone; for other pods in the same place they still
        count. Raises as `rejections`."""
        needs, facts, neighbours = self.needs(pod), self._nodes[node], self._neighbours(pod)
        ports = self._placed.ports_on(node, gone) if needs.ports else ()
        if first_rejection(needs, facts, self._placed.used_without(node, gone), ports) is not None:
            return False
        if neighbours is not None and neighbours.rejection(facts) is not None:
            return False
        return _device_rejection(tuple(self._device_claims.availability(pod)), facts) is None

    def needs(self, pod: Pod) -> PodNeeds:
        """What filters read of a pod. Raises as `rejections`."""
        spec = pod.spec
        amounts = requested_amounts(pod_spec(pod))
        counted = {name: amount for name, amount in amounts.items() if self._is_counted(name)}
        affinity = read_affinity(spec.affinity)
        return PodNeeds(
            counted, spec.node_selector, spec.tolerations, affinity, host_ports(pod), tuple(self._claims.volumes(pod))
        )

    def _neighbours(self, pod: Pod) -> Neighbours | None:
        """What other pods mean for a pod; None: nothing."""
        spec = pod.spec
        constraints = (pod.metadata.labels, spec.affinity, spec.topology_spread_constraints, spec.node_selector)
        key = (self._version, self._placed.version, pod.metadata.namespace, *constraints, spec.tolerations)
        if self._known_neighbours is None or self._known_neighbours[0] != key:
            self._known_neighbours = (key, self._make_neighbours(pod))
        return self._known_neighbours[1]

    def _make_neighbours(self, pod: Pod) -> Neighbours | None:
        affinity = read_affinity(pod.spec.affinity)
        spread = read_spread(pod.spec.topology_spread_constraints)
        pods = self._placed
        depends_on_other_pods = bool(affinity.beside or affinity.apart or spread)
        if not (depends_on_other_pods or pods.kept_apart):
            return None
        others = pods.neighbours(pods.uids if depends_on_other_pods else pods.kept_apart)
        own = msgspec.structs.replace(pods.neighbour(pod), affinity=affinity)
        return Neighbours(own, self.needs(pod), spread, self._nodes, others, self._namespaces)

    def _is_counted(self, resource: str) -> bool:
        """Whether kube-scheduler counts a resource by itself: not words that only Purser knows, nor other vendors'.
        Where nobody knows GPUs, it counts all, and what no node lists cannot be had: nor can
        ``nvidia.com/gpu`` where kubelets do not list it yet, or another name of device plugins."""
        if not self._has_fleet or is_gpu_resource(resource):
            return True
        return resource in self._listed or not is_device_word(resource, _SERVED)

    @cached_property
    def _listed(self) -> frozenset[str]:
        vendors = {word for family in FAMILIES for word in family.resources}
        return frozenset(name for node in self._nodes.values() for name in node.allocatable) - vendors

    def _facts(self, node: Node) -> FilteredNode:
        try:
            allocatable: Amounts = amounts_of(node.status.allocatable)
        except QuantityError as error:
            self._note(f"Node {node.metadata.name}: its allocatable resources cannot be read: {error}")
            allocatable = {}
        return FilteredNode(
            node.metadata.name, node.metadata.labels, node.spec.taints, node.spec.unschedulable, allocatable
        )


def _device_rejection(claims: Iterable[tuple[str, NodeTerms]], node: FilteredNode) -> FilterRejection | None:
    away = (name for name, where in claims if not where.matches(node.name, node.labels))
    name = next(away, None)
    return None if name is None else FilterRejection(FilterReason.RESOURCE_CLAIM, name)
