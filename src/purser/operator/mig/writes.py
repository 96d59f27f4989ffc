"""The patches of a MIG change. Each is one write that is valid by itself: a step and its effect travel together."""

from functools import partial

import msgspec

from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.mig_messages import MigResult
from purser.operator.maintenance import Cordoner, NodeStep, NodeTexts, event, lift, patch, to
from purser.operator.mig.states import FAILED, MigChange, StepName
from purser.operator.model import NodeProgress, NodeView, PatchNode
from purser.operator.names import MIG_STATE_LABEL, MIG_STEP_ANNOTATION
from purser.operator.reasons import OperatorReason

node_event = partial(event, OperatorReason.MIG_CHANGE)


def state_label(state: str | None) -> NodeTexts:
    """How far the node is, for people and NVIDIA's tools; None: nothing is said."""
    return {MIG_STATE_LABEL: state}


def record(change: MigChange) -> NodeTexts:
    """The change as it stands on its node."""
    return {MIG_STEP_ANNOTATION: encode(change)}


def following(change: MigChange, step: StepName, now: float) -> NodeTexts:
    """The record as it is in another step."""
    return record(msgspec.structs.replace(change, step=step, since=now))


# --- ends


OVER: NodeTexts = {MIG_STEP_ANNOTATION: None, MIG_WANTED_ANNOTATION: None}


def end(progress: NodeProgress, state: str, why: str, unanswered: MigChange | None = None) -> NodeStep:
    """Whatever happened: in one write the node is given back. What no worker answered is written down for it."""
    node, annotations = progress.node, OVER
    if unanswered is not None:
        annotations = OVER | {MIG_RESULT_ANNOTATION: encode(MigResult(unanswered.profile, unanswered.attempt, why))}
    said = node_event(node, f"MIG change: {state}: {why}", warning=state == FAILED)
    return to(given_back(node, why, state_label(state), annotations), said)


def abandon(progress: NodeProgress, why: str) -> NodeStep:
    """Before anything was applied: the node is given back, and what is wanted then begins from the start."""
    return to(given_back(progress.node, why, state_label(None), OVER))


def given_back(node: NodeView, why: str, labels: NodeTexts, annotations: NodeTexts) -> PatchNode:
    """The cordon is lifted if it is ours."""
    marks, unschedulable = lift(node, Cordoner.MIG)
    return patch(node, why, labels=labels, annotations=annotations | marks, unschedulable=unschedulable)
