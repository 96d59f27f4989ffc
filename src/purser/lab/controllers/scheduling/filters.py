"""kube-scheduler's filters that people use most, with its own words for why a node does not fit."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from purser.lab.controllers.scheduling.nodes import NodeInfo
from purser.lab.controllers.scheduling.requests import Amounts, Raw, pod_requests


@dataclass(frozen=True)
class NodeMismatch:
    """Why a node does not fit."""

    reasons: tuple[str, ...]
    is_resolvable: bool
    """Whether evicting pods could help."""


@dataclass(frozen=True)
class PodInfo:
    """What the filters need of a pod, computed once per attempt."""

    pod: Raw
    requests: Amounts

    @classmethod
    def of(cls, pod: Raw, ignored: Collection[str] = ()) -> "PodInfo":
        """The view of a pod, without the resources that only extenders count."""
        return cls(pod, {name: amount for name, amount in pod_requests(pod).items() if name not in ignored})

    @property
    def tolerations(self) -> list[dict[str, Any]]:
        """The pod's tolerations."""
        return list(self.pod["spec"].get("tolerations") or ())


def check(view: PodInfo, node: NodeInfo) -> NodeMismatch | None:
    """The first filter that says no, None when all say yes; kube-scheduler runs them in this order."""
    for plugin in _FILTERS:
        if (unfit := plugin(view, node)) is not None:
            return unfit
    return None


def fit_error(node_count: int, unfits: Iterable[NodeMismatch]) -> str:
    """The message of a FailedScheduling event: every reason with the number of nodes it holds on."""
    counts = Counter(reason for unfit in unfits for reason in unfit.reasons)
    reasons = sorted(f"{count} {reason}" for reason, count in counts.items())
    if not reasons:
        return f"0/{node_count} nodes are available."
    return f"0/{node_count} nodes are available: {', '.join(reasons)}."


def _unschedulable(view: PodInfo, node: NodeInfo) -> NodeMismatch | None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if not node.is_unschedulable or _is_tolerated(taint, view.tolerations):
        return None
    return NodeMismatch(("node(s) were unschedulable",), False)


def _node_name(view: PodInfo, node: NodeInfo) -> NodeMismatch | None:
    wanted = view.pod["spec"].get("nodeName")
    if not wanted or wanted == node.name:
        return None
    return NodeMismatch(("node(s) didn't match the requested node name",), False)


def _taints(view: PodInfo, node: NodeInfo) -> NodeMismatch | None:
    for taint in node.taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _is_tolerated(taint, view.tolerations):
            text = f"{{{taint.get('key', '')}: {taint.get('value', '')}}}"
            return NodeMismatch((f"node(s) had untolerated taint {text}",), False)
    return None


def _is_tolerated(taint: dict[str, str], tolerations: Iterable[dict[str, Any]]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: dict[str, Any], taint: dict[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _affinity(view: PodInfo, node: NodeInfo) -> NodeMismatch | None:
    spec = view.pod["spec"]
    labels = node.labels
    selector = spec.get("nodeSelector") or {}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    fits = all(labels.get(key) == value for key, value in selector.items())
    if fits and required is not None:
        fits = any(_matches_term(term, node, labels) for term in required.get("nodeSelectorTerms") or ())
    return None if fits else NodeMismatch(("node(s) didn't match Pod's node affinity/selector",), False)


def _matches_term(term: Raw, node: NodeInfo, labels: dict[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # An empty term matches nothing.
    by_field = {"metadata.name": node.name}
    return all(_matches(e, labels) for e in expressions) and all(_matches(e, by_field) for e in fields)


def _matches(expression: Raw, labels: dict[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    value = labels.get(key)
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compare(operator, value, values)
    return False


def _compare(operator: str, value: str | None, values: list[str]) -> bool:
    try:
        left, right = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def _resources(view: PodInfo, node: NodeInfo) -> NodeMismatch | None:
    reasons = []
    for name, wanted in view.requests.items():
        if wanted and wanted > node.allocatable.get(name, 0) - node.used.get(name, 0):
            reasons.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    if not reasons:
        return None
    is_resolvable = all(wanted <= node.allocatable.get(name, 0) for name, wanted in view.requests.items())
    return NodeMismatch(tuple(reasons), is_resolvable)


_FILTERS: tuple[Callable[[PodInfo, NodeInfo], NodeMismatch | None], ...] = (
    _unschedulable,
    _node_name,
    _taints,
    _affinity,
    _resources,
)
