"""Affinity and spreading of pods, as the API has them and as far as they are required: nodes' labels, and other pods in
the same place."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from purser.core.decoding import brief, check_nesting, convert_value, without_nulls
from purser.core.kubernetes.selectors import Requirement, Selector, of_object

_MAX_WORDS = 200
"""Characters of what a pod wants of nodes, in a message."""

_INTEGER_CHARACTERS = frozenset("0123456789+-")


class _CamelCaseStruct(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the API's affinity."""


class NodeTerm(_CamelCaseStruct, frozen=True):
    """Conditions on one node, all of which have to hold."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()
    """``metadata.name`` is the only field."""

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node meets them; a term without conditions matches none."""
        if not (self.match_expressions or self.match_fields):
            return False
        fields = {"metadata.name": name}
        return all(_is_met(each, labels) for each in self.match_expressions) and all(
            _is_met(each, fields) for each in self.match_fields
        )


class NodeTerms(_CamelCaseStruct, frozen=True):
    """Terms of which one has to hold."""

    node_selector_terms: tuple[NodeTerm, ...] = ()

    def words(self) -> str:
        """``zone in (a,b) and gpu exists``, or another term: one line of bounded length."""
        return _terms_text(self)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node meets one of them."""
        return any(term.matches(name, labels) for term in self.node_selector_terms)


class _NodeAffinity(_CamelCaseStruct, frozen=True):
    required: NodeTerms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodTerm(_CamelCaseStruct, frozen=True):
    """Other pods, and the label of nodes that says what is one place."""

    label_selector: dict[str, Any] | None = None
    """None: no pod."""
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: dict[str, Any] | None = None
    """None: the namespaces that are listed, else the pod's own; without conditions: all."""

    def selector(self) -> Selector | None:
        """Of pods' labels; None matches no pod. Raises `purser.core.kubernetes.selectors.SelectorError`."""
        return None if self.label_selector is None else of_object(self.label_selector)


class _PodAffinity(_CamelCaseStruct, frozen=True):
    required: tuple[PodTerm, ...] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")


class RequiredAffinity(_CamelCaseStruct, frozen=True):
    """What of ``spec.affinity`` keeps a pod from nodes."""

    node_affinity: _NodeAffinity = _NodeAffinity()
    pod_affinity: _PodAffinity = _PodAffinity()
    pod_anti_affinity: _PodAffinity = _PodAffinity()

    @property
    def nodes(self) -> NodeTerms | None:
        """None: any node."""
        return self.node_affinity.required

    @property
    def beside(self) -> tuple[PodTerm, ...]:
        """Pods that have to be in the same place, of each term one."""
        return self.pod_affinity.required

    @property
    def apart(self) -> tuple[PodTerm, ...]:
        """Pods that must not be in the same place."""
        return self.pod_anti_affinity.required


NO_AFFINITY = RequiredAffinity()


def read_affinity(value: Any) -> RequiredAffinity:
    """``spec.affinity`` as it came. Raises `purser.core.decoding.UnreadableError`."""
    if not value:
        return NO_AFFINITY
    check_nesting(value, "affinity")
    return convert_value(without_nulls(value), RequiredAffinity, "affinity")


@lru_cache(maxsize=64)  # each of thousands of nodes says the same
def _terms_text(terms: NodeTerms) -> str:
    each_term = ([*each.match_expressions, *each.match_fields] for each in terms.node_selector_terms)
    return brief(" or ".join(" and ".join(map(_words, term)) for term in each_term if term), _MAX_WORDS) or "nothing"


def _words(condition: Requirement) -> str:
    values = ",".join(condition.values)
    match condition.operator:
        case "Exists":
            return f"{condition.key} exists"
        case "DoesNotExist":
            return f"{condition.key} does not exist"
        case "Gt" | "Lt":
            return f"{condition.key} {'>' if condition.operator == 'Gt' else '<'} {values}"
        case _:
            return f"{condition.key} {'not in' if condition.operator == 'NotIn' else 'in'} ({values})"


def _is_met(condition: Requirement, labels: Mapping[str, str]) -> bool:
    """A condition that compares with something else than one integer holds nowhere."""
    if condition.operator in ("Gt", "Lt"):
        bound = condition.values[0] if len(condition.values) == 1 else ""
        if not bound or not _INTEGER_CHARACTERS.issuperset(bound) or not bound.lstrip("+-").isdigit():
            return False
    return condition.matches(labels)


class SpreadConstraint(_CamelCaseStruct, frozen=True):
    """One of ``spec.topologySpreadConstraints``."""

    max_skew: Annotated[int, msgspec.Meta(ge=-(1 << 31), le=1 << 31)] = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: dict[str, Any] | None = None
    """None: no pod."""
    min_domains: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] = 1
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()

    def selector(self, labels: Mapping[str, str]) -> Selector | None:
        """Of pods' labels, for a pod with these; None matches no pod. Raises
        `purser.core.kubernetes.selectors.SelectorError`."""
        if self.label_selector is None:
            return None
        equal = [Requirement(key, "In", (labels[key],)) for key in self.match_label_keys if key in labels]
        return Selector((*of_object(self.label_selector).requirements, *equal))


def read_spread(value: Any) -> tuple[SpreadConstraint, ...]:
    """Those of ``spec.topologySpreadConstraints`` that keep a pod from nodes, as they came. Raises
    `purser.core.decoding.UnreadableError`."""
    if not value:
        return ()
    check_nesting(value, "topologySpreadConstraints")
    found = convert_value(without_nulls(value), tuple[SpreadConstraint, ...], "topologySpreadConstraints")
    return tuple(each for each in found if each.when_unsatisfiable != "ScheduleAnyway")
