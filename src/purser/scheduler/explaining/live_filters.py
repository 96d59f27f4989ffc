"""kube-scheduler's filters, asked of the nodes in the running scheduler's cache: those that read nothing but the node,
and what of its CPU, memory and number of pods is free. What only kube-scheduler knows, it says itself: ports, volumes,
other pods, claims, and other resources.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from purser.adapters.pods import pod_spec
from purser.core.explaining.filters import (
    PODS,
    Amounts,
    FilteredNode,
    FilterRejection,
    PodNeeds,
    all_rejections,
    first_rejection,
    requested_amounts,
)
from purser.core.fleet import FreeResources
from purser.core.kubernetes.affinity import read_affinity
from purser.core.kubernetes.quantities import MIB
from purser.kube.objects import Pod
from purser.scheduler.cache import ClusterCache

_COUNTED: Final = ("cpu", "memory", PODS)
_NO_AMOUNTS: Amounts = {}


class LiveFilters:
    """Of some nodes, as they are when the first pod is asked about."""

    def __init__(self, cache: ClusterCache, names: Sequence[str]) -> None:
        self._cache, self._names = cache, names
        self._nodes: list[FilteredNode] | None = None
        self._last: tuple[PodNeeds, Mapping[str, FilterRejection]] | None = None
        """Most changes that are tried change nothing that filters read."""

    def rejections(self, pod: Pod) -> Mapping[str, FilterRejection]:
        """By node, of those that do not take a pod. Raises `purser.core.kubernetes.quantities.QuantityError`,
        `purser.core.decoding.UnreadableError`."""
        needs = _needs(pod)
        if self._last is None or self._last[0] != needs:
            found = ((node.name, first_rejection(needs, node, _NO_AMOUNTS)) for node in self._known_nodes())
            self._last = needs, {name: each for name, each in found if each is not None}
        return self._last[1]

    def later_rejections(self, pod: Pod, names: Collection[str]) -> Iterator[tuple[str, FilterRejection]]:
        """All but the first of each of these nodes. Raises as `rejections`."""
        needs = _needs(pod)
        for node in self._known_nodes():
            if node.name in names:
                for each in islice(all_rejections(needs, node, _NO_AMOUNTS), 1, None):
                    yield node.name, each

    def _known_nodes(self) -> list[FilteredNode]:
        if self._nodes is None:
            found = ((self._cache.node(name), self._cache.fleet.free_resources(name)) for name in self._names)
            self._nodes = [
                FilteredNode(
                    node.metadata.name, node.metadata.labels, node.spec.taints, node.spec.unschedulable, _amounts(free)
                )
                for node, free in found
                if node is not None
            ]
        return self._nodes


def _needs(pod: Pod) -> PodNeeds:
    amounts = requested_amounts(pod_spec(pod))
    counted = {name: amounts[name] for name in _COUNTED if name in amounts}
    return PodNeeds(counted, pod.spec.node_selector, pod.spec.tolerations, read_affinity(pod.spec.affinity))


def _amounts(free: FreeResources) -> dict[str, int]:
    return {"cpu": free.cpu_free_milli, "memory": free.memory_free_mib * MIB, PODS: free.pods_free}
