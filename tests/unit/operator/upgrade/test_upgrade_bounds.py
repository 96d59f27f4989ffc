"""How many nodes at a time, which ones first, and when no further one begins."""

import msgspec
import pytest
from tests.unit.operator.upgrade.fleets import Cluster, advanced, all_done, marks, names, pod_of, workload

from purser.core.names import POOL_LABEL, UPGRADE_FAILURE_ANNOTATION
from purser.operator.model import Budget, OperandOnNode
from purser.operator.names import UPGRADE_SKIP_LABEL
from purser.operator.order import Operand
from purser.operator.policy.driver import Canary, Drain, PodDeletion, UpgradePolicy, WaitForCompletion
from purser.operator.upgrade import State
from purser.operator.upgrade.budget import fleet_target, halt_reason, turn


def most_at_a_time(cluster: Cluster) -> int:
    most = 0
    for _ in cluster.rounds(300):
        states = cluster.states().values()
        most = max(
            most, sum(state not in (State.UNKNOWN, State.REQUIRED, State.DONE, State.FAILED) for state in states)
        )
    return most


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (UpgradePolicy(), 1),
        (UpgradePolicy(max_parallel_upgrades=3, max_unavailable="100%"), 3),
        (UpgradePolicy(max_parallel_upgrades=0, max_unavailable=4), 4),
        (UpgradePolicy(max_parallel_upgrades=0, max_unavailable="25%"), 3),  # of 10: rounded up
        (UpgradePolicy(max_parallel_upgrades=0, max_unavailable="100%"), 10),
    ],
    ids=["one at a time is the default", "parallel", "unavailable", "a percentage is rounded up", "all"],
)
def test_so_many_at_a_time_and_no_more(policy: UpgradePolicy, expected: int) -> None:
    cluster = Cluster(*names(10), policy=policy)
    cluster.release()
    assert most_at_a_time(cluster) == expected
    assert all_done(cluster)
    assert not cluster.violations


def test_a_not_ready_node_is_skipped_and_reported_and_blocks_nobody() -> None:
    """P9."""
    cluster = Cluster(*names(4), policy=UpgradePolicy(max_unavailable=2))
    cluster.change("n00", ready=False)
    cluster.release()
    cluster.run()
    assert all_done(cluster, ["n01", "n02", "n03"])
    status = cluster.status()
    assert (status.done, status.skipped, status.pending) == (3, 1, 0)
    assert "node n00: skipped: the node is NotReady" in status.message
    cluster.change("n00", ready=True)
    cluster.run(until=lambda: all_done(cluster))


def test_nodes_that_are_away_count_as_unavailable() -> None:
    cluster = Cluster(*names(4), policy=UpgradePolicy(max_unavailable=1))
    cluster.change("n00", ready=False)
    cluster.release()
    cluster.run()
    assert set(cluster.states().values()) == {State.REQUIRED}
    assert cluster.status().message == (
        "no upgrade can start: no more than 1 GPU node may be unavailable (maxUnavailable); "
        "node n00: skipped: the node is NotReady"
    )
    cluster.change("n00", ready=True)
    cluster.run(until=lambda: all_done(cluster))


@pytest.mark.parametrize("when", [State.CORDON, State.JOBS, State.PODS, State.DRAIN, State.RESTART])
def test_a_node_that_goes_away_before_its_driver_was_touched_is_given_back_and_waits_again(when: State) -> None:
    policy = UpgradePolicy(
        max_unavailable="100%",
        wait_for_completion=WaitForCompletion(pod_selector="job=yes", timeout_seconds=60),
        gpu_pod_deletion=PodDeletion(timeout_seconds=60),
        drain=Drain(enable=True, force=when is State.RESTART),
    )
    cluster = Cluster(*names(3), policy=policy)
    cluster.run_pod(workload("stays", "n00", controller="", labels={"job": "yes"}))
    cluster.release()
    cluster.run(until=lambda: cluster.state("n00") is when)
    cluster.change("n00", ready=False)
    before = pod_of(cluster, "n00", Operand.DRIVER)
    cluster.round()
    assert not cluster.nodes["n00"].unschedulable
    assert cluster.state("n00") is State.REQUIRED
    assert before is not None and before.template == "old"
    assert not marks(cluster.nodes["n00"])
    assert cluster.status().skipped == 1
    cluster.run(until=lambda: all_done(cluster, ["n01", "n02"]))
    cluster.workloads.clear()
    cluster.change("n00", ready=True)
    cluster.run(until=lambda: all_done(cluster))
    assert not cluster.violations


def away_without_a_driver(timeout_s: int = 1800) -> Cluster:
    """One node is away, and its old driver has gone."""
    cluster = Cluster(*names(3), policy=UpgradePolicy(max_unavailable="100%", driver_timeout_seconds=timeout_s))
    cluster.broken = {"n00"}
    cluster.release()
    cluster.run(until=lambda: (pod := pod_of(cluster, "n00", Operand.DRIVER)) is not None and pod.template == "new")
    cluster.change("n00", ready=False)
    cluster.round()
    return cluster


def test_a_node_that_goes_away_without_a_driver_keeps_its_turn_for_a_while() -> None:
    cluster = away_without_a_driver()
    cluster.now += 1700
    for _ in range(20):
        cluster.round()
    assert (cluster.state("n00"), cluster.state("n01")) == (State.RESTART, State.REQUIRED)
    assert cluster.nodes["n00"].unschedulable
    cluster.broken.clear()
    cluster.change("n00", ready=True)
    cluster.run(until=lambda: all_done(cluster))
    assert not cluster.violations


@pytest.mark.parametrize("timeout_s", [0, 1800])
def test_a_node_that_stays_away_holds_nobody_up(timeout_s: int) -> None:
    cluster = away_without_a_driver(timeout_s)
    cluster.run(until=lambda: all_done(cluster, ["n01", "n02"]))
    assert cluster.state("n00") is State.RESTART
    assert "node n00: the node is NotReady" in cluster.status().message
    cluster.run()
    assert cluster.decide().requeue_after_s is None
    cluster.broken.clear()
    cluster.change("n00", ready=True)
    cluster.run(until=lambda: all_done(cluster))
    assert not marks(cluster.nodes["n00"])


def test_a_node_that_comes_back_and_goes_again_keeps_its_turn() -> None:
    cluster = away_without_a_driver()
    cluster.now += 1000
    cluster.change("n00", ready=True)
    cluster.round()
    cluster.change("n00", ready=False)
    cluster.round()
    cluster.now += 1000
    cluster.round()
    assert cluster.state("n01") is State.REQUIRED


def test_a_node_that_is_cordoned_already_needs_no_room() -> None:
    cluster = Cluster(*names(4), policy=UpgradePolicy(max_parallel_upgrades=2, max_unavailable=1))
    cluster.cordon("n03")
    cluster.release()
    cluster.run(until=lambda: all_done(cluster, ["n03"]))
    assert set(cluster.states().values()) == {State.REQUIRED, State.DONE}
    assert not cluster.violations


def test_a_full_budget_is_reported_although_a_mig_change_waits_too() -> None:
    cluster = Cluster(*names(4), policy=UpgradePolicy(max_unavailable=1))
    cluster.cordon("n03")
    cluster.label("n03", **{UPGRADE_SKIP_LABEL: "true"})
    cluster.busy = frozenset({"n00"})
    cluster.release()
    cluster.run()
    assert turn(cluster.fleet()).waiting["n00"] == "no more than 1 GPU node may be unavailable (maxUnavailable)"
    assert "(maxUnavailable)" in cluster.status().message
    cluster.policy = UpgradePolicy(max_unavailable=2)
    assert turn(cluster.fleet()).waiting["n00"] == "a MIG change or a reboot is in progress on the node"


def test_a_node_that_failed_before_comes_after_the_others() -> None:
    cluster = Cluster(*names(3))
    cluster.release()
    cluster.run(until=lambda: set(cluster.states().values()) == {State.REQUIRED})
    cluster.change("n00", annotations={UPGRADE_FAILURE_ANNOTATION: "pods did not leave"})
    assert [each.node.name for each in turn(cluster.fleet()).begin] == ["n01"]


@pytest.mark.parametrize("auto_upgrade", [False, True])
def test_the_status_names_the_nodes_to_come_in_the_order_in_which_they_begin(auto_upgrade: bool) -> None:
    policy = UpgradePolicy(auto_upgrade=auto_upgrade, canary=Canary(node_selector=CANARY))
    cluster = Cluster("n1", "n2", "n10", "skipped", "failed", "canary", policy=policy)
    assert cluster.status().upcoming == ()
    cluster.label("skipped", **{UPGRADE_SKIP_LABEL: "true"})
    cluster.label("canary", **CANARY)
    cluster.change("failed", annotations={UPGRADE_FAILURE_ANNOTATION: "pods did not leave"})
    cluster.release()
    assert [each.name for each in cluster.status().upcoming] == ["canary", "n1", "n2", "n10", "failed"]
    assert {(each.driver, each.restart_only) for each in cluster.status().upcoming} == {("570", False)}
    cluster.policy = msgspec.structs.replace(policy, auto_upgrade=True)
    begun: list[str] = []
    for _ in cluster.rounds(400):
        begun += [name for name, state in cluster.states().items() if state is State.CORDON and name not in begun]
    assert begun == ["canary", "n1", "n2", "n10", "failed"]
    assert cluster.status().upcoming == ()


def test_nodes_have_their_turn_in_the_order_in_which_people_count() -> None:
    cluster = Cluster("gpu-10", "gpu-2", "gpu-1", policy=UpgradePolicy(max_parallel_upgrades=0, max_unavailable="100%"))
    cluster.release()
    cluster.run(until=lambda: set(cluster.states().values()) == {State.REQUIRED})
    assert [each.node.name for each in turn(cluster.fleet()).begin] == ["gpu-1", "gpu-2", "gpu-10"]


# --- halting


def test_one_bad_driver_halts_the_upgrade() -> None:
    cluster = Cluster(*names(4), policy=UpgradePolicy(max_unavailable="100%"))
    cluster.broken = set(cluster.nodes)
    cluster.release()
    cluster.run()
    assert list(cluster.states().values()) == [State.FAILED, *[State.REQUIRED] * 3]
    status = cluster.status()
    assert status.halted
    assert status.message.startswith("halted: the new driver fails on 1 node: n00")
    assert (status.failed, status.pending, status.progress) == (1, 3, "0/4")
    assert status.halt_reason == "the new driver fails on 1 node: n00"
    assert [say.reason for say in advanced(cluster.fleet()).events] == ["DriverUpgradeHalted"]


def halted_in_one_of_two_pools() -> Cluster:
    cluster = Cluster(*names(4), policy=UpgradePolicy(max_unavailable="100%"))
    cluster.pools |= {"n02": "q", "n03": "q"}
    for name in ("n02", "n03"):
        cluster.label(name, **{POOL_LABEL: "q"})
    cluster.live()
    cluster.run()
    cluster.broken = {"n00"}
    cluster.release()
    cluster.run()
    assert cluster.status().halted
    return cluster


@pytest.mark.parametrize("resume", ["p.new,q.new", "p.new", " q.new , p.new ", "p.new,q.new,r.gone"])
def test_what_went_on_goes_on_when_another_pool_joins(resume: str) -> None:
    cluster = halted_in_one_of_two_pools()
    cluster.resume = resume
    cluster.run(until=lambda: cluster.state("n01") is not State.REQUIRED)
    cluster.join("n04", "r")
    assert not cluster.status().halted
    cluster.run(until=lambda: all_done(cluster, ["n01", "n02", "n03"]))
    assert not cluster.violations


@pytest.mark.parametrize("resume", ["q.new", "p.old", "p", "", ","])
def test_a_word_about_another_target_lets_nothing_go_on(resume: str) -> None:
    cluster = halted_in_one_of_two_pools()
    cluster.resume = resume
    cluster.run()
    assert cluster.status().halted


def test_another_pools_failure_halts_it_again() -> None:
    cluster = halted_in_one_of_two_pools()
    cluster.resume = "p.new"
    cluster.broken = {"n00", "n02"}
    cluster.run()
    assert cluster.states() == {
        "n00": State.FAILED,
        "n01": State.DONE,
        "n02": State.FAILED,
        "n03": State.REQUIRED,
    }
    assert cluster.status().message.startswith("halted: the new driver fails on 1 node: n02")


def test_a_canary_that_failed_keeps_the_others_from_it_until_people_say_so() -> None:
    cluster = canaries("n02")
    cluster.broken = {"n02"}
    cluster.run()
    assert (cluster.state("n02"), cluster.state("n00")) == (State.FAILED, State.REQUIRED)
    cluster.resume = "p.new"
    cluster.run(until=lambda: all_done(cluster, ["n00", "n01", "n03"]))


def test_a_halted_upgrade_goes_on_with_another_driver() -> None:
    cluster = Cluster(*names(3), policy=UpgradePolicy(max_unavailable=2))
    cluster.broken = set(cluster.nodes)
    cluster.release()
    cluster.run()
    cluster.release("newer")
    cluster.run(until=lambda: all_done(cluster))


def test_pods_that_could_not_leave_halt_nothing() -> None:
    cluster = Cluster(*names(3))
    cluster.run_pod(workload("stays", "n00", controller=""))
    cluster.release()
    cluster.run(until=lambda: all_done(cluster, ["n01", "n02"]))


@pytest.mark.parametrize("has_pod", [True, False], ids=["its driver crashes", "its driver's pod cannot come"])
def test_a_driver_that_fails_after_its_upgrade_halts_it_and_one_that_cannot_come_does_not(has_pod: bool) -> None:
    cluster = Cluster(*names(2))
    cluster.release()
    cluster.run(until=lambda: all_done(cluster, ["n00"]))
    fleet = cluster.fleet()
    (first, second) = fleet.node_progress
    failing = OperandOnNode(operand=Operand.DRIVER, state="failing", reason="NoPod" if not has_pod else "NotReady")
    pods = tuple(pod for pod in first.pods if has_pod or pod.operand != Operand.DRIVER)
    first = msgspec.structs.replace(first, operands=first.operands | {Operand.DRIVER: failing}, pods=pods)
    fleet = msgspec.structs.replace(fleet, node_progress=(first, second))
    assert bool(halt_reason(fleet)) == has_pod


@pytest.mark.parametrize(("halt_after", "failed"), [(1, 1), (2, 2), (0, 3)])
def test_so_many_failures_halt_it(halt_after: int, failed: int) -> None:
    policy = UpgradePolicy(halt_after_failures=halt_after, max_unavailable="100%")
    cluster = Cluster(*names(3), policy=policy)
    cluster.broken = set(cluster.nodes)
    cluster.release()
    cluster.run()
    assert list(cluster.states().values()).count(State.FAILED) == failed


def test_what_the_upgrade_leads_to_names_every_pool_once() -> None:
    cluster = Cluster("a", "b", "c")
    cluster.pools |= {"b": "q"}
    assert fleet_target(cluster.fleet().node_progress) == "p.old,q.old"


# --- canaries


CANARY = {"pool": "canary"}


def canaries(*which: str, soak_seconds: int = 0) -> Cluster:
    policy = UpgradePolicy(
        max_parallel_upgrades=0,
        max_unavailable="100%",
        canary=Canary(node_selector=CANARY, soak_seconds=soak_seconds),
    )
    cluster = Cluster(*names(4), policy=policy)
    for name in which:
        cluster.label(name, **CANARY)
    cluster.run()
    cluster.release()
    return cluster


def test_the_canary_goes_first_and_is_watched_for_a_while() -> None:
    cluster = canaries("n02", soak_seconds=1000)
    cluster.run(until=lambda: all_done(cluster, ["n02"]))
    done_at = cluster.now
    assert cluster.state("n00") is State.REQUIRED
    cluster.run(until=lambda: cluster.state("n00") is not State.REQUIRED)
    assert cluster.now - done_at >= 990
    cluster.run(until=lambda: all_done(cluster))


def test_a_canary_that_goes_away_while_it_is_watched_keeps_the_others_from_it() -> None:
    cluster = canaries("n02", soak_seconds=1000)
    cluster.run(until=lambda: all_done(cluster, ["n02"]))
    cluster.change("n02", ready=False)
    cluster.now += 10_000
    cluster.run()
    assert cluster.state("n00") is State.REQUIRED
    assert "canary node n02 is not yet upgraded and healthy" in cluster.status().message


def test_a_canary_that_cannot_go_first_is_not_waited_for_as_long_as_another_can() -> None:
    cluster = canaries("n01", "n02")
    cluster.change("n01", ready=False)
    cluster.run(until=lambda: all_done(cluster, ["n00", "n02", "n03"]))


@pytest.mark.parametrize(
    ("which", "why"),
    [((), "no GPU node matches canary.nodeSelector"), (("n01",), "no canary node can be upgraded")],
    ids=["a selector that selects nothing", "all canaries are away"],
)
def test_without_a_canary_nobody_begins(which: tuple[str, ...], why: str) -> None:
    cluster = canaries(*which)
    for name in which:
        cluster.change(name, ready=False)
    cluster.run()
    assert set(cluster.states().values()) == {State.REQUIRED}
    assert why in cluster.status().message


# --- disruption budgets


def test_a_budget_is_counted_over_all_nodes_within_one_round() -> None:
    cluster = Cluster(*names(4), policy=UpgradePolicy(max_parallel_upgrades=0, max_unavailable="100%"))
    for name in cluster.nodes:
        cluster.run_pod(workload(f"w-{name}", name, labels={"app": "w"}))
    cluster.budgets["w"] = Budget(namespace="team", name="w", selector={"matchLabels": {"app": "w"}}, allowed=1)
    cluster.release()
    cluster.run(until=lambda: cluster.state("n00") is State.PODS)
    planned = advanced(cluster.fleet())
    assert [each.workload.name for each in planned.evictions] == ["w-n00"]
    assert "pod team/w-n01 is protected by PodDisruptionBudget w" in cluster.status().message


def test_switched_off_the_status_says_what_is_left() -> None:
    cluster = Cluster("a", policy=UpgradePolicy(auto_upgrade=False))
    cluster.release()
    cluster.run()
    assert "1 node has an outdated driver" in cluster.status().message
    gauges = advanced(cluster.fleet()).gauges
    assert gauges["driver_auto_upgrade_enabled"] == 0.0
    assert gauges["nodes_upgrades_pending"] == 1.0
