"""Random fleets, and an operator that dies between any two writes: bounds hold at every instant, no node is stuck."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.upgrade.fleets import Cluster, all_done, marks, names, workload

from purser.operator.model import Budget
from purser.operator.policy.driver import Canary, Drain, UpgradePolicy
from purser.operator.upgrade import State, upgrade_status

KINDS = ({}, {"controller": "DaemonSet"}, {"uses_gpu": False}, {"labels": {"app": "db"}}, {"controller": "Job"})


def random_cluster(luck: random.Random, count: int) -> Cluster:
    policy = UpgradePolicy(
        max_parallel_upgrades=luck.choice([0, 1, 3]),
        max_unavailable=luck.choice([1, "25%", "50%", "100%"]),
        halt_after_failures=luck.choice([0, 1, 2]),
        drain=Drain(enable=luck.random() < 0.3),
        canary=Canary(node_selector={"c": "y"}, soak_seconds=60) if luck.random() < 0.3 else Canary(),
    )
    cluster = Cluster(*names(count), policy=policy)
    cluster.label("n01", c="y")
    for name in cluster.nodes:
        if luck.random() < 0.1:
            cluster.cordon(name)
        if luck.random() < 0.1:
            cluster.change(name, ready=False)
        if luck.random() < 0.1:
            cluster.broken.add(name)
        for number in range(luck.randrange(3)):
            cluster.run_pod(workload(f"w{number}-{name}", name, **luck.choice(KINDS)))
    allowed = luck.randrange(3)
    cluster.budgets["db"] = Budget(
        namespace="team", name="db", selector={"matchLabels": {"app": "db"}}, allowed=allowed
    )
    return cluster


def live_through(cluster: Cluster, luck: random.Random, rounds: int) -> None:
    """Rounds of which many are cut short, while nodes come, go, and are cordoned by people."""
    for _ in range(rounds):
        killed_after = luck.choice([None, None, 0, 1, 2, 3])
        cluster.round(killed_after)
        if luck.random() < 0.1:
            name = luck.choice(list(cluster.nodes))
            cluster.change(name, ready=not cluster.nodes[name].ready)
        cluster.now += luck.choice([0, 0, 5, 60, 700])
        assert not cluster.violations


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_bounds_hold_whatever_happens_and_in_the_end_every_node_is_done(seed: int) -> None:
    luck = random.Random(seed)
    cluster = random_cluster(luck, 8)
    cluster.release()
    live_through(cluster, luck, 60)
    # Then everything is well again: nothing that happened keeps a node from its driver.
    for name in cluster.nodes:
        cluster.change(name, ready=True)
    cluster.broken.clear()
    cluster.policy = msgspec.structs.replace(cluster.policy, max_unavailable="100%")  # people's cordons may use it up
    cluster.budgets.clear()
    cluster.run(600, until=lambda: all_done(cluster))
    assert not cluster.violations
    for name, node in cluster.nodes.items():
        assert node.unschedulable == (name in cluster.foreign_cordons)
        assert not marks(node)


@pytest.mark.parametrize("seed", range(3))
def test_fifty_nodes_with_everything_that_goes_wrong(seed: int) -> None:
    """P7: in the end each node is done, or somebody is told why it is not."""
    luck = random.Random(seed)
    cluster = random_cluster(luck, 50)
    cluster.release()
    live_through(cluster, luck, 150)
    cluster.run(600)
    status = upgrade_status(cluster.fleet())
    assert status.done + status.failed + status.pending + status.skipped + status.in_progress == 50
    unfinished = [name for name, state in cluster.states().items() if state is not State.DONE]
    assert bool(unfinished) == bool(status.message)


def test_killed_before_every_single_write_it_comes_to_the_same_end() -> None:
    """One write per life of the operator."""
    whole = Cluster("a", "b", policy=UpgradePolicy(max_parallel_upgrades=0, max_unavailable="100%"))
    whole.run_pod(workload("w", "a"))
    whole.release()
    whole.run(until=lambda: all_done(whole))
    cut = Cluster("a", "b", policy=whole.policy)
    cut.run_pod(workload("w", "a"))
    cut.release()
    for _ in range(300):
        cut.round(killed_after=1)
    assert all_done(cut)
    assert not cut.violations
    assert {name: node.labels for name, node in cut.nodes.items()} == {n: o.labels for n, o in whole.nodes.items()}
    assert [node.unschedulable for node in cut.nodes.values()] == [False, False]
