"""One round of MIG changes: whose turn it is to be emptied (`advance`), and a node's next step (`next_step`)."""

from collections.abc import Collection

import msgspec

from purser.core.names import MIG_STATE_LABEL, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.mig_messages import MigRequest
from purser.core.wording import natural_sort_key
from purser.operator.maintenance import (
    UNKNOWN_PODS,
    CordonOwner,
    DisruptionLedger,
    EvictionPlan,
    NodeStep,
    claim,
    deadline,
    evictable_gpu_pods,
    gpu_pods,
    is_cordoned_by,
    is_in_future,
    is_over,
    next_eviction_time,
    patch,
    planned_changes_of,
    request_evictions,
    write_step,
)
from purser.operator.mig.states import (
    FAILED,
    GPU_CLIENTS,
    PENDING,
    SUCCESS,
    MigChange,
    MigFleet,
    abandon,
    current_change,
    current_result,
    end,
    failure_of,
    find_result,
    following,
    give_back_node,
    is_current_attempt,
    is_managed,
    is_under_way,
    lost_change,
    node_event,
    record,
    state_label,
    wanted_profile,
)
from purser.operator.model import DeletePod, NodeProgress, PlannedChanges
from purser.operator.order import Operand


def advance(fleet: MigFleet) -> PlannedChanges:
    """What to do next on every node: at most one patch each."""
    ledger, nodes = (
        DisruptionLedger(fleet.budgets),
        sorted(fleet.node_progress, key=lambda each: natural_sort_key(each.node.name)),
    )
    may_be_drained = _nodes_that_may_be_drained(nodes, fleet)
    return planned_changes_of(
        {each.node.name: next_step(each, fleet, ledger, may_be_drained) for each in nodes}, fleet.now
    )


def waits_of_changes(fleet: MigFleet, planned: PlannedChanges) -> dict[str, str]:
    """By node: what its MIG change waits for, in one sentence, by the moves of the round. Failures are reported by
    `failure_of`."""
    waiting = (each for each in fleet.node_progress if each.node.name in planned.waits and not failure_of(each.node))
    return {
        each.node.name: f"MIG layout {_profile(each, fleet)}: {planned.waits[each.node.name]}"
        for each in sorted(waiting, key=lambda each: natural_sort_key(each.node.name))
    }


def _profile(progress: NodeProgress, fleet: MigFleet) -> str:
    change = current_change(progress.node)
    return change.profile if change is not None else wanted_profile(progress, fleet.spec)


def _nodes_that_may_be_drained(nodes: list[NodeProgress], fleet: MigFleet) -> frozenset[str]:
    """Nodes that may be emptied now: those that are unavailable anyway, and as many others as there is room for."""
    wanting = [each.node.name for each in nodes if needs_emptying(each, fleet)]
    others = [name for name in wanting if name not in fleet.unavailable]
    room = fleet.max_unavailable - len(fleet.unavailable)
    return frozenset(wanting) & fleet.unavailable | frozenset(others[: max(0, room)])


# --- a node's next step


MANAGER_GONE_MESSAGE = "the MIG manager no longer runs on the node"


def next_step(
    progress: NodeProgress, fleet: MigFleet, ledger: DisruptionLedger, may_be_drained: Collection[str]
) -> NodeStep:
    """What to do next; ``may_be_drained``: nodes whose turn it is to be cordoned and emptied."""
    change = current_change(progress.node)
    if change is None:
        return _recover_lost_record(progress, fleet)
    if is_in_future(change.since, fleet.now):
        annotations = following(change, change.step, fleet.now)
        return write_step(patch(progress.node, "timeout started", annotations=annotations))
    if change.step == "stopping":
        return _stop_manager(progress, change)
    if change.step == "applying":
        return _apply(progress, fleet, change)
    if not is_managed(progress, fleet.spec):
        return end(progress, FAILED, MANAGER_GONE_MESSAGE, change)
    if wanted_profile(progress, fleet.spec) != change.profile:
        return abandon(progress, f"MIG layout {change.profile} is no longer requested")
    if change.step == "checking":
        return _check(progress, fleet, change, may_be_drained)
    return _drain(progress, fleet, change, ledger)


def needs_emptying(progress: NodeProgress, fleet: MigFleet) -> bool:
    """Its layout differs, and nothing but its turn is lacking for the node to be emptied."""
    change = current_change(progress.node)
    if change is None or change.step != "checking" or wanted_profile(progress, fleet.spec) != change.profile:
        return False
    result = find_result(progress.node, change.check_attempt)
    differs = result is not None and result.differs and not result.error
    return differs and is_managed(progress, fleet.spec) and not _is_outdated(progress, fleet, change)


# --- before


def _recover_lost_record(progress: NodeProgress, fleet: MigFleet) -> NodeStep:
    node, lost = progress.node, lost_change(progress.node, fleet.now)
    if lost is not None:
        annotations = record(lost) | claim(node, CordonOwner.MIG)
        why = "restoring the lost record of the MIG change because the MIG worker may be applying the change"
        return write_step(patch(node, why, annotations=annotations, unschedulable=True))
    if is_under_way(node):
        unread = MigChange.begun(progress, wanted_profile(progress, fleet.spec), fleet.now)
        return end(progress, FAILED, "the record of the MIG change cannot be decoded", unread)
    if is_cordoned_by(node, CordonOwner.MIG) or MIG_WANTED_ANNOTATION in node.annotations:
        return write_step(
            give_back_node(node, "the record of the MIG change is missing", {}, {MIG_WANTED_ANNOTATION: None})
        )
    return _idle(progress, fleet)


def _idle(progress: NodeProgress, fleet: MigFleet) -> NodeStep:
    profile = wanted_profile(progress, fleet.spec)
    if not profile and progress.node.labels.get(MIG_STATE_LABEL) == FAILED:
        return write_step(
            patch(progress.node, "the MIG layout that failed is no longer requested", labels=state_label(None))
        )
    if not profile or not is_managed(progress, fleet.spec):
        return NodeStep()
    known = current_result(progress, profile)
    state = progress.node.labels.get(MIG_STATE_LABEL)
    if known is None or (known.error and state is None):  # a removed label asks for a retry
        return _begin(progress, fleet, profile)
    outcome = FAILED if known.error else SUCCESS
    return (
        NodeStep()
        if state == outcome
        else write_step(
            patch(progress.node, f"recording the outcome of MIG layout {profile}", labels=state_label(outcome))
        )
    )


def _begin(progress: NodeProgress, fleet: MigFleet, profile: str) -> NodeStep:
    """Ask the node first whether there is anything to do: a name that means nothing drains no node."""
    waits = _not_ready_reason(progress, fleet)
    if waits:
        warning = node_event(progress.node, f"MIG layout {profile} is pending: {waits}", warning=True)
        return NodeStep(waits=waits, events=(warning,) if progress.untolerated else ())
    change = MigChange.begun(progress, profile, fleet.now)
    request = MigRequest(profile, change.check_attempt, check_only=True)
    annotations = record(change) | {MIG_WANTED_ANNOTATION: encode(request)}
    why = f"comparing MIG layout {profile} with the GPUs"
    return write_step(patch(progress.node, why, labels=state_label(PENDING), annotations=annotations))


def _not_ready_reason(progress: NodeProgress, fleet: MigFleet) -> str:
    if not progress.node.ready:
        return "the node is NotReady"
    if progress.node.name in fleet.busy:
        return "a driver upgrade is in progress on the node"
    if progress.untolerated:
        return f"paused operands could not start again: {progress.untolerated}"
    if progress.operands[Operand.MIG_MANAGER].state != "ready":
        return "the node's MIG manager is not ready"
    driver = progress.pod_of(Operand.DRIVER)
    if progress.pool is not None and (driver is None or not driver.ready):
        return "the node's driver is not ready"
    return ""


# --- under way


def _check(progress: NodeProgress, fleet: MigFleet, change: MigChange, may_be_drained: Collection[str]) -> NodeStep:
    node = progress.node
    result = find_result(node, change.check_attempt)
    if result is None:
        until = deadline(change.since, fleet.spec.apply_timeout_seconds)
        if is_over(until, fleet.now):
            return end(progress, FAILED, "the MIG worker does not respond", change)
        return NodeStep(waits="waiting for the MIG worker", until=until)
    if result.error:
        return end(progress, FAILED, result.error)
    if not result.differs:
        return end(progress, SUCCESS, "the layout is already applied")
    if _is_outdated(progress, fleet, change):
        return abandon(progress, "the node changed after its MIG layout was checked")
    if node.name not in may_be_drained:
        return NodeStep(
            waits=fleet.unavailable_limit_text,
            events=(node_event(node, f"MIG layout {change.profile} is pending: {fleet.unavailable_limit_text}"),),
        )
    annotations = (
        following(change, "draining", fleet.now) | {MIG_WANTED_ANNOTATION: None} | claim(node, CordonOwner.MIG)
    )
    begun = f"MIG layout {change.profile}: cordoning the node and pausing operands"
    why = f"{begun}, then waiting for pods to release the GPUs that change"
    return write_step(
        patch(node, why, labels=state_label(PENDING), annotations=annotations, unschedulable=True),
        node_event(node, why),
    )


def _is_outdated(progress: NodeProgress, fleet: MigFleet, change: MigChange) -> bool:
    """While it waited for its turn its node was rebooted, got another driver, or went away."""
    return not is_current_attempt(change.attempt, progress) or bool(_not_ready_reason(progress, fleet))


def _drain(progress: NodeProgress, fleet: MigFleet, change: MigChange, ledger: DisruptionLedger) -> NodeStep:
    node = progress.node
    if progress.untolerated:
        return abandon(progress, progress.untolerated)
    if not node.unschedulable:
        return write_step(
            patch(node, "cordoned for a MIG change", annotations=claim(node, CordonOwner.MIG), unschedulable=True)
        )
    users = _evict_gpu_users(progress, fleet, change, ledger)
    if users is None:
        request = MigRequest(change.profile, change.apply_attempt)
        annotations = following(change, "applying", fleet.now) | {MIG_WANTED_ANNOTATION: encode(request)}
        return write_step(patch(node, f"applying MIG layout {change.profile}", annotations=annotations))
    timeout = fleet.spec.gpu_pod_timeout_seconds
    until = deadline(change.since, timeout)
    if is_over(until, fleet.now):
        return end(progress, FAILED, f"GPUs were still in use after {timeout} s: {users.waits}", change)
    return msgspec.structs.replace(users, until=next_eviction_time(fleet.now, until))


def _evict_gpu_users(
    progress: NodeProgress, fleet: MigFleet, change: MigChange, ledger: DisruptionLedger
) -> NodeStep | None:
    """Evict pods from GPUs that change, and wait for paused operands to leave them. None: nothing holds these GPUs."""
    operands = sorted(pod.name for pod in progress.pods if pod.operand in GPU_CLIENTS)
    workloads = fleet.workloads.get(progress.node.name)
    if workloads is None:
        return NodeStep(waits=UNKNOWN_PODS)
    result = find_result(progress.node, change.check_attempt)
    untouched = frozenset(result.untouched) if result is not None else frozenset()
    users = evictable_gpu_pods(workloads) if operands else gpu_pods(workloads)
    pods = [pod for pod in users if not (pod.devices and pod.devices <= untouched)]
    leaving = request_evictions(pods, fleet.rules, ledger, "MIG change") if pods else EvictionPlan()
    if pods:
        waits = leaving.describe(pods)
        event = node_event(progress.node, f"MIG layout {change.profile} is pending: {waits}")
        return NodeStep(evictions=leaving.evictions, waits=waits, events=(event,))
    return NodeStep(waits=f"waiting for operand pod {operands[0]} to terminate") if operands else None


def _apply(progress: NodeProgress, fleet: MigFleet, change: MigChange) -> NodeStep:
    done = _finish_if_answered(progress, change)
    if done is not None:
        return done
    if not is_managed(progress, fleet.spec):
        return _stop(progress, fleet, change, MANAGER_GONE_MESSAGE)
    timeout = fleet.spec.apply_timeout_seconds
    until = deadline(change.since, timeout)
    if is_over(until, fleet.now):
        return _stop(progress, fleet, change, f"not applied within {timeout} s")
    return NodeStep(waits="waiting for the MIG worker to apply the layout", until=until)


def _finish_if_answered(progress: NodeProgress, change: MigChange) -> NodeStep | None:
    """The worker says that it is done, in whichever way; None: it does not."""
    result = find_result(progress.node, change.apply_attempt)
    if result is None:
        return None
    if not result.error:
        return end(progress, SUCCESS, f"MIG layout {change.profile} is applied")
    if change.step == "stopping":  # for what, its worker does not say
        return end(progress, FAILED, f"{change.why}: {result.error}", change)
    return end(progress, FAILED, result.error)


def _stop(progress: NodeProgress, fleet: MigFleet, change: MigChange, why: str) -> NodeStep:
    """The request is withdrawn. Who took it up may still be cutting GPUs: the node is held until those have gone."""
    pods = tuple(sorted(pod.uid for pod in progress.pods if pod.operand == Operand.MIG_MANAGER))
    if not pods:
        return end(progress, FAILED, why, change)
    stopping = msgspec.structs.replace(change, step="stopping", since=fleet.now, why=why, pods=pods)
    annotations = record(stopping) | {MIG_WANTED_ANNOTATION: None}
    made = patch(progress.node, f"{why}: stopping the MIG manager", annotations=annotations)
    return write_step(
        made, node_event(progress.node, f"MIG layout {change.profile}: {why}: stopping the MIG manager", warning=True)
    )


def _stop_manager(progress: NodeProgress, change: MigChange) -> NodeStep:
    """The pods that may run the change are deleted; the node is released once none of them is left."""
    done = _finish_if_answered(progress, change)
    if done is not None:
        return done
    there = [pod for pod in progress.pods if pod.uid in change.pods]
    if not there:
        return end(progress, FAILED, change.why, change)
    deletions = tuple(
        DeletePod(pod, f"the pod may still apply a MIG layout: {change.why}") for pod in there if not pod.terminating
    )
    return NodeStep(deletions=deletions, waits=f"waiting for MIG manager pod {there[0].name} to terminate")
