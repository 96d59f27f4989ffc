"""The operator dies at any of its writes and another one goes on: what comes of it is the same."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from tests.tiers import IS_LONG, some
from tests.unit.operator.world import World

from purser.operator.model import Action, Adopt, NodeWorkload
from purser.operator.order import Operand

Step = Callable[[World], None]

EACH = 1 if IS_LONG else 18
"""The gate kills at every write of every story; the fast suite at every eighteenth one, of every third story."""


def ready(world: World) -> None:
    world.add_policy()
    world.add_node("a")
    world.add_node("b", nfd=False, os="24.04")
    world.add_node("cpu", gpus=0)
    world.settle()


def install(world: World) -> None:
    world.add_policy()
    world.add_node("a")
    world.add_node("b", nfd=False, os="24.04")
    world.settle()


def disable(world: World) -> None:
    world.change_policy({"dcgmExporter": {"enabled": False}, "driver": {"enabled": False}, "gfd": {"version": "v9"}})
    world.settle()


def delete(world: World) -> None:
    world.delete_policy()
    world.settle()


def take_over(world: World) -> None:
    world.add_policy("second", {"dcgm": {"enabled": True}})
    world.delete_policy()
    world.settle()


def reboot(world: World) -> None:
    world.reboot("a", kernel="6.8.0-47-generic")
    world.settle()


def lose_the_gpu(world: World) -> None:
    world.gpus["b"] = 0
    world.settle()


def exclude(world: World) -> None:
    world.label("a", **{"nvidia.com/gpu.deploy.operands": "false"})
    world.settle()


def upgrade(world: World) -> None:
    world.change_policy({"driver": {"version": "600.1.1"}})
    world.settle()


def change_mig(world: World) -> None:
    world.label("a", **{"nvidia.com/mig.capable": "true", "nvidia.com/mig.config": "all-1g.5gb"})
    world.settle()


def hand_the_driver_to_a_profile(world: World) -> None:
    world.label("a", gold="yes")
    world.change_policy({"driver": {"profiles": [{"name": "gold", "nodeSelector": {"gold": "yes"}}]}})
    world.settle()


def come_while_another_operator_leaves(world: World) -> None:
    left = {each.deploy_label: "true" for each in Operand} | {"nvidia.com/gpu.present": "true"}
    world.rivals = ("theirs",)
    world.add_policy()
    world.add_node("a", labels=left)
    world.add_node("b", nfd=False, labels=left | {Operand.DCGM_EXPORTER.deploy_label: "paused-for-driver-upgrade"})
    world.settle()


def the_other_one_is_gone(world: World) -> None:
    world.rivals = ()
    world.settle()


def add_a_tainted_node(world: World) -> None:
    world.add_node("c")
    world.taint("c", "team")
    world.settle()


def take_the_taint_away(world: World) -> None:
    world.set_node("c", taints=())
    world.settle()


def train(world: World) -> None:
    for name in ("a", "b"):
        world.workloads[name] = NodeWorkload(namespace="ml", name=name, uid=name, node=name, uses_gpu=True)
    world.settle()


def the_first_ends(world: World) -> None:
    del world.workloads["a"]
    world.settle()


def all_end(world: World) -> None:
    world.workloads.clear()
    world.settle()


def disable_the_driver(world: World) -> None:
    world.change_policy({"driver": {"enabled": False}})
    world.settle()


def take_over_without_the_profile(world: World) -> None:
    """The next policy does not know the pool that a node carries, and upgrades nobody: the driver has to stay."""
    world.add_policy("second", {"driver": {"upgradePolicy": {"autoUpgrade": False}}})
    world.delete_policy()
    world.settle()


STORIES: list[tuple[tuple[Step, ...], Step | None]] = [
    ((install,), None),
    ((disable,), ready),
    ((delete,), ready),
    ((take_over,), ready),
    ((reboot,), ready),
    ((lose_the_gpu,), ready),
    ((exclude,), ready),
    ((upgrade,), ready),
    ((change_mig,), ready),
    ((hand_the_driver_to_a_profile,), ready),
    ((hand_the_driver_to_a_profile, take_over_without_the_profile), ready),
    ((come_while_another_operator_leaves, the_other_one_is_gone), None),
    ((add_a_tainted_node, take_the_taint_away), ready),
    ((train, delete, the_first_ends, all_end), ready),
    ((train, disable_the_driver, the_first_ends, all_end), ready),
    ((train, exclude, all_end), ready),
]


@cache
def _world_after(step: Step | None) -> World:
    world = World()
    if step is not None:
        step(world)
    return world


def told(story: Sequence[Step], before: Step | None) -> tuple[World, list[tuple[int, World]]]:
    """The world after a story, and as it was before each write of the operator, with the step: there it may die."""
    world = _world_after(before).copy()
    node_assignments: list[tuple[int, World]] = []
    for number, step in enumerate(story):

        def remember(_: Action, number: int = number) -> None:
            node_assignments.append((number, world.copy()))

        world.watchers = [remember]
        step(world)
    world.watchers.clear()
    return world, node_assignments


def go_on_without_what_was_known(world: World, story: Sequence[Step]) -> None:
    """Another operator starts, in the middle of what the last one was about; the story goes on."""
    world.settled = {}
    world.tick()
    world.settle()
    for step in story:
        step(world)


def spelled(found: Any) -> str:
    return found.__name__ if callable(found) else "-".join(map(spelled, found)) if found else ""


@pytest.mark.parametrize(("story", "before"), some(STORIES, 3), ids=spelled)
def test_killed_at_any_write_it_ends_the_same(story: Sequence[Step], before: Step | None) -> None:
    expected, node_assignments = told(story, before)
    assert node_assignments
    for number, (step, world) in list(enumerate(node_assignments))[::EACH]:
        go_on_without_what_was_known(world, story[step + 1 :])
        assert world.final() == expected.final(), f"killed after {number} of {len(node_assignments)} writes"
        assert world.round().actions == (), f"killed after {number} of {len(node_assignments)} writes"
    assert not any(node.unschedulable for node in expected.nodes.values())


@pytest.mark.gate
def test_histories_end_as_expected() -> None:
    world, _ = told((upgrade,), ready)
    assert {each["driver"] for each in world.status()["pools"]} == {"600.1.1"}
    assert world.status()["upgrade"]["done"] == 2
    world, _ = told((change_mig,), ready)
    assert world.nodes["a"].labels["nvidia.com/mig.config.state"] == "success"
    world, _ = told((reboot,), ready)
    assert "6-8-0-47" in world.nodes["a"].labels["purser.dev/driver-pool"]
    world, _ = told((lose_the_gpu,), ready)
    assert world.nodes["b"].labels["nvidia.com/gpu.present"] == "false"
    world, _ = told((hand_the_driver_to_a_profile,), ready)
    assert "gold" in world.nodes["a"].labels["purser.dev/driver-pool"]
    world, _ = told((come_while_another_operator_leaves, the_other_one_is_gone), None)
    assert world.condition("Ready")["status"] == "True"
    world, _ = told((hand_the_driver_to_a_profile, take_over_without_the_profile), ready)
    assert list(world.policies) == ["second"]
    assert any(isinstance(each, Adopt) for each in world.history)
    driver = world.pod("a", Operand.DRIVER)
    assert driver is not None and "gold" in driver.daemon_set
    world, _ = told((hand_the_driver_to_a_profile,), ready)
    driver = world.pod("a", Operand.DRIVER)
    assert driver is not None and driver.daemon_set.endswith(world.nodes["a"].labels["purser.dev/driver-pool"])
