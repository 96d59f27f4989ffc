"""The old driver goes, the new one comes, and the node has to be valid with it."""

import msgspec

from purser.operator.maintenance import (
    UNKNOWN_PODS,
    DisruptionLedger,
    Leaving,
    NodeStep,
    Texts,
    ask_again,
    ask_to_leave,
    deadline,
    gpu_pods,
    is_over,
    patch,
    to,
)
from purser.operator.model import DeletePod, PatchNode, Standing
from purser.operator.names import (
    POOL_LABEL,
    UPGRADE_OLD_DRIVER_LEFT_ANNOTATION,
    UPGRADE_RESTART_ONLY_ANNOTATION,
    UPGRADE_STEP_START_ANNOTATION,
    UPGRADE_TARGET_ANNOTATION,
)
from purser.operator.order import Operand, dependents
from purser.operator.upgrade.states import (
    State,
    UpgradeInputs,
    is_valid,
    reached_target,
    restarts_only,
    stale_pod,
    step_start,
)
from purser.operator.upgrade.writes import clock_text, enter, give_up, hold_back, regress, trouble, unready

MAX_RESTARTS = 10
"""A new driver whose container was restarted more often has failed (the number of NVIDIA's own upgrades)."""

OTHER_DRIVER = "the policy wants another driver by now"


def replace(standing: Standing, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep:
    """Once nothing uses the old driver it is told to go; then the new one is waited for."""
    stale, keeps_users = stale_pod(standing), UPGRADE_RESTART_ONLY_ANNOTATION in standing.node.annotations
    if stale is None:
        return _await_driver(standing, fleet, ledger)
    if keeps_users and not restarts_only(standing):
        return to(hold_back(standing, fleet, f"{OTHER_DRIVER}, and its users have to leave"))
    if not reached_target(standing):
        told: Texts = {
            UPGRADE_TARGET_ANNOTATION: standing.target,
            UPGRADE_STEP_START_ANNOTATION: clock_text(fleet.now),
            UPGRADE_OLD_DRIVER_LEFT_ANNOTATION: None,
        }
        return to(patch(standing.node, OTHER_DRIVER, annotations=told))
    start = step_start(standing.node)
    if start is not None and stale.created > start:
        return _await_daemon_set(standing, fleet)
    users = None if keeps_users else _users_of_driver(standing, fleet, ledger)
    if users is not None:
        timeout = fleet.policy.gpu_pod_deletion.timeout_seconds
        until = deadline(step_start(standing.node), timeout)
        if is_over(until, fleet.now):
            return give_up(standing, fleet, f"the driver was still in use after {timeout} s: {users.waits}")
        return msgspec.structs.replace(users, until=ask_again(fleet.now, until))
    if standing.pool is not None and standing.node.labels.get(POOL_LABEL) != standing.pool.name:
        return to(patch(standing.node, f"driver pool {standing.pool.name}", labels={POOL_LABEL: standing.pool.name}))
    return NodeStep(deletions=(DeletePod(stale, "driver upgrade"),), waits="waits for its old driver to go")


def validate(standing: Standing, fleet: UpgradeInputs, _: DisruptionLedger) -> NodeStep:
    """The new driver is ready; the operands that need it are to be, too."""
    if stale_pod(standing) is not None:
        if standing.node.name in fleet.held:  # MIG changes may begin during validation, and end by themselves
            return NodeStep(waits=f"{OTHER_DRIVER}, and a MIG change is under way there")
        return to(hold_back(standing, fleet, OTHER_DRIVER))
    if is_valid(standing):
        return to(enter(standing, State.UNCORDON, fleet.now, "the node is valid"))
    pod = standing.pod_of(Operand.DRIVER)
    if pod is not None and not pod.ready and pod.restarts > MAX_RESTARTS:
        return regress(standing, fleet, f"the new driver was restarted {pod.restarts} times{trouble(standing)}")
    timeout = fleet.policy.validation_timeout_seconds
    until = deadline(step_start(standing.node), timeout)
    if is_over(until, fleet.now):
        return regress(standing, fleet, f"it was not valid within {timeout} s{unready(standing)}")
    return NodeStep(waits=f"waits for its validation{unready(standing)}", until=until)


def _await_daemon_set(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    """The driver was replaced by an old one again: deleting that as well would only go on for ever."""
    timeout = fleet.policy.driver_timeout_seconds
    until = deadline(step_start(standing.node), timeout)
    if is_over(until, fleet.now):
        return give_up(standing, fleet, f"its DaemonSet still made the old driver after {timeout} s")
    return NodeStep(waits="its DaemonSet still makes the old driver", until=until)


def _users_of_driver(standing: Standing, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep | None:
    """What still uses the old driver: paused operands, and GPU pods. None: nothing does.

    A driver that is unloaded under its users leaves a module that cannot be loaded again without a reboot.
    """
    paused = dependents(Operand.DRIVER)
    operands = sorted(pod.name for pod in standing.pods if pod.operand in paused)
    if operands:
        return NodeStep(waits=f"waits for the operand's pod {operands[0]} to leave")
    workloads = fleet.workloads.get(standing.node.name)
    if workloads is None:
        return NodeStep(waits=UNKNOWN_PODS)
    left = gpu_pods(workloads)
    if not left:
        return None
    leaving = ask_to_leave(left, fleet.rules, ledger, "driver upgrade")
    return NodeStep(evictions=leaving.evictions, waits=leaving.describe(len(left)))


def _await_driver(standing: Standing, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep:
    pod = standing.pod_of(Operand.DRIVER)
    if pod is not None and pod.ready:
        return to(enter(standing, State.VALIDATION, fleet.now, "the new driver is ready"))
    if _lost_its_excuse(standing):
        why = "the driver that comes is another one: its users have to leave after all"
        return to(patch(standing.node, why, annotations={UPGRADE_RESTART_ONLY_ANNOTATION: None}))
    leaving = _late_users(standing, fleet, ledger)
    told = "".join((trouble(standing), *(f"; {each}" for each in leaving.staying[:1])))
    if pod is not None and pod.restarts > MAX_RESTARTS:
        return regress(standing, fleet, f"the new driver was restarted {pod.restarts} times{told}")
    waits = f"waits for its new driver{told}"
    if pod is None and UPGRADE_OLD_DRIVER_LEFT_ANNOTATION not in standing.node.annotations:
        return NodeStep(patch=_drivers_clock(standing, fleet), evictions=leaving.evictions, waits=waits)
    timeout = fleet.policy.driver_timeout_seconds
    start = step_start(standing.node) or fleet.now
    since = max(start, pod.created) if pod is not None else start
    until = deadline(since, timeout)
    if is_over(until, fleet.now):
        return regress(standing, fleet, f"the new driver was not ready within {timeout} s{told}")
    again = ask_again(fleet.now, until) if leaving.evictions else until
    return NodeStep(evictions=leaving.evictions, waits=waits, until=again)


def _drivers_clock(standing: Standing, fleet: UpgradeInputs) -> PatchNode:
    """The state began before its users left, which may have taken any time."""
    began = clock_text(fleet.now)
    told: Texts = {UPGRADE_STEP_START_ANNOTATION: began, UPGRADE_OLD_DRIVER_LEFT_ANNOTATION: began}
    return patch(standing.node, "the old driver has gone or was told to", annotations=told)


def _lost_its_excuse(standing: Standing) -> bool:
    """Its pods were left alone for a driver that stays the same, and the policy changed while that was replaced."""
    kept = standing.node.annotations.get(UPGRADE_RESTART_ONLY_ANNOTATION)
    return kept is not None and standing.pool is not None and kept != standing.driver_template.configuration


def _late_users(standing: Standing, fleet: UpgradeInputs, ledger: DisruptionLedger) -> Leaving:
    """GPU pods of a driver that went by other hands than the upgrade's: under them the new one cannot be loaded."""
    if UPGRADE_RESTART_ONLY_ANNOTATION in standing.node.annotations:
        return Leaving()
    left = [pod for pod in gpu_pods(fleet.workloads.get(standing.node.name, ())) if pod.phase == "Running"]
    return ask_to_leave(left, fleet.rules, ledger, "driver upgrade")
