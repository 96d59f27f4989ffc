"""The states of a node's driver upgrade, and what is read off a node and its progress."""

import math
from enum import StrEnum

from purser.core.names import POOL_LABEL, UPGRADE_STATE_LABEL
from purser.operator.maintenance import CordonOwner, NodeWork, is_cordoned_by, is_in_future
from purser.operator.model import IsolatedNode, NodeProgress, NodeView, OperandPod
from purser.operator.names import (
    LABEL_TRUE,
    PAUSED_FOR_UPGRADE,
    UPGRADE_AWAY_SINCE_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_RESTART_ONLY_ANNOTATION,
    UPGRADE_SKIP_LABEL,
    UPGRADE_STEP_START_ANNOTATION,
    UPGRADE_TARGET_ANNOTATION,
)
from purser.operator.order import Operand

REQUESTED_VALUE = "true"
"""Value of `UPGRADE_REQUESTED_ANNOTATION` as people write it. While the upgrade runs it is the uid of the pod to go."""


class State(StrEnum):
    """Values of the label ``nvidia.com/gpu-driver-upgrade-state``, in the order in which a node goes through them."""

    UNKNOWN = ""
    REQUIRED = "upgrade-required"
    CORDON = "cordon-required"
    JOBS = "wait-for-jobs-required"
    PODS = "pod-deletion-required"
    DRAIN = "drain-required"
    RESTART = "pod-restart-required"
    VALIDATION = "validation-required"
    UNCORDON = "uncordon-required"
    DONE = "upgrade-done"
    FAILED = "upgrade-failed"


STATES_UNDER_WAY = frozenset(
    {
        State.CORDON,
        State.JOBS,
        State.PODS,
        State.DRAIN,
        State.RESTART,
        State.VALIDATION,
        State.UNCORDON,
    }
)
EMPTYING_STATES = frozenset({State.JOBS, State.PODS, State.DRAIN})
"""The old driver is untouched, and workloads leave."""


class UpgradeInputs(NodeWork, frozen=True, kw_only=True):
    """Everything that an upgrade is decided from."""

    resume: str
    """The targets whose halted upgrade goes on, as the status names them: separated by commas; empty: none."""
    policy_ref: tuple[str, str]
    """Name and uid of the ClusterPolicy, for events."""
    held: frozenset[str] = frozenset()
    """Nodes that a MIG change drains or reconfigures: unavailable, even if their cordon is lifted."""
    isolated: tuple[IsolatedNode, ...] = ()
    """Nodes without progress here, because something fails on them: what they may be counts all the same."""
    outdated_daemonsets: frozenset[str] = frozenset()
    """Drivers' DaemonSets that are not live as the policy says, or not seen so by their controller: what they would
    make in place of a driver that goes is the same one again, or nothing."""


def state_of(node: NodeView) -> State:
    """Where a node is. A word that is none of ours counts as unknown."""
    return _STATES.get(node.labels.get(UPGRADE_STATE_LABEL, ""), State.UNKNOWN)


_STATES = {state.value: state for state in State}


def is_under_way(node: NodeView) -> bool:
    """An upgrade has begun on the node and has not ended."""
    return state_of(node) in STATES_UNDER_WAY


def blocks_mig(node: NodeView) -> bool:
    """No MIG change may begin on the node. During validation one may: MIG devices do not outlive a driver, and a node
    that is in MIG mode and has none would never be valid."""
    return is_under_way(node) and state_of(node) is not State.VALIDATION


def pause_of(node: NodeView) -> str | None:
    """What operands that need the driver are paused for, while it is replaced. One that is only restarted: nothing."""
    return PAUSED_FOR_UPGRADE if _unloads_driver(node) else None


def needs_workloads(node: NodeView) -> bool:
    """The next step on this node depends on the pods that run there."""
    return state_of(node) in EMPTYING_STATES or _unloads_driver(node)


def _unloads_driver(node: NodeView) -> bool:
    return state_of(node) is State.RESTART and UPGRADE_RESTART_ONLY_ANNOTATION not in node.annotations


def is_managed(progress: NodeProgress) -> bool:
    """Its driver is the operator's to replace: not the node's own, not ruled out, not excluded by the user."""
    driver = progress.operands.get(Operand.DRIVER)
    return progress.pool is not None and not progress.obstacle and driver is not None and driver.state != "excluded"


def stale_pod(progress: NodeProgress) -> OperandPod | None:
    """The driver's pod that is to be replaced: of another template or pool, or one whose restart was requested."""
    pod = progress.pod_of(Operand.DRIVER)
    if pod is None or not is_managed(progress):
        return None
    return pod if _is_requested(progress, pod) or not progress.driver_is_current else None


def _is_requested(progress: NodeProgress, driver: OperandPod) -> bool:
    return progress.node.annotations.get(UPGRADE_REQUESTED_ANNOTATION) in (REQUESTED_VALUE, driver.uid)


def is_restart_only(progress: NodeProgress) -> bool:
    """Its driver's pod is to be replaced by one that is loaded from the very same: what is loaded stays loaded, and in
    use. Where people ask for a restart they mean the driver, and not its pod."""
    pod, pool = stale_pod(progress), progress.pool
    if pod is None or pool is None or _is_requested(progress, pod):
        return False
    loaded = progress.driver_template.configuration
    stays = pod.daemon_set == pool.daemon_set and progress.node.labels.get(POOL_LABEL) == pool.name
    return stays and bool(loaded) and pod.driver_config == loaded


def is_due(progress: NodeProgress) -> bool:
    """It needs an upgrade. So does a node that waits for a second one after a first that failed half-way."""
    half_way = state_of(progress.node) is State.REQUIRED and is_cordoned_by(progress.node, CordonOwner.UPGRADE)
    return is_managed(progress) and (stale_pod(progress) is not None or half_way)


def daemonset_problem(progress: NodeProgress, fleet: UpgradeInputs) -> str:
    """That the node's driver cannot come yet, in one sentence's end; empty: it can, or is there."""
    pool = progress.pool
    if pool is None or pool.daemon_set not in fleet.outdated_daemonsets:
        return ""
    is_there = progress.pod_of(Operand.DRIVER) is not None and stale_pod(progress) is None
    return "" if is_there else f"DaemonSet {pool.daemon_set} does not match the policy yet"


def is_untouched(progress: NodeProgress) -> bool:
    """The node's upgrade has begun, and its old driver still runs: it can be given back as it was."""
    state = state_of(progress.node)
    return (
        state in EMPTYING_STATES
        or state is State.CORDON
        or (state is State.RESTART and stale_pod(progress) is not None)
    )


def not_ready_deadline(node: NodeView, fleet: UpgradeInputs) -> float | None:
    """Until when a node that went away without its old driver keeps its turn; None: that is not written down."""
    since = _time(node, UPGRADE_AWAY_SINCE_ANNOTATION)
    return None if since is None or is_in_future(since, fleet.now) else since + fleet.policy.driver_timeout_seconds


def skip_reason(progress: NodeProgress) -> str:
    """Why an upgrade does not begin on a node whose turn it is; empty: it may."""
    if progress.node.labels.get(UPGRADE_SKIP_LABEL) == LABEL_TRUE:
        return f"label {UPGRADE_SKIP_LABEL} is set"
    return progress.untolerated if progress.node.ready else "the node is NotReady"


def is_blocked_by_taint(progress: NodeProgress) -> bool:
    """It would have another driver but for a taint: people do not keep it from that."""
    return (
        bool(progress.untolerated) and is_due(progress) and progress.node.labels.get(UPGRADE_SKIP_LABEL) != LABEL_TRUE
    )


def reached_target(progress: NodeProgress) -> bool:
    """The node's last upgrade led to what the policy wants now."""
    return progress.node.annotations.get(UPGRADE_TARGET_ANNOTATION) == progress.target


def is_resumed(progress: NodeProgress, fleet: UpgradeInputs) -> bool:
    """People know that what it is upgraded to does not work everywhere, and want it all the same."""
    return progress.target in {each.strip() for each in fleet.resume.split(",")} - {""}


def step_start(node: NodeView) -> float | None:
    """Since when the node is in its state; None: the clock stands still, or what is written there is no time."""
    return _time(node, UPGRADE_STEP_START_ANNOTATION)


def _time(node: NodeView, annotation: str) -> float | None:
    try:
        moment = float(node.annotations[annotation])
    except (KeyError, ValueError):
        return None
    return moment if math.isfinite(moment) else None


def has_known_start(node: NodeView, now: float) -> bool:
    """Something is known about since when."""
    start = step_start(node)
    return start is not None and not is_in_future(start, now)


def state_name(operand: Operand, progress: NodeProgress) -> str:
    """How far an operand is on a node; empty where it is disabled."""
    found = progress.operands.get(operand)
    return found.state if found is not None else ""


def is_valid(progress: NodeProgress) -> bool:
    """The node's new driver does its work: as the validator says, or what stands in for it where that is disabled."""
    judging_operands = (Operand.VALIDATOR, Operand.DEVICE_PLUGIN, Operand.DRIVER)
    judge = next(each for each in judging_operands if state_name(each, progress) not in ("", "excluded"))
    driver, judging_pod = progress.pod_of(Operand.DRIVER), progress.pod_of(judge)
    if driver is None or judging_pod is None or not driver.ready:
        return False
    is_stale = judge is Operand.VALIDATOR and progress.validation_is_stale
    return judging_pod.ready and not is_stale and state_name(judge, progress) == "ready"
