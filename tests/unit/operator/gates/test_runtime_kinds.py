"""Nodes with runtimes of several versions share DaemonSets as long as that makes no difference to them."""

from typing import Any

import pytest
from tests.unit.operator.world import World

from purser.operator.model import Apply

WITHOUT_CDI = {"cdi": {"enabled": False}}


def world_with(spec: dict[str, Any]) -> World:
    world = World()
    world.add_policy(spec=spec)
    world.add_node("a")
    world.add_node("b", runtime="containerd://1.6.36")
    world.settle()
    return world


def plugins(world: World) -> list[str]:
    return sorted(key.name for key in world.objects if key.name.startswith("purser-device-plugin-"))


def test_a_node_that_could_not_do_cdi_makes_no_daemon_sets_where_nobody_uses_it() -> None:
    assert plugins(world_with(WITHOUT_CDI)) == ["purser-device-plugin-containerd"]
    for flavor in ("purser", "nvidia"):
        world = world_with({"devicePlugin": {"flavor": flavor}})
        assert plugins(world) == ["purser-device-plugin-containerd", "purser-device-plugin-containerd-nocdi"]


@pytest.mark.parametrize("version", ["1.7.22", "2.1.5"])
def test_a_newer_containerd_moves_no_pod_where_nobody_uses_cdi(version: str) -> None:
    world = world_with(WITHOUT_CDI)
    pods = dict(world.pods)
    world.history.clear()
    world.set_node("b", runtime=f"containerd://{version}")
    world.settle()
    assert world.pods == pods
    assert not any(isinstance(each, Apply) for each in world.history)
