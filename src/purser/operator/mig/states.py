"""A change of a node's MIG layout: how far it is, what is read off a node about it, and its patches. Each patch is one
write that is valid by itself: a step and its effect travel together."""

from functools import partial
from typing import Literal

import msgspec

from purser.core.names import MIG_CONFIG_LABEL, MIG_RESULT_ANNOTATION, MIG_STATE_LABEL, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import NodeMessage, encode
from purser.core.node.mig_messages import MigResult, decode_request, decode_result
from purser.operator.maintenance import (
    CordonOwner,
    NodeStep,
    NodeTexts,
    NodeWork,
    event,
    lift_cordon,
    patch,
    write_step,
)
from purser.operator.model import NodeProgress, NodeView, PatchNode
from purser.operator.names import MIG_STEP_ANNOTATION, PAUSED_FOR_MIG
from purser.operator.order import Operand, dependents
from purser.operator.policy.sections import MigManagerSpec
from purser.operator.reasons import OperatorReason

PENDING, SUCCESS, FAILED = "pending", "success", "failed"
"""Values of the label ``nvidia.com/mig.config.state``."""

GPU_CLIENTS = tuple(each for each in dependents(Operand.TOOLKIT) if each is not Operand.MIG_MANAGER)
"""Operands that may hold GPUs open: they are paused while a layout is applied. All that need what hands GPUs to
containers, but for the one that applies layouts."""

StepName = Literal["checking", "draining", "applying", "stopping"]


class MigChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is under way, as it stands in the node's annotation."""

    step: StepName
    profile: str
    attempt: str
    """The node's circumstances (see `node_fingerprint`), then what distinguishes this attempt from others."""
    since: float
    """When the step began."""
    why: str = ""
    """Of a change that is being stopped: what it failed for."""
    pods: tuple[str, ...] = ()
    """Of a change that is being stopped: uids of the MIG manager's pods that may still be at it."""

    @classmethod
    def begun(cls, progress: NodeProgress, profile: str, now: float) -> "MigChange":
        """A new try."""
        return cls(step="checking", profile=profile, attempt=f"{node_fingerprint(progress)}#{now:.3f}", since=now)

    @property
    def check_attempt(self) -> str:
        """Of the request that only compares."""
        return f"{self.attempt}/check"

    @property
    def apply_attempt(self) -> str:
        """Of the request that changes."""
        return f"{self.attempt}/apply"


_CHANGES = NodeMessage(MigChange, MIG_STEP_ANNOTATION)


class MigFleet(NodeWork, frozen=True, kw_only=True):
    """Everything that MIG changes are decided from."""

    spec: MigManagerSpec
    unavailable: frozenset[str] = frozenset()
    """Nodes that take no pods, or will not once the upgrade has made its writes of this round."""


def current_change(node: NodeView) -> MigChange | None:
    """The change that is under way; None where there is none, or its record cannot be read."""
    return _CHANGES.read(node.annotations.get(MIG_STEP_ANNOTATION))


def is_under_way(node: NodeView) -> bool:
    """A change has begun on the node and has not ended."""
    return MIG_STEP_ANNOTATION in node.annotations


def pause_of(node: NodeView) -> str | None:
    """What `GPU_CLIENTS` are paused for."""
    return PAUSED_FOR_MIG if makes_unavailable(node) else None


def makes_unavailable(node: NodeView) -> bool:
    """A change has drained the node or is about to, so that it counts as unavailable. A record that cannot be read
    holds nothing."""
    change = current_change(node)
    return change is not None and change.step != "checking"


def needs_workloads(node: NodeView) -> bool:
    """The next step on this node depends on the pods that run there."""
    change = current_change(node)
    return change is not None and change.step == "draining"


def failure_of(node: NodeView) -> str:
    """Why the node's change failed or does not come to its end, in one sentence; empty where all is well."""
    change = current_change(node)
    if change is not None and change.step == "stopping":
        return (
            f"MIG layout {change.profile}: {change.why}; the node stays cordoned until the MIG manager pod terminates"
        )
    result = decode_result(node.annotations.get(MIG_RESULT_ANNOTATION))
    failed = node.labels.get(MIG_STATE_LABEL) == FAILED
    return f"MIG layout {result.profile}: {result.error}" if failed and result is not None else ""


def wanted_profile(progress: NodeProgress, spec: MigManagerSpec) -> str:
    """The layout that the node is to have; empty: it is left alone."""
    return progress.node.labels.get(MIG_CONFIG_LABEL) or spec.config.default


def is_managed(progress: NodeProgress, spec: MigManagerSpec) -> bool:
    """Its GPUs can MIG, and the MIG manager runs there or is to."""
    manager = progress.operands.get(Operand.MIG_MANAGER)
    return spec.enabled and progress.mig_capable and manager is not None and manager.state != "excluded"


def node_fingerprint(progress: NodeProgress) -> str:
    """What a layout does not outlive: the node's boot and its driver's pod. A result counts within the same ones only;
    so does a failure: after a reboot it is tried again."""
    driver = progress.pod_of(Operand.DRIVER)
    return f"{progress.node.boot_id}.{driver.uid if driver is not None else ''}"


def is_current_attempt(attempt: str, progress: NodeProgress) -> bool:
    """The attempt was begun under the present circumstances."""
    return attempt.partition("#")[0] == node_fingerprint(progress)


def current_result(progress: NodeProgress, profile: str) -> MigResult | None:
    """What is known of a profile under the present circumstances, if it is more than that the layout differs."""
    result = decode_result(progress.node.annotations.get(MIG_RESULT_ANNOTATION))
    if result is None or result.differs or result.profile != profile:
        return None
    return result if is_current_attempt(result.attempt, progress) else None


def find_result(node: NodeView, attempt: str) -> MigResult | None:
    """The worker's answer to one request."""
    result = decode_result(node.annotations.get(MIG_RESULT_ANNOTATION))
    return result if result is not None and result.attempt == attempt else None


def lost_change(node: NodeView, now: float) -> MigChange | None:
    """A change whose record is gone while its worker is asked to apply it, and may be at it already."""
    request = decode_request(node.annotations.get(MIG_WANTED_ANNOTATION))
    if request is None or request.check_only:
        return None
    attempt = request.attempt.removesuffix("/apply")
    return MigChange(step="applying", profile=request.profile, attempt=attempt, since=now)


# --- patches


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


CLEARED_ANNOTATIONS: NodeTexts = {MIG_STEP_ANNOTATION: None, MIG_WANTED_ANNOTATION: None}


def end(progress: NodeProgress, state: str, why: str, unanswered: MigChange | None = None) -> NodeStep:
    """Whatever happened: in one write the node is given back. What no worker answered is written down for it."""
    node, annotations = progress.node, CLEARED_ANNOTATIONS
    if unanswered is not None:
        annotations = CLEARED_ANNOTATIONS | {
            MIG_RESULT_ANNOTATION: encode(MigResult(unanswered.profile, unanswered.attempt, why))
        }
    ended = node_event(node, f"MIG change: {state}: {why}", warning=state == FAILED)
    return write_step(give_back_node(node, why, state_label(state), annotations), ended)


def abandon(progress: NodeProgress, why: str) -> NodeStep:
    """Before anything was applied: the node is given back, and what is wanted then begins from the start."""
    return write_step(give_back_node(progress.node, why, state_label(None), CLEARED_ANNOTATIONS))


def give_back_node(node: NodeView, why: str, labels: NodeTexts, annotations: NodeTexts) -> PatchNode:
    """The cordon is lifted if it is ours."""
    marks, unschedulable = lift_cordon(node, CordonOwner.MIG)
    return patch(node, why, labels=labels, annotations=annotations | marks, unschedulable=unschedulable)
