"""What MIG changes write beside a node's cordon."""

from functools import partial

import msgspec

from purser.core.node_annotations import encode
from purser.operator.mig.states import MigChange, StepName
from purser.operator.names import MIG_STATE_LABEL, MIG_STEP_ANNOTATION
from purser.operator.nodework.steps import Texts, event

say = partial(event, "MigChange")


def state_label(state: str | None) -> Texts:
    """How far the node is, for people and NVIDIA's tools; None: nothing is said."""
    return {MIG_STATE_LABEL: state}


def record(change: MigChange) -> Texts:
    """The change as it stands on its node."""
    return {MIG_STEP_ANNOTATION: encode(change)}


def following(change: MigChange, step: StepName, now: float) -> Texts:
    """The record as it is in another step."""
    return record(msgspec.structs.replace(change, step=step, since=now))
