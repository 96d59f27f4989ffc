"""Random fleets, and an operator that dies between any two writes: bounds hold at every instant, no node is stuck."""

import random
from typing import TypeVar

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tiers import IS_LONG, examples
from tests.unit.operator.upgrade.both_machines import BothMachines, mig_is_settled
from tests.unit.operator.upgrade.fleets import Cluster, all_done, marks, names, workload

from purser.core.names import CORDONED_BY_ANNOTATION, MIG_STATE_LABEL
from purser.operator.mig import is_under_way
from purser.operator.model import Budget
from purser.operator.policy.driver import Canary, Drain, UpgradePolicy
from purser.operator.upgrade import State, is_due
from purser.operator.upgrade import is_under_way as is_upgrading
from purser.operator.upgrade.budget import has_yet_to_begin, holds_up_others, turn, upcoming

KINDS = ({}, {"controller": "DaemonSet"}, {"uses_gpu": False}, {"labels": {"app": "db"}}, {"controller": "Job"})


C = TypeVar("C", bound=Cluster)


def random_cluster(luck: random.Random, count: int, kind: type[C] = Cluster) -> C:
    policy = UpgradePolicy(
        max_parallel_upgrades=luck.choice([0, 1, 3]),
        max_unavailable=luck.choice([1, "25%", "50%", "100%"]),
        halt_after_failures=luck.choice([0, 1, 2]),
        drain=Drain(enable=luck.random() < 0.3),
        canary=Canary(node_selector={"c": "y"}, soak_seconds=60) if luck.random() < 0.3 else Canary(),
    )
    cluster = kind(*names(count), policy=policy)
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


def people_cordon_or_lift(cluster: Cluster, name: str) -> None:
    """Not while GPUs are cut, nor where Purser has not seen yet that its cordon was lifted."""
    node = cluster.nodes[name]
    if node.unschedulable and not is_under_way(node):
        cluster.lift(name)
    elif not node.unschedulable and CORDONED_BY_ANNOTATION not in node.annotations:
        cluster.cordon(name)


def live_through(cluster: Cluster, luck: random.Random, rounds: int) -> None:
    """Rounds of which many are cut short, while nodes come, go, and are cordoned by people."""
    for _ in range(rounds):
        killed_after = luck.choice([None, None, 0, 1, 2, 3])
        cluster.round(killed_after)
        if luck.random() < 0.1:
            name = luck.choice(list(cluster.nodes))
            cluster.change(name, ready=not cluster.nodes[name].ready)
        if luck.random() < 0.1:  # one that is under way blinks
            name = luck.choice(
                [name for name, node in cluster.nodes.items() if is_upgrading(node)] or list(cluster.nodes)
            )
            cluster.change(name, ready=not cluster.nodes[name].ready)
        if luck.random() < 0.05:
            people_cordon_or_lift(cluster, luck.choice(list(cluster.nodes)))
        if luck.random() < 0.05:
            cluster.late ^= {"purser-driver-p"}
        if luck.random() < 0.05:
            cluster.release(luck.choice(["new", "newer"]), configuration=luck.choice(["", "old", "other"]))
        cluster.now += luck.choice([0, 0, 5, 60, 700])
        assert not cluster.violations


@examples(20)
@given(seed=st.integers(0, 2**32))
def test_bounds_hold_whatever_happens_and_in_the_end_every_node_is_done(seed: int) -> None:
    luck = random.Random(seed)
    cluster = random_cluster(luck, 8)
    cluster.release(configuration=luck.choice(["", "old"]))
    live_through(cluster, luck, 60)
    # Then everything is well again: nothing that happened keeps a node from its driver.
    for name in cluster.nodes:
        cluster.change(name, ready=True)
    cluster.broken.clear()
    cluster.late.clear()
    cluster.policy = msgspec.structs.replace(cluster.policy, max_unavailable="100%")  # people's cordons may use it up
    cluster.budgets.clear()
    cluster.run(600, until=lambda: all_done(cluster))
    assert not cluster.violations
    for name, node in cluster.nodes.items():
        assert node.unschedulable == (name in cluster.foreign_cordons)
        assert not marks(node)


@examples(10)
@given(seed=st.integers(0, 2**32))
def test_who_begins_follows_from_those_that_could_and_those_that_bear_on_them(seed: int) -> None:
    """A plan looks at no others."""
    luck = random.Random(seed)
    cluster = random_cluster(luck, 8)
    cluster.release(configuration=luck.choice(["", "old"]))
    for _ in range(30):
        live_through(cluster, luck, 1)
        fleet = cluster.fleet()
        fewer = msgspec.structs.replace(
            fleet,
            policy=msgspec.structs.replace(fleet.policy, max_unavailable=fleet.max_unavailable),
            node_progress=tuple(each for each in fleet.node_progress if is_due(each) or holds_up_others(each, fleet)),
        )
        now, then = turn(fleet), turn(fewer)
        assert (now.begin, now.halted, now.hold) == (then.begin, then.halted, then.hold)
        assert all(has_yet_to_begin(each) and each.node.name not in fleet.busy for each in now.begin)
        first = [each for each in upcoming(fleet, len(fleet.node_progress)) if each in now.begin]
        assert first == list(now.begin)  # in this order


@examples(20)
@given(seed=st.integers(0, 2**32))
@example(seed=16880)  # a newer driver was due while a MIG change was under way during validation
def test_upgrades_and_mig_changes_together_keep_to_the_bounds_while_pools_join(seed: int) -> None:
    luck = random.Random(seed)
    cluster = random_cluster(luck, 6, BothMachines)
    cluster.release(configuration=luck.choice(["", "old"]))
    for number in range(60):
        live_through(cluster, luck, 1)
        name = luck.choice(list(cluster.nodes))
        if luck.random() < 0.2:
            cluster.want(name, luck.choice(["all-1g.5gb", "all-balanced", "all-disabled"]))
        if luck.random() < 0.1:
            cluster.hanging ^= {name}
        if luck.random() < 0.05:
            cluster.join(f"late{number}", luck.choice(["p", "q", "r"]))
        if luck.random() < 0.05:
            cluster.resume = cluster.status().target
    for name in cluster.nodes:
        cluster.change(name, ready=True)
    cluster.broken.clear()
    cluster.late.clear()
    cluster.hanging.clear()
    cluster.policy = msgspec.structs.replace(cluster.policy, max_unavailable="100%")
    cluster.budgets.clear()
    cluster.workloads.clear()
    cluster.run(600, until=lambda: all_done(cluster) and not any(map(is_under_way, cluster.nodes.values())))
    for name, node in cluster.nodes.items():  # what failed is tried again when people say so
        cluster.change(name, labels={key: value for key, value in node.labels.items() if key != MIG_STATE_LABEL})
    cluster.run(600, until=lambda: all_done(cluster) and mig_is_settled(cluster))
    assert not cluster.violations
    for name, node in cluster.nodes.items():
        assert node.unschedulable == (name in cluster.foreign_cordons)
        assert not marks(node)


@pytest.mark.parametrize("seed", range(2 if IS_LONG else 1))
def test_fifty_nodes_with_everything_that_goes_wrong(seed: int) -> None:
    """P7: in the end each node is done, or the status says why it is not."""
    luck = random.Random(seed)
    cluster = random_cluster(luck, 50)
    cluster.release(configuration=luck.choice(["", "old"]))
    live_through(cluster, luck, 150)
    cluster.run(600)
    status = cluster.status()
    assert status.done + status.failed + status.pending + status.skipped + status.in_progress == 50
    unfinished = [name for name, state in cluster.states().items() if state is not State.DONE]
    assert bool(unfinished) == bool(status.message)
