"""MIG changes and upgrades together keep to one bound; GPU pods leave by one set of rules."""

from collections.abc import Iterable

import msgspec
import pytest
from tests.unit.operator.mig.nodes import Node
from tests.unit.operator.mig.test_mig_changes import assert_given_back, until

from purser.operator.mig import MigFleet, advance, makes_unavailable, waits_of_changes
from purser.operator.model import NodeProgress
from purser.operator.names import MIG_STEP_ANNOTATION
from purser.operator.policy.driver import PodDeletion, UpgradePolicy


def several(count: int) -> list[Node]:
    """All of them have been compared, and their layouts differ."""
    nodes = [Node("all-1g.10gb", name=f"n{number}") for number in range(count)]
    for node in nodes:
        until(node, "checking")
    return nodes


def fleet_of(nodes: Iterable[Node], bound: int | str, unavailable: Iterable[str] = ()) -> MigFleet:
    node_progress: tuple[NodeProgress, ...] = tuple(node.progress() for node in nodes)
    there = {each.node.name for each in node_progress if each.node.unschedulable or makes_unavailable(each.node)}
    policy = UpgradePolicy(max_unavailable=bound)
    (first, *_) = nodes
    return msgspec.structs.replace(
        first.fleet(),
        node_progress=node_progress,
        policy=policy,
        unavailable=frozenset({*unavailable, *there}),
        workloads={each.node.name: () for each in node_progress},
    )


def emptied(fleet: MigFleet) -> list[str]:
    return [name for name, patch in advance(fleet).patches.items() if patch.unschedulable]


@pytest.mark.parametrize(("bound", "expected"), [(0, 0), (1, 1), (2, 2), ("25%", 1), ("50%", 2), ("100%", 4)])
def test_so_many_nodes_are_emptied_and_no_more(bound: int | str, expected: int) -> None:
    assert emptied(fleet_of(several(4), bound)) == ["n0", "n1", "n2", "n3"][:expected]


def test_those_that_the_upgrade_takes_count() -> None:
    assert emptied(fleet_of(several(4), 2, {"elsewhere"})) == ["n0"]
    assert emptied(fleet_of(several(4), 2, {"elsewhere", "away"})) == []


def test_a_node_that_is_unavailable_anyway_needs_no_room() -> None:
    nodes = several(4)
    nodes[2].change(unschedulable=True)
    fleet = fleet_of(nodes, 1, {"elsewhere"})
    assert [name for name, patch in advance(fleet).patches.items()] == ["n2"]


def test_a_node_that_waits_for_its_turn_is_not_touched_and_says_so_and_does_not_time_out() -> None:
    nodes = several(2)
    nodes[1].now += 100_000
    fleet = msgspec.structs.replace(fleet_of(nodes, 1, {"elsewhere"}), now=nodes[1].now)
    planned = advance(fleet)
    assert not planned.patches
    assert planned.events[0].message == (
        "MIG layout all-1g.10gb is pending: no more than 1 GPU node may be unavailable (maxUnavailable)"
    )
    assert planned.requeue_after_s is None


@pytest.mark.parametrize("change", ["reboot", "away", "busy"])
def test_a_comparison_that_is_out_of_date_when_its_turn_comes_is_repeated(change: str) -> None:
    node = Node("all-1g.10gb")
    node.policy = UpgradePolicy(max_unavailable=0)
    node.run()
    if change == "reboot":
        node.change(boot_id="another")
    if change == "away":
        node.change(ready=False)
    node.busy = change == "busy"
    node.run()
    if change == "reboot":
        assert "another." in node.node.annotations[MIG_STEP_ANNOTATION]
    else:
        assert node.state is None
        assert_given_back(node)
    node.change(ready=True)
    node.busy = False
    node.policy = UpgradePolicy()
    node.run()
    assert (node.state, node.layout) == ("success", "all-1g.10gb")


@pytest.mark.parametrize(
    ("changes", "rules"),
    [({"controller": ""}, PodDeletion(force=True)), ({"empty_dir": True}, PodDeletion(delete_empty_dir=True))],
    ids=["force", "deleteEmptyDir"],
)
def test_pods_leave_by_the_rules_of_driver_upgrades(changes: dict[str, object], rules: PodDeletion) -> None:
    node = Node("all-1g.10gb")
    node.policy = UpgradePolicy(gpu_pod_deletion=rules)
    node.run_pod("precious", **changes)
    node.run()
    assert node.state == "success"
    assert not node.workloads


# --- what changes wait for


def waiting(fleet: MigFleet) -> dict[str, str]:
    return waits_of_changes(fleet, advance(fleet))


def test_a_change_that_waits_for_its_turn_is_reported() -> None:
    nodes = several(2)
    nodes[0].change(unschedulable=True)
    fleet = fleet_of(nodes, 1)
    assert waiting(fleet) == {
        "n1": "MIG layout all-1g.10gb: no more than 1 GPU node may be unavailable (maxUnavailable)"
    }
    assert waiting(fleet_of(nodes, 2)) == {}


def test_a_change_that_cannot_begin_is_reported() -> None:
    node = Node("all-1g.10gb")
    node.change(ready=False)
    assert waiting(node.fleet()) == {"a": "MIG layout all-1g.10gb: the node is NotReady"}
    node.change(ready=True)
    node.busy = True
    assert waiting(node.fleet()) == {"a": "MIG layout all-1g.10gb: a driver upgrade is in progress on the node"}


def test_a_change_that_waits_for_pods_is_reported() -> None:
    node = Node("all-1g.10gb")
    node.worker = "away"
    node.run_pod("stays", controller="")
    until(node, "checking")
    assert waiting(node.fleet()) == {"a": "MIG layout all-1g.10gb: waiting for the MIG worker"}
    node.worker = "well"
    until(node, "draining")
    assert "pod team/stays has no controller" in waiting(node.fleet())["a"]


def test_where_nothing_is_wanted_and_where_all_is_done_nothing_waits() -> None:
    assert waiting(Node().fleet()) == {}
    node = Node("all-1g.10gb")
    node.run()
    assert waiting(node.fleet()) == {}
