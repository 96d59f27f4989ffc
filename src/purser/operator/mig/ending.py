"""How a MIG change comes to its end on one node, and what is waited for before the node is given back."""

import msgspec

from purser.core.mig_messages import MigResult
from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION
from purser.core.node_annotations import encode
from purser.operator.mig.states import FAILED, SUCCESS, MigChange, MigFleet, result_of
from purser.operator.mig.writing import record, say, state_label
from purser.operator.model import DeletePod, NodeView, PatchNode, Standing
from purser.operator.names import MIG_STEP_ANNOTATION
from purser.operator.nodework.cordons import Cordoner, lift
from purser.operator.nodework.steps import NodeStep, Texts, patch, to
from purser.operator.order import Operand

OVER: Texts = {MIG_STEP_ANNOTATION: None, MIG_WANTED_ANNOTATION: None}


def end(standing: Standing, state: str, why: str, unanswered: MigChange | None = None) -> NodeStep:
    """Whatever happened: in one write the node is given back. What no worker answered is written down for it."""
    node, told = standing.node, OVER
    if unanswered is not None:
        told = OVER | {MIG_RESULT_ANNOTATION: encode(MigResult(unanswered.profile, unanswered.attempt, why))}
    said = say(node, f"MIG change: {state}: {why}", warning=state == FAILED)
    return to(given_back(node, why, state_label(state), told), said)


def abandon(standing: Standing, why: str) -> NodeStep:
    """Before anything was applied: the node is given back, and what is wanted then begins from the start."""
    return to(given_back(standing.node, why, state_label(None), OVER))


def given_back(node: NodeView, why: str, labels: Texts, told: Texts) -> PatchNode:
    """The cordon is lifted if it is ours."""
    marks, unschedulable = lift(node, Cordoner.MIG)
    return patch(node, why, labels=labels, annotations=told | marks, unschedulable=unschedulable)


def answered(standing: Standing, change: MigChange) -> NodeStep | None:
    """The worker says that it is done, in whichever way; None: it does not."""
    result = result_of(standing.node, change.apply_attempt)
    if result is None:
        return None
    if not result.error:
        return end(standing, SUCCESS, f"MIG layout {change.profile} is applied")
    if change.step == "stopping":  # for what, its worker does not say
        return end(standing, FAILED, f"{change.why}: {result.error}", change)
    return end(standing, FAILED, result.error)


def stop(standing: Standing, fleet: MigFleet, change: MigChange, why: str) -> NodeStep:
    """The request is withdrawn. Who took it up may still be cutting GPUs: the node is held until those have gone."""
    pods = tuple(sorted(pod.uid for pod in standing.pods if pod.operand == Operand.MIG_MANAGER))
    if not pods:
        return end(standing, FAILED, why, change)
    stopping = msgspec.structs.replace(change, step="stopping", since=fleet.now, why=why, pods=pods)
    told = record(stopping) | {MIG_WANTED_ANNOTATION: None}
    made = patch(standing.node, f"{why}: its MIG manager is stopped", annotations=told)
    return to(made, say(standing.node, f"MIG layout {change.profile}: {why}: its MIG manager is stopped", warning=True))


def stopping(standing: Standing, change: MigChange) -> NodeStep:
    """The pods that may be at it are told to go; the node is given back once none of them is left."""
    done = answered(standing, change)
    if done is not None:
        return done
    there = [pod for pod in standing.pods if pod.uid in change.pods]
    if not there:
        return end(standing, FAILED, change.why, change)
    deletions = tuple(
        DeletePod(pod, f"it may still apply a MIG layout: {change.why}") for pod in there if not pod.going
    )
    return NodeStep(deletions=deletions, waits=f"waits for the MIG manager's pod {there[0].name} to go")
