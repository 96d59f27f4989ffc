"""What a MIG change does next on one node: one small step, in one write."""

import msgspec

from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION
from purser.core.node_facts import MigRequest, MigResult, encode
from purser.operator.mig.states import (
    CORDON_MARK,
    FAILED,
    GPU_CLIENTS,
    PENDING,
    SUCCESS,
    Change,
    MigFleet,
    StepName,
    change_of,
    circumstances,
    cordon_is_ours,
    is_managed,
    is_under_way,
    result_now,
    result_of,
    wanted_profile,
)
from purser.operator.model import Evict, NodeView, PatchNode, Say, Standing
from purser.operator.names import CORDONED_BY_ANNOTATION, MIG_STATE_LABEL, MIG_STEP_ANNOTATION
from purser.operator.order import Operand
from purser.operator.upgrade.evicting import Desk, Leaving, Rules, ask_to_leave, evictable_gpu_pods, gpu_pods
from purser.operator.upgrade.states import SKEW_S

EVENT_REASON = "MigChange"

ASK_AGAIN_S = 5.0
"""After which time pods that did not leave are asked again."""

RULES = Rules()
"""Nobody asked for a pod to be lost: pods that would not come back, or would lose data, are waited for."""

Texts = dict[str, str | None]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one node's change does in one round. All empty: nothing."""

    patch: PatchNode | None = None
    evictions: tuple[Evict, ...] = ()
    says: tuple[Say, ...] = ()
    waits: str = ""
    """What the node waits for, in one sentence's end."""
    until: float | None = None
    """When time alone changes something."""


def step(standing: Standing, fleet: MigFleet, desk: Desk) -> Step:
    """What to do next."""
    if not is_under_way(standing.node):
        return _idle(standing, fleet)
    change = change_of(standing.node)
    if change is None:
        return _end(standing, FAILED, "what was written of its change cannot be read", _lost(standing, fleet))
    if not is_managed(standing, fleet.spec):
        return _end(standing, FAILED, "the MIG manager is gone from the node", change)
    if change.since > fleet.now + SKEW_S:  # a time that is still to come would never run out
        told = _next(change, change.step, fleet.now)
        return Step(patch=_patch(standing.node, "its time begins to count", annotations=told))
    if change.step != "applying" and wanted_profile(standing, fleet.spec) != change.profile:
        return _abandon(standing, change)
    match change.step:
        case "checking":
            return _check(standing, fleet, change)
        case "draining":
            return _drain(standing, fleet, change, desk)
        case "applying":
            return _apply(standing, fleet, change)


# --- before


def _idle(standing: Standing, fleet: MigFleet) -> Step:
    node = standing.node
    if cordon_is_ours(node) or MIG_WANTED_ANNOTATION in node.annotations:
        return Step(patch=_given_back(node, "the record of its change is gone", "", {MIG_WANTED_ANNOTATION: None}))
    profile = wanted_profile(standing, fleet.spec)
    if not profile or not is_managed(standing, fleet.spec):
        return Step()
    known = result_now(standing, profile)
    state = standing.node.labels.get(MIG_STATE_LABEL)
    if known is None or (known.error and state is None):  # without the label somebody wants it tried again
        return _begin(standing, fleet, profile)
    right = FAILED if known.error else SUCCESS
    return Step() if state == right else Step(patch=_patch(standing.node, f"MIG layout {profile}", state=right))


def _begin(standing: Standing, fleet: MigFleet, profile: str) -> Step:
    """Ask the node first whether there is anything to do: a name that means nothing drains no node."""
    waits = _not_yet(standing, fleet)
    if waits:
        return Step(waits=waits)
    attempt = f"{circumstances(standing)}#{fleet.now:.3f}"
    change = Change(step="checking", profile=profile, attempt=attempt, since=fleet.now)
    request = MigRequest(profile, change.check_attempt, check_only=True)
    told = _record(change) | {MIG_WANTED_ANNOTATION: encode(request)}
    return Step(patch=_patch(standing.node, f"MIG layout {profile} is compared", state=PENDING, annotations=told))


def _not_yet(standing: Standing, fleet: MigFleet) -> str:
    if not standing.node.ready:
        return "it is NotReady"
    if standing.node.name in fleet.busy:
        return "a driver upgrade is under way there"
    if standing.operands[Operand.MIG_MANAGER].state != "ready":
        return "its MIG manager is not ready"
    driver = standing.pod_of(Operand.DRIVER)
    if standing.pool is not None and (driver is None or not driver.ready):
        return "its driver is not ready"
    return ""


# --- under way


def _check(standing: Standing, fleet: MigFleet, change: Change) -> Step:
    node = standing.node
    result = result_of(node, change.check_attempt)
    if result is None:
        until = _deadline(change, fleet.spec.apply_timeout_seconds)
        if until is not None and fleet.now >= until:
            return _end(standing, FAILED, "its MIG worker does not answer", change)
        return Step(waits="waits for its MIG worker", until=until)
    if result.error:
        return _end(standing, FAILED, result.error)
    if not result.differs:
        return _end(standing, SUCCESS, "the layout is there already")
    told = _next(change, "draining", fleet.now) | {MIG_WANTED_ANNOTATION: None} | _cordon(node)
    why = f"MIG layout {change.profile}: cordoned, operands are paused, GPU pods leave"
    made = _patch(node, why, state=PENDING, annotations=told, unschedulable=True)
    return Step(patch=made, says=(_say(node, why),))


def _drain(standing: Standing, fleet: MigFleet, change: Change, desk: Desk) -> Step:
    node = standing.node
    if not node.unschedulable:
        return Step(patch=_patch(node, "cordoned for a MIG change", annotations=_cordon(node), unschedulable=True))
    users = _users_of_gpus(standing, fleet, desk)
    if users is None:
        request = MigRequest(change.profile, change.apply_attempt)
        told = _next(change, "applying", fleet.now) | {MIG_WANTED_ANNOTATION: encode(request)}
        return Step(patch=_patch(node, f"MIG layout {change.profile} is applied", annotations=told))
    timeout = fleet.spec.gpu_pod_timeout_seconds
    until = _deadline(change, timeout)
    if until is not None and fleet.now >= until:
        return _end(standing, FAILED, f"GPUs were still in use after {timeout} s: {users.waits}", change)
    again = fleet.now + ASK_AGAIN_S
    return msgspec.structs.replace(users, until=again if until is None else min(again, until))


def _users_of_gpus(standing: Standing, fleet: MigFleet, desk: Desk) -> Step | None:
    """What still holds GPUs: paused operands, and pods. None: nothing does."""
    operands = sorted(pod.name for pod in standing.pods if pod.operand in GPU_CLIENTS)
    workloads = fleet.workloads.get(standing.node.name)
    if workloads is None:
        return Step(waits="nobody knows yet what runs there")
    pods = evictable_gpu_pods(workloads) if operands else gpu_pods(workloads)
    leaving = ask_to_leave(pods, RULES, desk, "MIG change") if pods else Leaving()
    if pods:
        return Step(evictions=leaving.evictions, waits=leaving.describe(len(pods)))
    return Step(waits=f"waits for the operand's pod {operands[0]} to leave") if operands else None


def _apply(standing: Standing, fleet: MigFleet, change: Change) -> Step:
    result = result_of(standing.node, change.apply_attempt)
    if result is not None:
        return _end(standing, FAILED if result.error else SUCCESS, result.error or "the layout is applied")
    timeout = fleet.spec.apply_timeout_seconds
    until = _deadline(change, timeout)
    if until is not None and fleet.now >= until:
        return _end(standing, FAILED, f"it was not applied within {timeout} s", change)
    return Step(waits="waits for its MIG worker to apply the layout", until=until)


# --- after


def _end(standing: Standing, state: str, why: str, unanswered: Change | None = None) -> Step:
    """Whatever happened: in one write the node is given back. What no worker answered is written down for it."""
    node = standing.node
    told: Texts = {MIG_STEP_ANNOTATION: None, MIG_WANTED_ANNOTATION: None}
    if unanswered is not None:
        told[MIG_RESULT_ANNOTATION] = encode(MigResult(unanswered.profile, unanswered.attempt, why))
    made = _given_back(node, why, state, told)
    return Step(patch=made, says=(_say(node, f"MIG change: {state}: {why}", warning=state == FAILED),))


def _abandon(standing: Standing, change: Change) -> Step:
    """Another layout is wanted by now: the node is given back, and the other one begins from the start."""
    told: Texts = {MIG_STEP_ANNOTATION: None, MIG_WANTED_ANNOTATION: None}
    return Step(patch=_given_back(standing.node, f"MIG layout {change.profile} is wanted no more", None, told))


def _given_back(node: NodeView, why: str, state: str | None, told: Texts) -> PatchNode:
    ours = cordon_is_ours(node)
    marks: Texts = {CORDONED_BY_ANNOTATION: None} if ours else {}
    return _patch(node, why, state=state, annotations=told | marks, unschedulable=False if ours else None)


def _lost(standing: Standing, fleet: MigFleet) -> Change:
    """A stand-in for a record that cannot be read."""
    attempt = f"{circumstances(standing)}#{fleet.now:.3f}"
    profile = wanted_profile(standing, fleet.spec)
    return Change(step="checking", profile=profile, attempt=attempt, since=fleet.now)


# --- writing


def _patch(
    node: NodeView,
    why: str,
    *,
    state: str | None = "",
    annotations: Texts | None = None,
    unschedulable: bool | None = None,
) -> PatchNode:
    """A patch of what differs; an empty state stays as it is, None removes it."""
    labels: Texts = {} if state == "" else {MIG_STATE_LABEL: state}
    return PatchNode(
        node=node.name,
        labels={key: value for key, value in labels.items() if node.labels.get(key) != value},
        annotations={k: v for k, v in (annotations or {}).items() if node.annotations.get(k) != v},
        unschedulable=None if unschedulable == node.unschedulable else unschedulable,
        why=why,
    )


def _record(change: Change) -> Texts:
    return {MIG_STEP_ANNOTATION: msgspec.json.encode(change, order="deterministic").decode()}


def _next(change: Change, step: StepName, now: float) -> Texts:
    return _record(msgspec.structs.replace(change, step=step, since=now))


def _cordon(node: NodeView) -> Texts:
    """Whose cordon it is: one that is there already without a mark is somebody else's."""
    if node.unschedulable and not cordon_is_ours(node):
        return {}
    return {CORDONED_BY_ANNOTATION: CORDON_MARK}


def _deadline(change: Change, timeout_s: float) -> float | None:
    return change.since + timeout_s if timeout_s else None


def _say(node: NodeView, message: str, *, warning: bool = False) -> Say:
    return Say("Node", node.name, node.uid, EVENT_REASON, message, warning)
