"""What an upgrade does next on one node: one small step per state."""

from collections.abc import Callable

import msgspec

from purser.operator.model import DeletePod, Evict, PatchNode, Say, Standing, Workload
from purser.operator.names import (
    POOL_LABEL,
    UPGRADE_FAILURE_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_STATE_LABEL,
    UPGRADE_STEP_START_ANNOTATION,
    UPGRADE_TARGET_ANNOTATION,
)
from purser.operator.order import Operand, dependents
from purser.operator.upgrade.evicting import (
    Desk,
    Rules,
    ask_to_leave,
    drained_pods,
    evictable_gpu_pods,
    gpu_pods,
    jobs,
)
from purser.operator.upgrade.states import (
    EMPTYING,
    REQUESTED,
    UNDER_WAY,
    Fleet,
    State,
    cordon_is_ours,
    has_clock,
    is_due,
    is_managed,
    is_valid,
    reached_target,
    stale_pod,
    state_of,
    step_start,
    target_of,
)
from purser.operator.upgrade.writing import Texts, clock_text, cordoned, enter, fail, finish, patch, release, say

MAX_RESTARTS = 10
"""A new driver whose container was restarted more often has failed (the number of NVIDIA's own upgrades)."""

UNKNOWN_PODS = "nobody knows yet what runs there"

ASK_AGAIN_S = 5.0
"""After which time pods that did not leave are asked again."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one node's upgrade does in one round. All empty: nothing, and nothing is waited for."""

    patch: PatchNode | None = None
    deletions: tuple[DeletePod, ...] = ()
    evictions: tuple[Evict, ...] = ()
    says: tuple[Say, ...] = ()
    waits: str = ""
    """What the node waits for, in one sentence's end."""
    until: float | None = None
    """When time alone changes something."""


def step(standing: Standing, fleet: Fleet, desk: Desk) -> Step:
    """What to do next. That a node begins is not decided here (`budget.turn`)."""
    node = standing.node
    if not is_managed(standing):
        return _to(release(node, standing.obstacle or "its driver is not the operator's"))
    state = state_of(node)
    if state not in UNDER_WAY:
        return _failed(standing, fleet) if state is State.FAILED else _idle(standing, fleet)
    if not node.ready:
        return _stop_clock(standing)
    if not has_clock(node, fleet.now):
        return _to(
            patch(node, "its time begins to count", annotations={UPGRADE_STEP_START_ANNOTATION: clock_text(fleet.now)})
        )
    if (state in EMPTYING or state is State.RESTART) and not node.unschedulable:
        return _to(patch(node, "cordoned for its driver upgrade", annotations=cordoned(node), unschedulable=True))
    return _empty(state, standing, fleet, desk) if state in EMPTYING else _STEPS[state](standing, fleet, desk)


def _to(made: PatchNode | None, *says: Say) -> Step:
    return Step(patch=made, says=says)


def _stop_clock(standing: Standing) -> Step:
    """Nothing that happens on a node which is away is held against its driver."""
    stopped = patch(standing.node, "it is NotReady", annotations={UPGRADE_STEP_START_ANNOTATION: None})
    return Step(patch=stopped if stopped.annotations else None, waits="it is NotReady")


# --- before and after


def _idle(standing: Standing, fleet: Fleet) -> Step:
    """Due or not: the label says so."""
    state = state_of(standing.node)
    if is_due(standing):
        if state is State.REQUIRED:
            return Step(waits="waits for its turn")
        return _to(patch(standing.node, "another driver is due", labels={UPGRADE_STATE_LABEL: State.REQUIRED.value}))
    if cordon_is_ours(standing.node):  # somebody took the state away in the middle
        return _to(finish(standing, fleet.now))
    if state is State.DONE:
        return Step()
    return _to(patch(standing.node, "nothing to upgrade", labels={UPGRADE_STATE_LABEL: State.DONE.value}))


def _failed(standing: Standing, fleet: Fleet) -> Step:
    """It is tried again where its old driver still runs; it recovers where the new one came to work after all."""
    node = standing.node
    if stale_pod(standing) is None:
        if is_valid(standing):
            # Straight to the end: a state in between would count as an upgrade that nobody let begin.
            return _to(finish(standing, fleet.now), say(node, "the driver works after all"))
        return Step(waits=node.annotations.get(UPGRADE_FAILURE_ANNOTATION, "its new driver does not work"))
    start = step_start(node) if has_clock(node, fleet.now) else None
    again = (start or 0.0) + fleet.policy.retry_after_seconds
    if not reached_target(standing) or fleet.now >= again:
        return _to(patch(node, "it is tried again", labels={UPGRADE_STATE_LABEL: State.REQUIRED.value}))
    return Step(waits=node.annotations.get(UPGRADE_FAILURE_ANNOTATION, "its upgrade failed"), until=again)


def begin(standing: Standing, fleet: Fleet) -> Step:
    """It is this node's turn."""
    node = standing.node
    pod = stale_pod(standing)
    asked = node.annotations.get(UPGRADE_REQUESTED_ANNOTATION) == REQUESTED and pod is not None
    told: Texts = {UPGRADE_REQUESTED_ANNOTATION: pod.uid} if asked and pod is not None else {}
    begun = enter(standing, State.CORDON, fleet.now, "its driver upgrade begins", annotations=told)
    return _to(begun, say(node, f"driver upgrade to {target_of(standing)} begins"))


# --- under way


def _cordon(standing: Standing, fleet: Fleet, desk: Desk) -> Step:
    waits = bool(fleet.policy.wait_for_completion.pod_selector)
    following = State.JOBS if waits else State.PODS
    why = "cordoned for its driver upgrade"
    return _to(
        enter(standing, following, fleet.now, why, annotations=cordoned(standing.node), unschedulable=True),
    )


def _empty(state: State, standing: Standing, fleet: Fleet, desk: Desk) -> Step:
    """Pods leave, and the old driver runs until they are gone."""
    workloads = fleet.workloads.get(standing.node.name)
    if stale_pod(standing) is None:
        return _driver_went(standing, fleet)
    if workloads is None:
        return Step(waits=UNKNOWN_PODS)
    if state is State.JOBS:
        return _jobs(standing, fleet, workloads)
    return (_pods if state is State.PODS else _drain)(standing, fleet, workloads, desk)


def _jobs(standing: Standing, fleet: Fleet, workloads: tuple[Workload, ...]) -> Step:
    policy = fleet.policy.wait_for_completion
    left = jobs(workloads, policy.pod_selector)
    if not left:
        return _to(enter(standing, State.PODS, fleet.now, "no job is left to wait for"))
    until = _deadline(standing, policy.timeout_seconds)
    if until is not None and fleet.now >= until:
        why = f"{len(left)} jobs are not waited for any longer ({policy.timeout_seconds} s)"
        return _to(enter(standing, State.PODS, fleet.now, why), say(standing.node, why, warning=True))
    return Step(waits=f"waits for the job {left[0].namespace}/{left[0].name}", until=until)


def _pods(standing: Standing, fleet: Fleet, workloads: tuple[Workload, ...], desk: Desk) -> Step:
    policy = fleet.policy.gpu_pod_deletion
    left = evictable_gpu_pods(workloads)
    if not left:
        return _restart(standing, fleet)
    leaving = ask_to_leave(left, Rules(policy.force, policy.delete_empty_dir), desk, "driver upgrade")
    until = _deadline(standing, policy.timeout_seconds)
    if until is not None and fleet.now >= until:
        why = f"GPU pods did not leave within {policy.timeout_seconds} s: {leaving.describe(len(left))}"
        if fleet.policy.drain.enable:
            return _to(enter(standing, State.DRAIN, fleet.now, why), say(standing.node, why, warning=True))
        return _give_up(standing, fleet, why)
    return Step(evictions=leaving.evictions, waits=leaving.describe(len(left)), until=_ask_again(fleet, until))


def _drain(standing: Standing, fleet: Fleet, workloads: tuple[Workload, ...], desk: Desk) -> Step:
    policy = fleet.policy.drain
    left = drained_pods(workloads, policy.pod_selector)
    if not left:
        return _restart(standing, fleet)
    leaving = ask_to_leave(left, Rules(policy.force, policy.delete_empty_dir), desk, "drain for a driver upgrade")
    until = _deadline(standing, policy.timeout_seconds)
    if until is not None and fleet.now >= until:
        why = f"it was not drained within {policy.timeout_seconds} s: {leaving.describe(len(left))}"
        return _give_up(standing, fleet, why)
    return Step(evictions=leaving.evictions, waits=leaving.describe(len(left)), until=_ask_again(fleet, until))


def _restart(standing: Standing, fleet: Fleet) -> Step:
    why = "operands are paused and the driver is replaced"
    return _to(enter(standing, State.RESTART, fleet.now, why), say(standing.node, why))


def _driver_went(standing: Standing, fleet: Fleet) -> Step:
    """The old driver went by other hands, or is the right one again: what is there has to be valid."""
    state = State.RESTART if standing.pod_of(Operand.DRIVER) is None else State.VALIDATION
    return _to(enter(standing, state, fleet.now, "the old driver is gone already"))


def _swap(standing: Standing, fleet: Fleet, desk: Desk) -> Step:
    stale = stale_pod(standing)
    if stale is None:
        return _await_driver(standing, fleet)
    if not reached_target(standing):
        told: Texts = {
            UPGRADE_TARGET_ANNOTATION: target_of(standing),
            UPGRADE_STEP_START_ANNOTATION: clock_text(fleet.now),
        }
        return _to(patch(standing.node, "the policy wants another driver by now", annotations=told))
    start = step_start(standing.node)
    if start is not None and stale.created > start:
        return _await_daemon_set(standing, fleet)
    users = _users_of_driver(standing, fleet, desk)
    if users is not None:
        timeout = fleet.policy.gpu_pod_deletion.timeout_seconds
        until = _deadline(standing, timeout)
        if until is not None and fleet.now >= until:
            return _give_up(standing, fleet, f"the driver was still in use after {timeout} s: {users.waits}")
        return msgspec.structs.replace(users, until=_ask_again(fleet, until))
    if standing.pool is not None and standing.node.labels.get(POOL_LABEL) != standing.pool.name:
        return _to(patch(standing.node, f"driver pool {standing.pool.name}", labels={POOL_LABEL: standing.pool.name}))
    return Step(deletions=(DeletePod(stale, "driver upgrade"),), waits="waits for its old driver to go")


def _await_daemon_set(standing: Standing, fleet: Fleet) -> Step:
    """The driver was replaced by an old one again: deleting that as well would only go on for ever."""
    timeout = fleet.policy.driver_timeout_seconds
    until = _deadline(standing, timeout)
    if until is not None and fleet.now >= until:
        return _give_up(standing, fleet, f"its DaemonSet still made the old driver after {timeout} s")
    return Step(waits="its DaemonSet still makes the old driver", until=until)


def _users_of_driver(standing: Standing, fleet: Fleet, desk: Desk) -> Step | None:
    """What still uses the old driver: paused operands, and GPU pods. None: nothing does.

    A driver that is unloaded under its users leaves a module that cannot be loaded again without a reboot.
    """
    paused = dependents(Operand.DRIVER)
    operands = sorted(pod.name for pod in standing.pods if pod.operand in paused)
    if operands:
        return Step(waits=f"waits for the operand's pod {operands[0]} to leave")
    workloads = fleet.workloads.get(standing.node.name)
    if workloads is None:
        return Step(waits=UNKNOWN_PODS)
    left = gpu_pods(workloads)
    if not left:
        return None
    policy = fleet.policy.gpu_pod_deletion
    leaving = ask_to_leave(left, Rules(policy.force, policy.delete_empty_dir), desk, "driver upgrade")
    return Step(evictions=leaving.evictions, waits=leaving.describe(len(left)))


def _await_driver(standing: Standing, fleet: Fleet) -> Step:
    pod, trouble = standing.pod_of(Operand.DRIVER), _trouble(standing)
    if pod is not None and pod.ready:
        return _to(enter(standing, State.VALIDATION, fleet.now, "the new driver is ready"))
    if pod is not None and pod.restarts > MAX_RESTARTS:
        return _regress(standing, fleet, f"the new driver was restarted {pod.restarts} times{trouble}")
    timeout = fleet.policy.driver_timeout_seconds
    # The clock of the state began before the old driver went.
    since = pod.created if pod is not None else (step_start(standing.node) or fleet.now) + _emptying_s(fleet)
    until = max(since, step_start(standing.node) or 0.0) + timeout if timeout else None
    if until is not None and fleet.now >= until:
        return _regress(standing, fleet, f"the new driver was not ready within {timeout} s{trouble}")
    return Step(waits=f"waits for its new driver{trouble}", until=until)


def _validate(standing: Standing, fleet: Fleet, desk: Desk) -> Step:
    if stale_pod(standing) is not None:
        return _to(enter(standing, State.RESTART, fleet.now, "the policy wants another driver by now"))
    if is_valid(standing):
        return _to(enter(standing, State.UNCORDON, fleet.now, "the node is valid"))
    pod = standing.pod_of(Operand.DRIVER)
    if pod is not None and not pod.ready and pod.restarts > MAX_RESTARTS:
        return _regress(standing, fleet, f"the new driver was restarted {pod.restarts} times{_trouble(standing)}")
    timeout = fleet.policy.validation_timeout_seconds
    until = _deadline(standing, timeout)
    if until is not None and fleet.now >= until:
        return _regress(standing, fleet, f"it was not valid within {timeout} s{_unready(standing)}")
    return Step(waits=f"waits for its validation{_unready(standing)}", until=until)


def _uncordon(standing: Standing, fleet: Fleet, desk: Desk) -> Step:
    done = finish(standing, fleet.now)
    return _to(done, say(standing.node, done.why))


def _give_up(standing: Standing, fleet: Fleet, why: str) -> Step:
    """Before anything was touched."""
    return _to(fail(standing, fleet.now, why, touched=False), say(standing.node, why, warning=True))


def _regress(standing: Standing, fleet: Fleet, why: str) -> Step:
    return _to(fail(standing, fleet.now, why, touched=True), say(standing.node, why, warning=True))


def _deadline(standing: Standing, timeout_s: float) -> float | None:
    """When the present step has taken too long; None: never (0 means no limit)."""
    start = step_start(standing.node)
    return start + timeout_s if timeout_s and start is not None else None


def _emptying_s(fleet: Fleet) -> float:
    return float(fleet.policy.gpu_pod_deletion.timeout_seconds)


def _ask_again(fleet: Fleet, until: float | None) -> float:
    again = fleet.now + ASK_AGAIN_S
    return again if until is None else min(again, until)


def _trouble(standing: Standing) -> str:
    """What is wrong with its driver's pod, as the end of a sentence."""
    pod = standing.pod_of(Operand.DRIVER)
    if pod is None:
        is_going = any(each.operand == Operand.DRIVER for each in standing.pods)
        return ": its old pod has not gone" if is_going else ": it has no pod"
    return f": {pod.message or pod.trouble}" if pod.trouble or pod.message else ""


def _unready(standing: Standing) -> str:
    """The first operand that is not ready, and why."""
    for operand in standing.operands.values():
        if operand.state not in ("ready", "excluded"):
            return f": {operand.operand} is {operand.state}{': ' + operand.message if operand.message else ''}"
    return ""


_STEPS: dict[State, Callable[[Standing, Fleet, Desk], Step]] = {
    State.CORDON: _cordon,
    State.RESTART: _swap,
    State.VALIDATION: _validate,
    State.UNCORDON: _uncordon,
}
