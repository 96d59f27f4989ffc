"""What is taken away waits for who could still be at it: discovery that writes, a MIG manager that cuts."""

import pytest
from tests.unit.operator.world import World, made_once

from purser.core.names import CORDONED_BY_ANNOTATION, MIG_WANTED_ANNOTATION, NODE_FACTS_ANNOTATION
from purser.operator.deciding.policies import cleanup, is_clean
from purser.operator.names import MIG_STEP_ANNOTATION
from purser.operator.order import Operand


@pytest.fixture
@made_once
def world() -> World:
    found = World()
    found.add_policy()
    found.add_node("a", nfd=False, labels={"nvidia.com/mig.capable": "true"})
    found.add_node("b", nfd=False)
    found.settle()
    return found


def test_discovery_on_a_node_that_is_away_keeps_nothing_anywhere(world: World) -> None:
    world.set_node("b", ready=False)
    world.lingering = True
    world.delete_policy()
    world.settle()
    assert NODE_FACTS_ANNOTATION not in world.nodes["b"].annotations
    assert NODE_FACTS_ANNOTATION in world.nodes["a"].annotations, "its discovery has not gone yet, and could write"
    assert not is_clean(world.snapshot())
    world.lingering = False
    for pod in world.on("a"):
        del world.pods[pod.uid]
    world.settle()
    assert world.pods and not any(NODE_FACTS_ANNOTATION in node.annotations for node in world.nodes.values())
    assert world.policies == {}


def apply_a_layout(world: World) -> None:
    world.label("a", **{"nvidia.com/mig.config": "all-1g.5gb"})
    world.run_until(lambda: '"applying"' in world.nodes["a"].annotations.get(MIG_STEP_ANNOTATION, ""))


def deleted_while_a_layout_is_applied(world: World) -> None:
    apply_a_layout(world)
    world.lingering = True
    world.delete_policy()
    for _ in range(20):
        world.round()
        world._daemon_sets()
        world._collect_garbage()


def test_a_node_is_given_back_once_nobody_can_be_cutting_its_gpus(world: World) -> None:
    deleted_while_a_layout_is_applied(world)
    node = world.nodes["a"]
    assert node.unschedulable and {MIG_STEP_ANNOTATION, CORDONED_BY_ANNOTATION} <= set(node.annotations)
    assert MIG_WANTED_ANNOTATION not in node.annotations
    assert not is_clean(world.snapshot()) and not cleanup(world.snapshot())
    world.lingering = False
    world.settle()
    assert world.policies == {}
    assert not world.nodes["a"].unschedulable
    assert not [key for key in world.nodes["a"].annotations if key.startswith("purser.dev/")]


def test_a_cordon_that_people_set_after_they_lifted_purser_s_outlives_the_policy(world: World) -> None:
    deleted_while_a_layout_is_applied(world)
    world.set_node("a", unschedulable=False)
    world.round()
    assert CORDONED_BY_ANNOTATION not in world.nodes["a"].annotations
    world.set_node("a", unschedulable=True)
    world.lingering = False
    world.settle()
    assert world.policies == {}
    assert world.nodes["a"].unschedulable


def test_a_rollout_of_drivers_is_not_ready_before_its_end(world: World) -> None:
    old = {pod.template for pod in world.pods.values() if pod.operand == Operand.DRIVER}
    world.change_policy({"driver": {"version": "600.1.1"}})
    reasons: set[str] = set()
    for _ in range(200):
        before = {pod.template for pod in world.pods.values() if pod.operand == Operand.DRIVER}
        cordoned = any(node.unschedulable for node in world.nodes.values())
        changed = world.round()
        ready = world.condition("Ready")
        reasons.add(ready["reason"])
        assert ready["status"] == "False" or not (before & old or cordoned)
        if not world.tick() and not changed.actions:
            break
    assert world.condition("Ready")["status"] == "True"
    assert "Updating" in reasons


def test_an_upgrade_that_is_off_or_kept_away_by_people_leaves_the_stack_ready(world: World) -> None:
    world.change_policy({"driver": {"version": "600.1.1", "upgradePolicy": {"autoUpgrade": False}}})
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    for name in world.nodes:
        world.label(name, **{"nvidia.com/gpu-driver-upgrade.skip": "true"})
    world.change_policy({"driver": {"version": "600.1.1"}})
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert world.status()["upgrade"]["skipped"] == 2


def test_operands_that_purser_paused_are_not_left_paused_beside_another_operator(world: World) -> None:
    apply_a_layout(world)
    assert "paused-for-mig-change" in world.nodes["a"].labels.values()
    world.delete_policy()
    world.rivals = ("theirs",)
    world.settle()
    assert world.policies == {}
    assert "paused-for-mig-change" not in world.nodes["a"].labels.values()
    assert world.deployed("a")["driver"] == "true", "it may be the other operator's by now"
