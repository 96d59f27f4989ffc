"""Operands that were let in on a node, and have no pod there: since when, and why."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from purser.core.taints import KEEPING_AWAY, PodToleration, Taint
from purser.core.times import parsed
from purser.operator.model import UNTOLERATED, NodeView, OperandOnNode, Rendered, Standing, Template
from purser.operator.names import DRIVER_CONFIG_LABEL, LET_IN_ANNOTATION, OPERAND_LABEL, TEMPLATE_LABEL
from purser.operator.order import Operand

PATIENCE_S = 600.0
"""What does not get ready, or gets no pod, for longer counts as failing."""
NO_POD = "it has no pod yet; if that lasts, its pods find no room there, or the DaemonSet controller does not run"
NO_CONFIG = (
    "its driver waits for a ConfigMap that is not in the operator's namespace: driver.kernelModuleConfig, repoConfig or"
    " certConfig names it"
)
STILL_GOING = "its old pod has not gone yet"
REASONS = ("NoPod", UNTOLERATED)

_PASSING = "node.kubernetes.io/"
"""Taints that say how a node is: they pass, DaemonSets tolerate most, and the node's Ready condition tells the rest."""


class Manifests(msgspec.Struct, frozen=True):
    """What of the rendered DaemonSets tells how an operand is on a node."""

    templates: dict[str, Template]
    """By name."""
    pods: dict[str, list[Mapping[str, Any]]]
    """Pod specs by operand."""
    tolerations: list[Sequence[Mapping[str, Any]]]
    """Of all pods, each once: as a rule they all have the same."""

    def template_of(self, daemon_set: str) -> Template:
        """An empty one where the DaemonSet is not rendered any more."""
        return self.templates.get(daemon_set, Template())


def manifests_of(rendered: Iterable[Rendered]) -> Manifests:
    """Of everything that is rendered."""
    found = Manifests({}, {}, [])
    for each in rendered:
        if each.object["kind"] == "DaemonSet":
            metadata = each.object["metadata"]
            labels = metadata.get("labels") or {}
            found.templates[metadata["name"]] = Template(
                labels.get(TEMPLATE_LABEL, ""), labels.get(DRIVER_CONFIG_LABEL, "")
            )
            pod = each.object["spec"]["template"]["spec"]
            found.pods.setdefault(labels.get(OPERAND_LABEL, ""), []).append(pod)
            if (tolerations := pod.get("tolerations", ())) not in found.tolerations:
                found.tolerations.append(tolerations)
    return found


def without_pod(standing: Standing, operand: Operand, manifests: Manifests, now: float) -> OperandOnNode:
    """How an operand is that was let in and has no pod."""
    taint = untolerated(standing.node, manifests.pods.get(operand.value, ()))
    if taint is not None:
        message = f"its pods do not tolerate {_to_be_mended(taint)}"
        return OperandOnNode(operand=operand, state="failing", reason=UNTOLERATED, message=message)
    still = any(pod.operand == operand for pod in standing.pods)
    awaits = operand is Operand.DRIVER and standing.pool is not None and not standing.driver_template.hash
    message = NO_CONFIG if awaits else NO_POD
    return OperandOnNode(
        operand=operand,
        state="failing" if now >= fails_at(standing.node, now) else "progressing",
        reason="NoPod",
        message=STILL_GOING if still else message,
    )


def fails_at(node: NodeView, now: float) -> float:
    """When operands without a pod count as failing on a node."""
    since = parsed(node.annotations.get(LET_IN_ANNOTATION))
    return (now if since is None else since) + PATIENCE_S


def untolerated(node: NodeView, pods: Iterable[Mapping[str, Any]]) -> Taint | None:
    """A taint that keeps the pods away that select the node."""
    selecting = (pod for pod in pods if pod.get("nodeSelector", {}).items() <= node.labels.items())
    return _keeping_away(node, [pod.get("tolerations", ()) for pod in selecting])


def barred(node: NodeView, manifests: Manifests) -> str:
    """Why operands that leave the node would not come back to it, in one sentence; empty: they would."""
    taint = _keeping_away(node, manifests.tolerations)
    return f"new pods of operands would not tolerate {_to_be_mended(taint)}" if taint is not None else ""


def _keeping_away(node: NodeView, tolerations: Iterable[Iterable[Mapping[str, Any]]]) -> Taint | None:
    """A taint of the node that one of these sets of tolerations does not tolerate."""
    lasting = [each for each in node.taints if each.effect in KEEPING_AWAY and not each.key.startswith(_PASSING)]
    return next((taint for taint in lasting for each in tolerations if not _is_tolerated(taint, each)), None)


def _to_be_mended(taint: Taint) -> str:
    return f"the node's taint {taint}: add it to spec.daemonsets.tolerations, or remove the taint"


def _is_tolerated(taint: Taint, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(_toleration(each).tolerates(taint) for each in tolerations)


def _toleration(given: Mapping[str, Any]) -> PodToleration:
    return PodToleration(
        given.get("key", ""), given.get("operator", ""), given.get("value", ""), given.get("effect", "")
    )
