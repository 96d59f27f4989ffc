"""What MIG changes write beside a node's cordon."""

import msgspec

from purser.operator.mig.states import CORDON_MARK, Change, StepName, cordon_is_ours
from purser.operator.model import NodeView, Say
from purser.operator.names import CORDONED_BY_ANNOTATION, MIG_STATE_LABEL, MIG_STEP_ANNOTATION
from purser.operator.nodework.steps import Texts

EVENT_REASON = "MigChange"


def state_label(state: str | None) -> Texts:
    """How far the node is, for people and NVIDIA's tools; None: nothing is said."""
    return {MIG_STATE_LABEL: state}


def record(change: Change) -> Texts:
    """The change as it stands on its node."""
    return {MIG_STEP_ANNOTATION: msgspec.json.encode(change, order="deterministic").decode()}


def following(change: Change, step: StepName, now: float) -> Texts:
    """The record as it is in another step."""
    return record(msgspec.structs.replace(change, step=step, since=now))


def cordon(node: NodeView) -> Texts:
    """Whose cordon it is: one that is there already without a mark is somebody else's."""
    if node.unschedulable and not cordon_is_ours(node):
        return {}
    return {CORDONED_BY_ANNOTATION: CORDON_MARK}


def say(node: NodeView, message: str, *, warning: bool = False) -> Say:
    """An event on a node."""
    return Say("Node", node.name, node.uid, EVENT_REASON, message, warning)
