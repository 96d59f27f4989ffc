"""What a MIG change does next on one node, one small step in one write; and all nodes' steps in one round."""

from collections.abc import Collection

import msgspec

from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.mig_messages import MigRequest, MigResult
from purser.operator.maintenance import (
    UNKNOWN_PODS,
    Cordoner,
    DisruptionLedger,
    Leaving,
    NodeStep,
    Texts,
    ask_again,
    ask_to_leave,
    claim,
    deadline,
    evictable_gpu_pods,
    gpu_pods,
    is_cordoned_by,
    is_over,
    is_to_come,
    lift,
    moves_of,
    patch,
    to,
)
from purser.operator.mig.states import (
    FAILED,
    GPU_CLIENTS,
    PENDING,
    SUCCESS,
    MigChange,
    MigFleet,
    change_of,
    following,
    is_managed,
    is_of_now,
    is_under_way,
    lost_change,
    record,
    result_now,
    result_of,
    say,
    state_label,
    trouble_of,
    wanted_profile,
)
from purser.operator.model import DeletePod, Moves, NodeView, PatchNode, Standing
from purser.operator.names import MIG_STATE_LABEL, MIG_STEP_ANNOTATION
from purser.operator.order import Operand
from purser.operator.wording import natural

# --- ends


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


# --- steps


MANAGER_GONE = "the MIG manager is gone from the node"


def next_step(standing: Standing, fleet: MigFleet, ledger: DisruptionLedger, may_empty: Collection[str]) -> NodeStep:
    """What to do next; ``may_empty``: nodes whose turn it is to be cordoned and emptied."""
    change = change_of(standing.node)
    if change is None:
        return _without_record(standing, fleet)
    if is_to_come(change.since, fleet.now):
        told = following(change, change.step, fleet.now)
        return to(patch(standing.node, "its time begins to count", annotations=told))
    if change.step == "stopping":
        return stopping(standing, change)
    if change.step == "applying":
        return _apply(standing, fleet, change)
    if not is_managed(standing, fleet.spec):
        return end(standing, FAILED, MANAGER_GONE, change)
    if wanted_profile(standing, fleet.spec) != change.profile:
        return abandon(standing, f"MIG layout {change.profile} is wanted no more")
    if change.step == "checking":
        return _check(standing, fleet, change, may_empty)
    return _drain(standing, fleet, change, ledger)


def would_empty(standing: Standing, fleet: MigFleet) -> bool:
    """Its layout differs, and nothing but its turn is lacking for the node to be emptied."""
    change = change_of(standing.node)
    if change is None or change.step != "checking" or wanted_profile(standing, fleet.spec) != change.profile:
        return False
    result = result_of(standing.node, change.check_attempt)
    differs = result is not None and result.differs and not result.error
    return differs and is_managed(standing, fleet.spec) and not _is_outdated(standing, fleet, change)


# --- before


def _without_record(standing: Standing, fleet: MigFleet) -> NodeStep:
    node, lost = standing.node, lost_change(standing.node, fleet.now)
    if lost is not None:
        told = record(lost) | claim(node, Cordoner.MIG)
        why = "the record of its change is written anew: its worker may be at it"
        return to(patch(node, why, annotations=told, unschedulable=True))
    if is_under_way(node):
        unread = MigChange.begun(standing, wanted_profile(standing, fleet.spec), fleet.now)
        return end(standing, FAILED, "what was written of its change cannot be read", unread)
    if is_cordoned_by(node, Cordoner.MIG) or MIG_WANTED_ANNOTATION in node.annotations:
        return to(given_back(node, "the record of its change is gone", {}, {MIG_WANTED_ANNOTATION: None}))
    return _idle(standing, fleet)


def _idle(standing: Standing, fleet: MigFleet) -> NodeStep:
    profile = wanted_profile(standing, fleet.spec)
    if not profile and standing.node.labels.get(MIG_STATE_LABEL) == FAILED:
        return to(patch(standing.node, "what failed is wanted no more", labels=state_label(None)))
    if not profile or not is_managed(standing, fleet.spec):
        return NodeStep()
    known = result_now(standing, profile)
    state = standing.node.labels.get(MIG_STATE_LABEL)
    if known is None or (known.error and state is None):  # without the label somebody wants it tried again
        return _begin(standing, fleet, profile)
    right = FAILED if known.error else SUCCESS
    return (
        NodeStep() if state == right else to(patch(standing.node, f"MIG layout {profile}", labels=state_label(right)))
    )


def _begin(standing: Standing, fleet: MigFleet, profile: str) -> NodeStep:
    """Ask the node first whether there is anything to do: a name that means nothing drains no node."""
    waits = _not_yet(standing, fleet)
    if waits:
        warning = say(standing.node, f"MIG layout {profile} waits: {waits}", warning=True)
        return NodeStep(waits=waits, says=(warning,) if standing.barred else ())
    change = MigChange.begun(standing, profile, fleet.now)
    request = MigRequest(profile, change.check_attempt, check_only=True)
    told = record(change) | {MIG_WANTED_ANNOTATION: encode(request)}
    why = f"MIG layout {profile} is compared"
    return to(patch(standing.node, why, labels=state_label(PENDING), annotations=told))


def _not_yet(standing: Standing, fleet: MigFleet) -> str:
    if not standing.node.ready:
        return "it is NotReady"
    if standing.node.name in fleet.busy:
        return "a driver upgrade is under way there"
    if standing.barred:
        return f"operands that are paused for it would not come back: {standing.barred}"
    if standing.operands[Operand.MIG_MANAGER].state != "ready":
        return "its MIG manager is not ready"
    driver = standing.pod_of(Operand.DRIVER)
    if standing.pool is not None and (driver is None or not driver.ready):
        return "its driver is not ready"
    return ""


# --- under way


def _check(standing: Standing, fleet: MigFleet, change: MigChange, may_empty: Collection[str]) -> NodeStep:
    node = standing.node
    result = result_of(node, change.check_attempt)
    if result is None:
        until = deadline(change.since, fleet.spec.apply_timeout_seconds)
        if is_over(until, fleet.now):
            return end(standing, FAILED, "its MIG worker does not answer", change)
        return NodeStep(waits="waits for its MIG worker", until=until)
    if result.error:
        return end(standing, FAILED, result.error)
    if not result.differs:
        return end(standing, SUCCESS, "the layout is there already")
    if _is_outdated(standing, fleet, change):
        return abandon(standing, "the node is not any more as it was when its layout was compared")
    if node.name not in may_empty:
        return NodeStep(waits=fleet.no_room, says=(say(node, f"MIG layout {change.profile} waits: {fleet.no_room}"),))
    told = following(change, "draining", fleet.now) | {MIG_WANTED_ANNOTATION: None} | claim(node, Cordoner.MIG)
    why = f"MIG layout {change.profile}: cordoned, operands are paused, GPU pods leave"
    return to(patch(node, why, labels=state_label(PENDING), annotations=told, unschedulable=True), say(node, why))


def _is_outdated(standing: Standing, fleet: MigFleet, change: MigChange) -> bool:
    """While it waited for its turn its node was rebooted, got another driver, or went away."""
    return not is_of_now(change.attempt, standing) or bool(_not_yet(standing, fleet))


def _drain(standing: Standing, fleet: MigFleet, change: MigChange, ledger: DisruptionLedger) -> NodeStep:
    node = standing.node
    if standing.barred:
        return abandon(standing, standing.barred)
    if not node.unschedulable:
        return to(patch(node, "cordoned for a MIG change", annotations=claim(node, Cordoner.MIG), unschedulable=True))
    users = _users_of_gpus(standing, fleet, ledger)
    if users is None:
        request = MigRequest(change.profile, change.apply_attempt)
        told = following(change, "applying", fleet.now) | {MIG_WANTED_ANNOTATION: encode(request)}
        return to(patch(node, f"MIG layout {change.profile} is applied", annotations=told))
    timeout = fleet.spec.gpu_pod_timeout_seconds
    until = deadline(change.since, timeout)
    if is_over(until, fleet.now):
        return end(standing, FAILED, f"GPUs were still in use after {timeout} s: {users.waits}", change)
    return msgspec.structs.replace(users, until=ask_again(fleet.now, until))


def _users_of_gpus(standing: Standing, fleet: MigFleet, ledger: DisruptionLedger) -> NodeStep | None:
    """What still holds GPUs: paused operands, and pods. None: nothing does."""
    operands = sorted(pod.name for pod in standing.pods if pod.operand in GPU_CLIENTS)
    workloads = fleet.workloads.get(standing.node.name)
    if workloads is None:
        return NodeStep(waits=UNKNOWN_PODS)
    pods = evictable_gpu_pods(workloads) if operands else gpu_pods(workloads)
    leaving = ask_to_leave(pods, fleet.rules, ledger, "MIG change") if pods else Leaving()
    if pods:
        return NodeStep(evictions=leaving.evictions, waits=leaving.describe(len(pods)))
    return NodeStep(waits=f"waits for the operand's pod {operands[0]} to leave") if operands else None


def _apply(standing: Standing, fleet: MigFleet, change: MigChange) -> NodeStep:
    done = answered(standing, change)
    if done is not None:
        return done
    if not is_managed(standing, fleet.spec):
        return stop(standing, fleet, change, MANAGER_GONE)
    timeout = fleet.spec.apply_timeout_seconds
    until = deadline(change.since, timeout)
    if is_over(until, fleet.now):
        return stop(standing, fleet, change, f"it was not applied within {timeout} s")
    return NodeStep(waits="waits for its MIG worker to apply the layout", until=until)


# --- the fleet


def advance(fleet: MigFleet) -> Moves:
    """What to do next on every node: at most one patch each."""
    ledger, nodes = DisruptionLedger(fleet.budgets), sorted(fleet.standings, key=lambda each: natural(each.node.name))
    may_empty = _turn(nodes, fleet)
    return moves_of({each.node.name: next_step(each, fleet, ledger, may_empty) for each in nodes}, fleet.now)


def waiting_of(fleet: MigFleet, moves: Moves) -> dict[str, str]:
    """By node: what its MIG change waits for, in one sentence, by the moves of the round. What went wrong is told by
    `trouble_of`."""
    waiting = (each for each in fleet.standings if each.node.name in moves.waits and not trouble_of(each.node))
    return {
        each.node.name: f"MIG layout {_profile(each, fleet)}: {moves.waits[each.node.name]}"
        for each in sorted(waiting, key=lambda each: natural(each.node.name))
    }


def _profile(standing: Standing, fleet: MigFleet) -> str:
    change = change_of(standing.node)
    return change.profile if change is not None else wanted_profile(standing, fleet.spec)


def _turn(nodes: list[Standing], fleet: MigFleet) -> frozenset[str]:
    """Nodes that may be emptied now: those that are unavailable anyway, and as many others as there is room for."""
    wanting = [each.node.name for each in nodes if would_empty(each, fleet)]
    others = [name for name in wanting if name not in fleet.unavailable]
    room = fleet.max_unavailable - len(fleet.unavailable)
    return frozenset(wanting) & fleet.unavailable | frozenset(others[: max(0, room)])
