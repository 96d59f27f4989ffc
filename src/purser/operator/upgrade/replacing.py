"""The old driver goes, the new one comes, and the node has to be valid with it."""

import msgspec

from purser.core.names import POOL_LABEL
from purser.operator.maintenance import (
    UNKNOWN_PODS,
    DisruptionLedger,
    EvictionPlan,
    NodeStep,
    NodeTexts,
    deadline,
    gpu_pods,
    is_over,
    next_eviction_time,
    patch,
    request_evictions,
    write_step,
)
from purser.operator.model import DeletePod, NodeProgress, PatchNode
from purser.operator.names import (
    UPGRADE_OLD_DRIVER_LEFT_ANNOTATION,
    UPGRADE_RESTART_ONLY_ANNOTATION,
    UPGRADE_STEP_START_ANNOTATION,
    UPGRADE_TARGET_ANNOTATION,
)
from purser.operator.order import Operand, dependents
from purser.operator.upgrade.states import (
    State,
    UpgradeInputs,
    is_restart_only,
    is_valid,
    reached_target,
    stale_pod,
    step_start,
)
from purser.operator.upgrade.writes import (
    clock_text,
    cordon_and_continue,
    describe_unready_operand,
    driver_problem,
    enter,
    fail_and_stay_cordoned,
    fail_and_uncordon,
)

MAX_RESTARTS = 10
"""A new driver whose container was restarted more often has failed (the number of NVIDIA's own upgrades)."""

OTHER_DRIVER_MESSAGE = "the policy now requests a different driver"


def replace(progress: NodeProgress, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep:
    """Once nothing uses the old driver its pod is deleted; then the new one is waited for."""
    stale, keeps_users = stale_pod(progress), UPGRADE_RESTART_ONLY_ANNOTATION in progress.node.annotations
    if stale is None:
        return _await_driver(progress, fleet, ledger)
    if keeps_users and not is_restart_only(progress):
        return write_step(
            cordon_and_continue(
                progress, fleet, f"{OTHER_DRIVER_MESSAGE}, so pods that use the old driver have to be evicted"
            )
        )
    if not reached_target(progress):
        annotations: NodeTexts = {
            UPGRADE_TARGET_ANNOTATION: progress.target,
            UPGRADE_STEP_START_ANNOTATION: clock_text(fleet.now),
            UPGRADE_OLD_DRIVER_LEFT_ANNOTATION: None,
        }
        return write_step(patch(progress.node, OTHER_DRIVER_MESSAGE, annotations=annotations))
    start = step_start(progress.node)
    if start is not None and stale.created > start:
        return _await_daemon_set(progress, fleet)
    users = None if keeps_users else _evict_driver_users(progress, fleet, ledger)
    if users is not None:
        timeout = fleet.policy.gpu_pod_deletion.timeout_seconds
        until = deadline(step_start(progress.node), timeout)
        if is_over(until, fleet.now):
            return fail_and_uncordon(progress, fleet, f"the driver was still in use after {timeout} s: {users.waits}")
        return msgspec.structs.replace(users, until=next_eviction_time(fleet.now, until))
    if progress.pool is not None and progress.node.labels.get(POOL_LABEL) != progress.pool.name:
        return write_step(
            patch(progress.node, f"driver pool {progress.pool.name}", labels={POOL_LABEL: progress.pool.name})
        )
    return NodeStep(
        deletions=(DeletePod(stale, "driver upgrade"),), waits="waiting for the old driver pod to terminate"
    )


def validate(progress: NodeProgress, fleet: UpgradeInputs, _: DisruptionLedger) -> NodeStep:
    """The new driver is ready; the operands that need it are to be, too."""
    if stale_pod(progress) is not None:
        if progress.node.name in fleet.held:  # MIG changes may begin during validation, and end by themselves
            return NodeStep(waits=f"{OTHER_DRIVER_MESSAGE}, and a MIG change is in progress on the node")
        return write_step(cordon_and_continue(progress, fleet, OTHER_DRIVER_MESSAGE))
    if is_valid(progress):
        return write_step(enter(progress, State.UNCORDON, fleet.now, "validation passed"))
    pod = progress.pod_of(Operand.DRIVER)
    if pod is not None and not pod.ready and pod.restarts > MAX_RESTARTS:
        return fail_and_stay_cordoned(
            progress, fleet, f"the new driver was restarted {pod.restarts} times{driver_problem(progress)}"
        )
    timeout = fleet.policy.validation_timeout_seconds
    until = deadline(step_start(progress.node), timeout)
    if is_over(until, fleet.now):
        return fail_and_stay_cordoned(
            progress, fleet, f"validation did not pass within {timeout} s{describe_unready_operand(progress)}"
        )
    return NodeStep(waits=f"waiting for validation{describe_unready_operand(progress)}", until=until)


def _await_daemon_set(progress: NodeProgress, fleet: UpgradeInputs) -> NodeStep:
    """The driver was replaced by an old one again: deleting that as well would only go on for ever."""
    timeout = fleet.policy.driver_timeout_seconds
    until = deadline(step_start(progress.node), timeout)
    if is_over(until, fleet.now):
        return fail_and_uncordon(
            progress, fleet, f"the DaemonSet was still creating the old driver pod after {timeout} s"
        )
    return NodeStep(waits="the DaemonSet still creates the old driver pod", until=until)


def _evict_driver_users(progress: NodeProgress, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep | None:
    """Evict the GPU pods that use the old driver, once paused operands have left it. None: nothing uses it any more.

    A driver that is unloaded under its users leaves a module that cannot be loaded again without a reboot.
    """
    paused = dependents(Operand.DRIVER)
    operands = sorted(pod.name for pod in progress.pods if pod.operand in paused)
    if operands:
        return NodeStep(waits=f"waiting for operand pod {operands[0]} to terminate")
    workloads = fleet.workloads.get(progress.node.name)
    if workloads is None:
        return NodeStep(waits=UNKNOWN_PODS)
    left = gpu_pods(workloads)
    if not left:
        return None
    leaving = request_evictions(left, fleet.rules, ledger, "driver upgrade")
    return NodeStep(evictions=leaving.evictions, waits=leaving.describe(left))


def _await_driver(progress: NodeProgress, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep:
    pod = progress.pod_of(Operand.DRIVER)
    if pod is not None and pod.ready:
        return write_step(enter(progress, State.VALIDATION, fleet.now, "the new driver is ready"))
    if _is_restart_only_outdated(progress):
        why = "the new driver differs from the loaded driver, so pods that use the loaded driver must be evicted"
        return write_step(patch(progress.node, why, annotations={UPGRADE_RESTART_ONLY_ANNOTATION: None}))
    leaving = _evict_remaining_users(progress, fleet, ledger)
    detail = "".join((driver_problem(progress), *(f"; {each}" for each in leaving.staying[:1])))
    if pod is not None and pod.restarts > MAX_RESTARTS:
        return fail_and_stay_cordoned(progress, fleet, f"the new driver was restarted {pod.restarts} times{detail}")
    waits = f"waiting for the new driver{detail}"
    if pod is None and UPGRADE_OLD_DRIVER_LEFT_ANNOTATION not in progress.node.annotations:
        return NodeStep(patch=_driver_deadline(progress, fleet), evictions=leaving.evictions, waits=waits)
    timeout = fleet.policy.driver_timeout_seconds
    start = step_start(progress.node) or fleet.now
    since = max(start, pod.created) if pod is not None else start
    until = deadline(since, timeout)
    if is_over(until, fleet.now):
        return fail_and_stay_cordoned(progress, fleet, f"the new driver was not ready within {timeout} s{detail}")
    again = next_eviction_time(fleet.now, until) if leaving.evictions else until
    return NodeStep(evictions=leaving.evictions, waits=waits, until=again)


def _driver_deadline(progress: NodeProgress, fleet: UpgradeInputs) -> PatchNode:
    """The state began before its users left, which may have taken any time."""
    began = clock_text(fleet.now)
    annotations: NodeTexts = {UPGRADE_STEP_START_ANNOTATION: began, UPGRADE_OLD_DRIVER_LEFT_ANNOTATION: began}
    return patch(progress.node, "the old driver pod is gone", annotations=annotations)


def _is_restart_only_outdated(progress: NodeProgress) -> bool:
    """Its pods were left alone for a driver that stays the same, and the policy changed while that was replaced."""
    kept = progress.node.annotations.get(UPGRADE_RESTART_ONLY_ANNOTATION)
    return kept is not None and progress.pool is not None and kept != progress.driver_template.configuration


def _evict_remaining_users(progress: NodeProgress, fleet: UpgradeInputs, ledger: DisruptionLedger) -> EvictionPlan:
    """Evict the GPU pods of a driver that went by other hands than the upgrade's: under them the new one cannot be
    loaded."""
    if UPGRADE_RESTART_ONLY_ANNOTATION in progress.node.annotations:
        return EvictionPlan()
    left = [pod for pod in gpu_pods(fleet.workloads.get(progress.node.name, ())) if pod.phase == "Running"]
    return request_evictions(left, fleet.rules, ledger, "driver upgrade")
