"""kube-scheduler's filters that look at other pods in the same place: PodTopologySpread and InterPodAffinity.

A place is all nodes with the same value of a label. What concerns one pod is counted once, and then looked up for each
node. Selectors that cannot be read match no pod.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from purser.core.explaining.filters import FilteredNode, FilterRejection, PodNeeds
from purser.core.explaining.reasons import FilterReason
from purser.core.kubernetes.affinity import NO_AFFINITY, PodTerm, RequiredAffinity, SpreadConstraint
from purser.core.kubernetes.selectors import Selector, SelectorError, of_object
from purser.core.kubernetes.taints import untolerated_taints

Labels = Mapping[str, str]
Domain = tuple[str, str]
"""A place: the label and its value."""


class Neighbour(msgspec.Struct, frozen=True):
    """What is read of a pod, be it one on a node or the one that is to be placed."""

    namespace: str
    labels: Labels = {}
    node: str = ""
    affinity: RequiredAffinity = NO_AFFINITY
    is_leaving: bool = False
    """It was asked to go: it does not count for spreading."""


class Neighbours:
    """What other pods mean for one pod on each node."""

    def __init__(
        self,
        pod: Neighbour,
        needs: PodNeeds,
        spread: Iterable[SpreadConstraint],
        nodes: Mapping[str, FilteredNode],
        others: Iterable[Neighbour],
        namespaces: Mapping[str, Labels],
    ) -> None:
        """``others`` are on nodes; ``namespaces``: labels by name."""
        self._pod, self._needs, self._nodes = pod, needs, nodes
        self._namespaces = namespaces
        self._spread = tuple(spread)
        there = [each for each in others if each.node in nodes]
        self._apart = self._excluded_domains(there)
        self._beside = self._required_domains(there)
        self._counts = [self._count_pods(each, there) for each in self._spread]

    def rejection(self, node: FilteredNode) -> FilterRejection | None:
        """Why a node does not take the pod; None where it does."""
        for constraint, (counts, least, own) in zip(self._spread, self._counts, strict=True):
            value = node.labels.get(constraint.topology_key)
            if value is None or counts.get(value, 0) + own - least > constraint.max_skew:
                return FilterRejection(FilterReason.SPREAD, constraint.topology_key)
        for key, _ in self._apart & self._domains(node):
            return FilterRejection(FilterReason.POD_ANTI_AFFINITY, key)
        if self._beside is not None:
            for term, domains in zip(self._pod.affinity.beside, self._beside, strict=True):
                if (term.topology_key, node.labels.get(term.topology_key, "")) not in domains:
                    return FilterRejection(FilterReason.POD_AFFINITY, term.topology_key)
        return None

    def _domains(self, node: FilteredNode) -> frozenset[Domain]:
        return frozenset(node.labels.items())

    def _domain(self, term: PodTerm, node: str) -> set[Domain]:
        value = self._nodes[node].labels.get(term.topology_key)
        return set() if value is None else {(term.topology_key, value)}

    def _excluded_domains(self, others: Iterable[Neighbour]) -> frozenset[Domain]:
        """Where the pod must not be: by its own anti-affinity, and by that of others."""
        found: set[Domain] = set()
        own_anti_affinity = self._pod.affinity.apart
        for each in others:
            for term in own_anti_affinity:
                if self._matches(term, self._pod.namespace, each):
                    found |= self._domain(term, each.node)
            for term in each.affinity.apart:
                if self._matches(term, each.namespace, self._pod):
                    found |= self._domain(term, each.node)
        return frozenset(found)

    def _required_domains(self, others: Iterable[Neighbour]) -> list[set[Domain]] | None:
        """For each term of its affinity where pods are that meet all terms; None: it need not be beside any."""
        terms = self._pod.affinity.beside
        if not terms:
            return None
        found: list[set[Domain]] = [set() for _ in terms]
        for each in others:
            if all(self._matches(term, self._pod.namespace, each) for term in terms):
                for place, term in enumerate(terms):
                    found[place] |= self._domain(term, each.node)
        if not any(found) and all(self._matches(term, self._pod.namespace, self._pod) for term in terms):
            # The first of a group that wants to be together may be anywhere that has the labels.
            keys = [term.topology_key for term in terms]
            labels = [node.labels for node in self._nodes.values()]
            return [{(key, each[key]) for each in labels if key in each} for key in keys]
        return found

    def _matches(self, term: PodTerm, own_namespace: str, other: Neighbour) -> bool:
        try:
            selector = term.selector()
            return (
                selector is not None
                and self._is_in_namespace(term, own_namespace, other.namespace)
                and selector.matches(other.labels)
            )
        except (SelectorError, AttributeError, TypeError):
            return False

    def _is_in_namespace(self, term: PodTerm, own: str, namespace: str) -> bool:
        """Raises `SelectorError`."""
        if term.namespace_selector is None and not term.namespaces:
            return namespace == own
        if namespace in term.namespaces:
            return True
        if term.namespace_selector is None:
            return False
        return of_object(term.namespace_selector).matches(self._namespaces.get(namespace, {}))

    def _count_pods(
        self, constraint: SpreadConstraint, others: Iterable[Neighbour]
    ) -> tuple[Mapping[str, int], int, int]:
        """How many pods there are in each place, in the place that has fewest, and whether the pod is one of them."""
        key = constraint.topology_key
        counted = {name: node.labels[key] for name, node in self._nodes.items() if self._is_counted(constraint, node)}
        selector = self._selector(constraint)
        counts = Counter(dict.fromkeys(counted.values(), 0))
        counts.update(
            counted[each.node]
            for each in others
            if each.node in counted
            and each.namespace == self._pod.namespace
            and not each.is_leaving
            and selector is not None
            and selector.matches(each.labels)
        )
        enough = len(counts) >= constraint.min_domains
        least = min(counts.values(), default=0) if enough else 0
        return counts, least, int(selector is not None and selector.matches(self._pod.labels))

    def _is_counted(self, constraint: SpreadConstraint, node: FilteredNode) -> bool:
        if any(each.topology_key not in node.labels for each in self._spread):
            return False
        if constraint.node_affinity_policy != "Ignore":
            selected = all(node.labels.get(key) == value for key, value in self._needs.node_selector.items())
            terms = self._needs.affinity.nodes
            if not selected or (terms is not None and not terms.matches(node.name, node.labels)):
                return False
        return constraint.node_taints_policy != "Honor" or not untolerated_taints(node.taints, self._needs.tolerations)

    def _selector(self, constraint: SpreadConstraint) -> Selector | None:
        try:
            return constraint.selector(self._pod.labels)
        except (SelectorError, AttributeError, TypeError):
            return None
