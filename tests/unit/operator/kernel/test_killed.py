"""The operator dies at any of its writes and another one goes on: what comes of it is the same."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache

import pytest
from tests.unit.operator.world import World

from purser.operator.model import Action
from purser.operator.order import Operand

Story = Callable[[World], None]


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


STORIES: list[tuple[Story, Story | None]] = [
    (install, None),
    (disable, ready),
    (delete, ready),
    (take_over, ready),
    (reboot, ready),
    (lose_the_gpu, ready),
    (exclude, ready),
    (upgrade, ready),
    (change_mig, ready),
    (hand_the_driver_to_a_profile, ready),
]


@cache
def _world_after(story: Story | None) -> World:
    world = World()
    if story is not None:
        story(world)
    return world


def told(story: Story, before: Story | None) -> tuple[World, list[World]]:
    """The world after a story, and as it was before each write of the operator: there it may die."""
    world = deepcopy(_world_after(before))
    places: list[World] = []

    def remember(_: Action) -> None:
        world.watchers.clear()
        places.append(deepcopy(world))
        world.watchers.append(remember)

    world.watchers.append(remember)
    story(world)
    world.watchers.clear()
    return world, places


def go_on_without_what_was_known(world: World) -> None:
    """Another operator starts, in the middle of what the last one was about."""
    world.settled = {}
    world.tick()
    world.settle()


@pytest.mark.parametrize(("story", "before"), STORIES, ids=lambda each: getattr(each, "__name__", ""))
def test_killed_at_every_write_it_ends_the_same(story: Story, before: Story | None) -> None:
    expected, places = told(story, before)
    assert places
    for number, world in enumerate(places):
        go_on_without_what_was_known(world)
        assert world.final() == expected.final(), f"killed after {number} of {len(places)} writes"
        assert world.round().actions == (), f"killed after {number} of {len(places)} writes"
    assert not any(node.unschedulable for node in expected.nodes.values())


def test_stories_come_to_what_they_tell() -> None:
    world, _ = told(upgrade, ready)
    assert {each["driver"] for each in world.status()["pools"]} == {"600.1.1"}
    assert world.status()["upgrade"]["done"] == 2
    world, _ = told(change_mig, ready)
    assert world.nodes["a"].labels["nvidia.com/mig.config.state"] == "success"
    world, _ = told(reboot, ready)
    assert "6-8-0-47" in world.nodes["a"].labels["purser.dev/driver-pool"]
    world, _ = told(lose_the_gpu, ready)
    assert world.nodes["b"].labels["nvidia.com/gpu.present"] == "false"
    world, _ = told(hand_the_driver_to_a_profile, ready)
    assert "gold" in world.nodes["a"].labels["purser.dev/driver-pool"]
    driver = world.pod("a", Operand.DRIVER)
    assert driver is not None and driver.daemon_set.endswith(world.nodes["a"].labels["purser.dev/driver-pool"])
