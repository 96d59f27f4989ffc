"""Pods leave a node, and its old driver runs until they are gone."""

from purser.operator.model import Standing, Workload
from purser.operator.nodework.disruption import DisruptionLedger
from purser.operator.nodework.evicting import Rules, ask_to_leave, drained_pods, evictable_gpu_pods, jobs
from purser.operator.nodework.steps import UNKNOWN_PODS, Step, ask_again, to
from purser.operator.order import Operand
from purser.operator.upgrade.failing import deadline, give_up
from purser.operator.upgrade.states import Fleet, State, restarts_only, stale_pod, state_of
from purser.operator.upgrade.writing import enter, hold_back, say


def empty(standing: Standing, fleet: Fleet, ledger: DisruptionLedger) -> Step:
    """One step of those that have pods leave."""
    state, workloads = state_of(standing.node), fleet.workloads.get(standing.node.name)
    if stale_pod(standing) is None:
        return _driver_went(standing, fleet)
    if restarts_only(standing):
        return to(hold_back(standing, fleet, "by now its driver is only to be restarted: pods may stay"))
    if workloads is None:
        return Step(waits=UNKNOWN_PODS)
    if state is State.JOBS:
        return _jobs(standing, fleet, workloads)
    return (_pods if state is State.PODS else _drain)(standing, fleet, workloads, ledger)


def _jobs(standing: Standing, fleet: Fleet, workloads: tuple[Workload, ...]) -> Step:
    policy = fleet.policy.wait_for_completion
    left = jobs(workloads, policy.pod_selector)
    if not left:
        return to(enter(standing, State.PODS, fleet.now, "no job is left to wait for"))
    until = deadline(standing, policy.timeout_seconds)
    if until is not None and fleet.now >= until:
        why = f"{len(left)} jobs are not waited for any longer ({policy.timeout_seconds} s)"
        return to(enter(standing, State.PODS, fleet.now, why), say(standing.node, why, warning=True))
    return Step(waits=f"waits for the job {left[0].namespace}/{left[0].name}", until=until)


def _pods(standing: Standing, fleet: Fleet, workloads: tuple[Workload, ...], ledger: DisruptionLedger) -> Step:
    policy = fleet.policy.gpu_pod_deletion
    left = evictable_gpu_pods(workloads)
    if not left:
        return _emptied(standing, fleet)
    leaving = ask_to_leave(left, Rules.of(policy), ledger, "driver upgrade")
    until = deadline(standing, policy.timeout_seconds)
    if until is not None and fleet.now >= until:
        why = f"GPU pods did not leave within {policy.timeout_seconds} s: {leaving.describe(len(left))}"
        if fleet.policy.drain.enable:
            return to(enter(standing, State.DRAIN, fleet.now, why), say(standing.node, why, warning=True))
        return give_up(standing, fleet, why)
    waits = leaving.describe(len(left))
    return Step(evictions=leaving.evictions, waits=waits, until=ask_again(fleet.now, until))


def _drain(standing: Standing, fleet: Fleet, workloads: tuple[Workload, ...], ledger: DisruptionLedger) -> Step:
    policy = fleet.policy.drain
    left = drained_pods(workloads, policy.pod_selector)
    if not left:
        return _emptied(standing, fleet)
    leaving = ask_to_leave(left, Rules.of(policy), ledger, "drain for a driver upgrade")
    until = deadline(standing, policy.timeout_seconds)
    if until is not None and fleet.now >= until:
        why = f"it was not drained within {policy.timeout_seconds} s: {leaving.describe(len(left))}"
        return give_up(standing, fleet, why)
    waits = leaving.describe(len(left))
    return Step(evictions=leaving.evictions, waits=waits, until=ask_again(fleet.now, until))


def _emptied(standing: Standing, fleet: Fleet) -> Step:
    why = "operands are paused and the driver is replaced"
    return to(enter(standing, State.RESTART, fleet.now, why), say(standing.node, why))


def _driver_went(standing: Standing, fleet: Fleet) -> Step:
    """The old driver went by other hands, or is the right one again: what is there has to be valid."""
    state = State.RESTART if standing.pod_of(Operand.DRIVER) is None else State.VALIDATION
    return to(enter(standing, state, fleet.now, "the old driver is gone already"))
