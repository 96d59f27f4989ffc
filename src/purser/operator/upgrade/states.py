"""The states of a node's driver upgrade, and what is read off a node and its standing."""

import math
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from purser.operator.model import Budget, NodeView, PodView, Standing, Workload
from purser.operator.names import (
    CORDONED_BY_ANNOTATION,
    DEPLOY,
    PAUSED_FOR_UPGRADE,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_SKIP_LABEL,
    UPGRADE_STATE_LABEL,
    UPGRADE_STEP_START_ANNOTATION,
    UPGRADE_TARGET_ANNOTATION,
)
from purser.operator.order import Operand
from purser.operator.policy.driver import UpgradePolicy

SKEW_S = 60.0
"""By so much the clocks of two operators may differ."""

CORDON_MARK = "driver-upgrade"
"""Value of `CORDONED_BY_ANNOTATION` on nodes that an upgrade cordoned."""

REQUESTED = "true"
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


UNDER_WAY = frozenset(
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
EMPTYING = frozenset({State.JOBS, State.PODS, State.DRAIN})
"""The old driver is untouched, and workloads leave."""


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an upgrade is decided from."""

    now: float
    policy: UpgradePolicy
    resume: str
    """The target whose halted upgrade goes on; empty: none."""
    policy_ref: tuple[str, str]
    """Name and uid of the ClusterPolicy, for events."""
    standings: tuple[Standing, ...]
    workloads: Mapping[str, tuple[Workload, ...]] = {}
    """By node; of a node that is not there nothing is known."""
    budgets: tuple[Budget, ...] = ()
    busy: frozenset[str] = frozenset()
    """Nodes in a MIG change, or whose driver goes with a reboot: not begun."""


def state_of(node: NodeView) -> State:
    """Where a node is. A word that is none of ours counts as unknown."""
    try:
        return State(node.labels.get(UPGRADE_STATE_LABEL, ""))
    except ValueError:
        return State.UNKNOWN


def is_under_way(node: NodeView) -> bool:
    """An upgrade has begun on the node and has not ended."""
    return state_of(node) in UNDER_WAY


def bars_mig(node: NodeView) -> bool:
    """No MIG change may begin on the node. During validation one may: MIG devices do not outlive a driver, and a node
    that is in MIG mode and has none would never be valid."""
    return is_under_way(node) and state_of(node) is not State.VALIDATION


def pause_of(node: NodeView) -> str | None:
    """What operands that need the driver are paused for, while it is replaced."""
    return PAUSED_FOR_UPGRADE if state_of(node) is State.RESTART else None


def needs_workloads(node: NodeView) -> bool:
    """The next step on this node depends on the pods that run there."""
    state = state_of(node)
    return state in EMPTYING or state is State.RESTART


def is_managed(standing: Standing) -> bool:
    """Its driver is the operator's to replace: not the node's own, not ruled out, not excluded by the user."""
    driver = standing.operands.get(Operand.DRIVER)
    return standing.pool is not None and not standing.obstacle and driver is not None and driver.state != "excluded"


def stale_pod(standing: Standing) -> PodView | None:
    """The driver's pod that is to be replaced: of another template or pool, or one that somebody wants restarted."""
    pod = standing.pod_of(Operand.DRIVER)
    if pod is None or not is_managed(standing):
        return None
    asked = standing.node.annotations.get(UPGRADE_REQUESTED_ANNOTATION) in (REQUESTED, pod.uid)
    return pod if asked or not standing.driver_is_current else None


def is_due(standing: Standing) -> bool:
    """It needs an upgrade. So does a node that waits for a second one after a first that failed half-way."""
    half_way = state_of(standing.node) is State.REQUIRED and cordon_is_ours(standing.node)
    return is_managed(standing) and (stale_pod(standing) is not None or half_way)


def passed_over(standing: Standing) -> str:
    """Why an upgrade does not begin on a node whose turn it is; empty: it may."""
    if standing.node.labels.get(UPGRADE_SKIP_LABEL) == DEPLOY:
        return f"its label {UPGRADE_SKIP_LABEL} says so"
    return "" if standing.node.ready else "it is NotReady"


def cordon_is_ours(node: NodeView) -> bool:
    """The cordon was set by an upgrade, and may be lifted by one."""
    return node.annotations.get(CORDONED_BY_ANNOTATION) == CORDON_MARK


def target_of(standing: Standing) -> str:
    """What an upgrade of the node leads to."""
    return standing.pool.target if standing.pool is not None else ""


def reached_target(standing: Standing) -> bool:
    """The node's last upgrade led to what the policy wants now."""
    return standing.node.annotations.get(UPGRADE_TARGET_ANNOTATION) == target_of(standing)


def step_start(node: NodeView) -> float | None:
    """Since when the node is in its state; None: the clock stands still, or what is written there is no time."""
    try:
        start = float(node.annotations[UPGRADE_STEP_START_ANNOTATION])
    except (KeyError, ValueError):
        return None
    return start if math.isfinite(start) else None


def has_clock(node: NodeView, now: float) -> bool:
    """Something is known about since when. A time that is still to come would never run out."""
    start = step_start(node)
    return start is not None and start <= now + SKEW_S


def state_name(operand: Operand, standing: Standing) -> str:
    """How far an operand is on a node; empty where it is disabled."""
    found = standing.operands.get(operand)
    return found.state if found is not None else ""


def is_valid(standing: Standing) -> bool:
    """The node's new driver does its work: as the validator says, or what stands in for it where that is disabled."""
    judges = (Operand.VALIDATOR, Operand.DEVICE_PLUGIN, Operand.DRIVER)
    judge = next(each for each in judges if state_name(each, standing) not in ("", "excluded"))
    driver, witness = standing.pod_of(Operand.DRIVER), standing.pod_of(judge)
    if driver is None or witness is None or not driver.ready:
        return False
    is_fresh = judge is not Operand.VALIDATOR or witness.created >= driver.created
    return witness.ready and is_fresh and state_name(judge, standing) == "ready"
