"""The plan of an upgrade: what it tells is what happens then."""

import msgspec
import pytest
from tests.tiers import IS_LONG
from tests.unit.operator.upgrade.fleets import Cluster, names, workload

from purser.operator.model import Budget
from purser.operator.names import UPGRADE_SKIP_LABEL
from purser.operator.policy.driver import Canary, PodDeletion, UpgradePolicy, WaitForCompletion
from purser.operator.upgrade import State, is_under_way, plan, plan_lines


def order_of(cluster: Cluster) -> list[str]:
    """In which order nodes begin in truth, and who left."""
    begun: list[str] = []
    for _ in cluster.rounds(400):
        begun += [n for n in cluster.nodes if is_under_way(cluster.nodes[n]) and n not in begun]
    return begun


def planned_order(cluster: Cluster) -> list[str]:
    return [node.name for wave in plan(cluster.fleet()).waves for node in wave]


def test_without_a_new_driver_nothing_is_planned() -> None:
    cluster = Cluster(*names(3))
    found = plan(cluster.fleet())
    assert not found.waves
    assert found.current == 3
    assert plan_lines(found) == ["target: p.old", "no node would be upgraded", "3 nodes have the target driver"]


def test_a_node_without_any_driver_does_not_count_as_having_it() -> None:
    cluster = Cluster(*names(3))
    cluster.pods = {uid: pod for uid, pod in cluster.pods.items() if pod.node != "n00"}
    assert plan(cluster.fleet()).current == 2


def test_waves_follow_the_bounds() -> None:
    cluster = Cluster(*names(7), policy=UpgradePolicy(max_parallel_upgrades=3, max_unavailable="100%"))
    cluster.release()
    assert [len(wave) for wave in plan(cluster.fleet()).waves] == [3, 3, 1]


def test_nodes_begin_as_planned_and_the_planned_pods_leave() -> None:
    policy = UpgradePolicy(
        max_parallel_upgrades=2,
        max_unavailable="100%",
        canary=Canary(node_selector={"c": "y"}, soak_seconds=100),
        wait_for_completion=WaitForCompletion(pod_selector="job=yes"),
    )
    cluster = Cluster(*names(9), policy=policy)
    cluster.label("n05", c="y")
    cluster.cordon("n02")
    cluster.change("n03", ready=False)
    cluster.label("n04", **{UPGRADE_SKIP_LABEL: "true"})
    for name in ("n00", "n01", "n06"):
        cluster.run_pod(workload(f"w-{name}", name))
    cluster.run_pod(workload("bare", "n07", controller=""))
    cluster.run_pod(workload("web", "n00", uses_gpu=False))
    cluster.release()
    found = plan(cluster.fleet())
    assert [node.name for wave in found.waves for node in wave] == ["n05", "n00", "n01", "n02", "n06", "n07", "n08"]
    assert found.skipped.keys() == {"n03", "n04"}
    nodes = {node.name: node for wave in found.waves for node in wave}
    evicted = {pod.name for node in nodes.values() for pod in node.pods if pod.how == "evicted"}
    assert evicted == {"w-n00", "w-n01", "w-n06"}
    assert [name for name, node in nodes.items() if node.fails] == ["n07"]
    assert [(pod.name, pod.how) for pod in nodes["n07"].pods] == [("bare", "blocking")]

    cluster.policy = msgspec.structs.replace(cluster.policy, retry_after_seconds=10**9)
    assert sorted(order_of(cluster)) == sorted(nodes)
    failed = [name for name, state in cluster.states().items() if state is State.FAILED]
    assert failed == ["n07"]
    uids = {pod.uid for pod in cluster.workloads}
    assert not uids & evicted
    assert {"bare", "web"} <= uids


def test_one_by_one_the_order_is_exactly_the_planned_one() -> None:
    cluster = Cluster(*names(6))
    cluster.run_pod(workload("w", "n01"))
    cluster.release()
    expected = planned_order(cluster)
    assert expected == names(6)
    assert order_of(cluster) == expected


def test_of_a_driver_that_stays_the_same_nobody_has_to_leave() -> None:
    cluster = Cluster(*names(3))
    for name in cluster.nodes:
        cluster.run_pod(workload(f"w-{name}", name, controller=""))
    cluster.release(configuration="old")
    found = plan(cluster.fleet())
    assert [[node.name for node in wave] for wave in found.waves] == [["n00"], ["n01"], ["n02"]]
    assert plan_lines(found)[2] == "  n00: driver 570 (driver pod restart only, no pods are evicted)"
    assert not [node for wave in found.waves for node in wave if node.pods or node.fails]
    assert order_of(cluster) == names(3)


def test_a_pod_that_its_budget_holds_is_named() -> None:
    cluster = Cluster("a", "b")
    cluster.run_pod(workload("db", "a", labels={"app": "db"}))
    cluster.budgets["db"] = Budget(namespace="team", name="db", selector={"matchLabels": {"app": "db"}}, allowed=0)
    cluster.release()
    lines = plan_lines(plan(cluster.fleet()))
    assert "    blocking: pod team/db (is protected by PodDisruptionBudget db)" in lines
    assert any(line.startswith("  a: driver 570 WOULD FAIL: GPU pods did not terminate within 300 s") for line in lines)
    assert "  b: driver 570" in lines


def test_the_plan_knows_that_a_pod_which_is_not_ready_may_go() -> None:
    cluster = Cluster("a", "b")
    cluster.run_pod(workload("db", "a", labels={"app": "db"}, ready=False))
    cluster.budgets["db"] = Budget(
        namespace="team", name="db", selector={"matchLabels": {"app": "db"}}, unhealthy_may_go=True
    )
    cluster.release()
    (first, *_) = plan(cluster.fleet()).waves
    assert [(pod.name, pod.how) for pod in first[0].pods] == [("db", "evicted")]
    assert not first[0].fails


def test_pods_of_a_tight_budget_leave_one_after_the_other() -> None:
    cluster = Cluster("a", "b", policy=UpgradePolicy(gpu_pod_deletion=PodDeletion(timeout_seconds=0)))
    for number in range(4):
        cluster.run_pod(workload(f"db{number}", "a", labels={"app": "db"}))
    cluster.budgets["db"] = Budget(namespace="team", name="db", selector={"matchLabels": {"app": "db"}}, allowed=1)
    cluster.release()
    wave = plan(cluster.fleet()).waves[0]
    assert [(pod.name, pod.how) for pod in wave[0].pods] == [(f"db{number}", "evicted") for number in range(4)]


def test_jobs_are_named() -> None:
    waits = WaitForCompletion(pod_selector="job=yes")
    cluster = Cluster("a", policy=UpgradePolicy(wait_for_completion=waits))
    cluster.run_pod(workload("j", "a", labels={"job": "yes"}))
    cluster.release()
    assert [(pod.name, pod.how) for pod in plan(cluster.fleet()).waves[0][0].pods] == [("j", "waited for")]


def test_a_halted_upgrade_says_why_nobody_begins() -> None:
    cluster = Cluster(*names(3))
    cluster.broken = {"n00"}
    cluster.release()
    cluster.run()
    found = plan(cluster.fleet())
    assert not found.waves
    assert found.waiting.keys() == {"n01", "n02"}
    assert all("halted" in why for why in found.waiting.values())


def test_a_node_that_may_have_no_driver_is_named() -> None:
    cluster = Cluster("a", "b")
    cluster.obstacles["a"] = "570 is ruled out"
    cluster.release()
    lines = plan_lines(plan(cluster.fleet()))
    assert "no driver: a: 570 is ruled out" in lines
    assert not [line for line in lines if line.startswith("  a")]


def test_it_can_be_asked_with_automatic_upgrades_off() -> None:
    cluster = Cluster("a", policy=UpgradePolicy(auto_upgrade=False))
    cluster.release()
    found = plan(cluster.fleet())
    assert found.off
    assert [node.name for wave in found.waves for node in wave] == ["a"]


def test_another_pool_is_planned_like_another_template() -> None:
    cluster = Cluster("a")
    cluster.pools["a"] = "q"
    assert [node.target for wave in plan(cluster.fleet()).waves for node in wave] == ["q.old"]


def test_a_long_line_of_which_some_fail_is_planned_to_its_end() -> None:
    line = names(30 if IS_LONG else 15)
    cluster = Cluster(*line)
    for name in line[:6]:
        cluster.run_pod(workload(f"bare-{name}", name, controller=""))
    cluster.release()
    found = plan(cluster.fleet())
    assert planned_order(cluster) == line
    assert sum(bool(node.fails) for wave in found.waves for node in wave) == 6


def blocked_removals(policy: UpgradePolicy | None = None) -> Cluster:
    """Pods that stay keep the first node's upgrade from going on."""
    cluster = Cluster(*names(3), policy=policy)
    cluster.run_pod(workload("stays", "n00", controller=""))
    cluster.release()
    cluster.run(until=lambda: cluster.state("n00") is State.PODS)
    return cluster


@pytest.mark.parametrize("timeout_s", [0, 300])
def test_a_node_under_way_is_shown_with_its_step_what_it_waits_for_and_the_pods_in_the_way(timeout_s: int) -> None:
    policy = UpgradePolicy(gpu_pod_deletion=PodDeletion(timeout_seconds=timeout_s))
    lines = plan_lines(plan(blocked_removals(policy).fleet()))
    why = "has no controller and would not be recreated (force is off)"
    (first,) = [line for line in lines if line.startswith("under way: ")]
    assert first.startswith(f"under way: n00: driver 570, pod-deletion-required: pod team/stays {why}")
    assert first.endswith(f" WOULD FAIL: GPU pods did not terminate within 300 s: pod team/stays {why}") == bool(
        timeout_s
    )
    assert lines[lines.index(first) + 1] == f"    blocking: pod team/stays ({why})"
    assert not [line for line in lines if "no node would be upgraded" in line or "waiting: n00" in line]


def test_pods_that_leave_a_node_under_way_are_named_and_it_is_counted_neither_as_waiting_nor_as_done() -> None:
    cluster = Cluster(*names(2))
    cluster.run_pod(workload("w", "n00"))
    cluster.run_pod(workload("web", "n00", uses_gpu=False))
    cluster.release()
    cluster.run(until=lambda: cluster.state("n00") is State.PODS)
    for terminating in (False, True):
        cluster.workloads = [msgspec.structs.replace(each, terminating=terminating) for each in cluster.workloads]
        found = plan(cluster.fleet())
        (node,) = found.under_way
        assert (node.name, node.step, node.fails) == ("n00", State.PODS, "")
        assert node.waits == "waiting for pod team/w to terminate"
        assert [(pod.name, pod.how) for pod in node.pods] == [("w", "evicted")]
        assert (found.waiting, found.current) == ({}, 0)


def test_every_step_of_an_upgrade_that_runs_is_planned_without_an_empty_word() -> None:
    cluster = Cluster(*names(3), policy=UpgradePolicy(max_parallel_upgrades=2, max_unavailable="100%"))
    cluster.release()
    seen: set[str] = set()
    for _ in range(60):
        found = plan(cluster.fleet())
        under_way = {name for name, node in cluster.nodes.items() if is_under_way(node)}
        assert {node.name for node in found.under_way} == under_way
        assert all(node.waits for node in found.under_way)
        seen |= {node.step for node in found.under_way}
        begun = {node.name for wave in found.waves for node in wave}
        assert len(under_way) + len(begun) + found.current == 3
        assert not found.waiting
        cluster.round()
    assert {State.CORDON, State.PODS, State.RESTART, State.VALIDATION, State.UNCORDON} <= seen
    assert found.current == 3


def test_of_a_driver_that_is_being_restarted_under_its_users_nobody_is_in_the_way() -> None:
    cluster = Cluster("a")
    cluster.run_pod(workload("bare", "a", controller=""))
    cluster.release(configuration="old")
    cluster.run(until=lambda: cluster.state("a") is State.RESTART)
    (node,) = plan(cluster.fleet()).under_way
    assert (node.pods, node.fails) == ((), "")
