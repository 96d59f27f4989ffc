"""A taint that comes late moves nothing that runs; so nothing may leave that could not come back."""

import pytest
from tests.unit.operator.world import World, settled_world

from purser.operator.deciding import upgrade_fleet
from purser.operator.model import NodeWorkload
from purser.operator.names import UPGRADE_SKIP_LABEL
from purser.operator.order import Operand
from purser.operator.upgrade import plan, plan_lines

NEW = {"driver": {"version": "600.1.1", "upgradePolicy": {"maxUnavailable": "100%"}}}
TOLERANT = {"daemonsets": {"tolerations": [{"key": "team", "operator": "Exists"}]}}
REMEDY = "the node's taint team:NoSchedule: add a toleration to spec.daemonsets.tolerations or remove the taint"
STATE = "nvidia.com/gpu-driver-upgrade-state"
MIG_STATE = "nvidia.com/mig.config.state"


@pytest.fixture
def world() -> World:
    return settled_world("a", "b", **{"nvidia.com/mig.capable": "true"})


def stubborn(node: str) -> NodeWorkload:
    return NodeWorkload(namespace="ml", name="stays", uid="stays", node=node, uses_gpu=True)


def rounds(world: World, until: str, node: str = "a") -> None:
    world.run_until(lambda: world.nodes[node].labels.get(STATE) == until)


def uids(world: World, node: str) -> set[str]:
    return {pod.uid for pod in world.on(node)}


def untaint(world: World, node: str = "a") -> None:
    world.set_node(node, taints=())


def test_an_upgrade_passes_over_a_node_whose_taint_keeps_the_new_driver_away(world: World) -> None:
    world.taint("a", "team")
    before = uids(world, "a")
    world.change_policy(NEW)
    world.settle()
    assert uids(world, "a") == before
    assert not world.nodes["a"].unschedulable
    (failing,) = world.status()["failingNodes"]
    assert (failing["name"], failing["operand"], failing["reason"]) == ("a", "driver", "Untolerated")
    assert failing["message"].startswith("the driver is not upgraded")
    assert failing["message"].endswith(REMEDY)
    assert (world.status()["upgrade"]["done"], world.status()["upgrade"]["skipped"]) == (1, 1)
    assert f"node a: skipped: new operand pods would not tolerate {REMEDY}" in (world.status()["upgrade"]["message"])
    assert world.condition("Progressing")["status"] == "False"
    world.change_policy(NEW | TOLERANT)
    world.settle()
    assert world.status()["upgrade"]["done"] == 2
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("off", [True, False])
def test_where_users_keep_the_driver_the_taint_is_no_failure(world: World, off: bool) -> None:
    world.taint("a", "team")
    if not off:
        world.label("a", **{UPGRADE_SKIP_LABEL: "true"})
    world.change_policy({"driver": {"version": "600.1.1", "upgradePolicy": {"autoUpgrade": not off}}})
    world.settle()
    assert not world.status()["failingNodes"]


def test_the_plan_names_the_taint(world: World) -> None:
    world.taint("a", "team")
    world.change_policy(NEW)
    fleet = upgrade_fleet(world.snapshot())
    assert not isinstance(fleet, str)
    lines = plan_lines(plan(fleet))
    assert f"skipped: a: new operand pods would not tolerate {REMEDY}" in lines
    assert [line for line in lines if line.startswith("  ")] == ["  b: driver 600.1.1"]


@pytest.mark.parametrize("when", ["pod-deletion-required", "pod-restart-required"])
def test_a_taint_that_comes_before_the_driver_goes_gives_the_node_back(world: World, when: str) -> None:
    driver = world.pod("a", Operand.DRIVER)
    if when == "pod-deletion-required":
        world.workloads["stays"] = stubborn("a")
    world.change_policy(NEW)
    rounds(world, when)
    world.taint("a", "team")
    world.round()
    assert world.nodes["a"].labels[STATE] == "upgrade-required"
    assert not world.nodes["a"].unschedulable
    world.workloads.clear()
    world.settle()
    assert world.pod("a", Operand.DRIVER) == driver
    assert world.status()["upgrade"]["done"] == 1
    untaint(world)
    world.settle()
    assert world.status()["upgrade"]["done"] == 2


def test_a_taint_that_comes_while_there_is_no_driver_is_not_held_against_the_new_one(world: World) -> None:
    world.change_policy(NEW)
    world.run_until(lambda: world.pod("a", Operand.DRIVER) is None)
    world.taint("a", "team")
    for _ in range(5):
        world.round()
        world.tick()
        world.wait(10_000)
    assert world.nodes["a"].labels[STATE] == "pod-restart-required"
    (failing,) = world.status()["failingNodes"]
    assert (failing["reason"], failing["message"]) == ("Untolerated", f"pods do not tolerate {REMEDY}")
    assert f"node a: driver: pods do not tolerate {REMEDY}" in world.status()["upgrade"]["message"]
    assert not world.status()["upgrade"]["halted"]
    untaint(world)
    world.settle()
    assert world.status()["upgrade"]["done"] == 2
    assert world.condition("Ready")["status"] == "True"


def test_a_valid_node_is_given_back_whatever_a_taint_keeps_away(world: World) -> None:
    world.change_policy(NEW)
    rounds(world, "uncordon-required")
    world.taint("a", "team")
    rounds(world, "upgrade-done")
    assert not world.nodes["a"].unschedulable


def test_a_mig_change_does_not_begin_where_paused_operands_could_not_come_back(world: World) -> None:
    world.taint("a", "team")
    before = uids(world, "a")
    world.label("a", **{"nvidia.com/mig.config": "all-1g.5gb"})
    world.settle()
    assert uids(world, "a") == before
    assert MIG_STATE not in world.nodes["a"].labels
    told = world.condition("Progressing")["message"]
    assert told.startswith("node a: MIG layout all-1g.5gb: paused operands could not start again: ")
    assert told.endswith(REMEDY)
    assert [each.kind for each in world.round().events if REMEDY in each.message] == ["Node"]
    untaint(world)
    world.settle()
    assert world.nodes["a"].labels[MIG_STATE] == "success"


def test_a_taint_that_comes_while_pods_leave_for_a_mig_change_gives_the_node_back(world: World) -> None:
    world.workloads["stays"] = stubborn("a")
    world.label("a", **{"nvidia.com/mig.config": "all-1g.5gb"})
    world.run_until(lambda: world.nodes["a"].unschedulable)
    world.taint("a", "team")
    world.round()
    assert not world.nodes["a"].unschedulable
    assert MIG_STATE not in world.nodes["a"].labels
