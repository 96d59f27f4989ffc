"""Pods leave a node, and its old driver runs until they are gone."""

from purser.operator.model import NodeWorkload, Standing
from purser.operator.nodework.clocks import deadline, is_over
from purser.operator.nodework.disruption import DisruptionLedger
from purser.operator.nodework.evicting import Rules, ask_to_leave, drained_pods, evictable_gpu_pods, jobs
from purser.operator.nodework.steps import UNKNOWN_PODS, NodeStep, ask_again, to
from purser.operator.order import Operand
from purser.operator.policy.driver import Drain, PodDeletion
from purser.operator.upgrade.failing import give_up
from purser.operator.upgrade.states import State, UpgradeInputs, restarts_only, stale_pod, state_of, step_start
from purser.operator.upgrade.writing import enter, hold_back, say
from purser.operator.wording import counted


def empty(standing: Standing, fleet: UpgradeInputs, ledger: DisruptionLedger) -> NodeStep:
    """One step of those that have pods leave."""
    workloads = fleet.workloads.get(standing.node.name)
    if stale_pod(standing) is None:
        return _driver_went(standing, fleet)
    if restarts_only(standing):
        return to(hold_back(standing, fleet, "by now its driver is only to be restarted: pods may stay"))
    if workloads is None:
        return NodeStep(waits=UNKNOWN_PODS)
    if state_of(standing.node) is State.JOBS:
        return _jobs(standing, fleet, workloads)
    return _evict(standing, fleet, workloads, ledger)


def _jobs(standing: Standing, fleet: UpgradeInputs, workloads: tuple[NodeWorkload, ...]) -> NodeStep:
    policy = fleet.policy.wait_for_completion
    left = jobs(workloads, policy.pod_selector)
    if not left:
        return to(enter(standing, State.PODS, fleet.now, "no job is left to wait for"))
    until = deadline(step_start(standing.node), policy.timeout_seconds)
    if is_over(until, fleet.now):
        why = f"{counted(len(left), 'job')}: not waited for any longer ({policy.timeout_seconds} s)"
        return to(enter(standing, State.PODS, fleet.now, why), say(standing.node, why, warning=True))
    return NodeStep(waits=f"waits for the job {left[0].namespace}/{left[0].name}", until=until)


def _evict(
    standing: Standing, fleet: UpgradeInputs, workloads: tuple[NodeWorkload, ...], ledger: DisruptionLedger
) -> NodeStep:
    """GPU pods leave; where they did not in time, and the policy says so, what a drain evicts."""
    policy, drains = fleet.policy, state_of(standing.node) is State.DRAIN
    section: PodDeletion | Drain = policy.drain if drains else policy.gpu_pod_deletion
    left = drained_pods(workloads, policy.drain.pod_selector) if drains else evictable_gpu_pods(workloads)
    if not left:
        return _emptied(standing, fleet)
    reason = "drain for a driver upgrade" if drains else "driver upgrade"
    leaving = ask_to_leave(left, Rules.of(section), ledger, reason)
    waits, until = leaving.describe(len(left)), deadline(step_start(standing.node), section.timeout_seconds)
    if not is_over(until, fleet.now):
        return NodeStep(evictions=leaving.evictions, waits=waits, until=ask_again(fleet.now, until))
    if drains:
        return give_up(standing, fleet, f"it was not drained within {section.timeout_seconds} s: {waits}")
    why = f"GPU pods did not leave within {section.timeout_seconds} s: {waits}"
    if policy.drain.enable:
        return to(enter(standing, State.DRAIN, fleet.now, why), say(standing.node, why, warning=True))
    return give_up(standing, fleet, why)


def _emptied(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    why = "operands are paused and the driver is replaced"
    return to(enter(standing, State.RESTART, fleet.now, why), say(standing.node, why))


def _driver_went(standing: Standing, fleet: UpgradeInputs) -> NodeStep:
    """The old driver went by other hands, or is the right one again: what is there has to be valid."""
    state = State.RESTART if standing.pod_of(Operand.DRIVER) is None else State.VALIDATION
    return to(enter(standing, state, fleet.now, "the old driver is gone already"))
