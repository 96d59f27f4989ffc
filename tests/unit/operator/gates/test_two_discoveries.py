"""Nodes at which Purser's discovery and node-feature-discovery look: each may be away, and each may be late."""

import pytest
from tests.unit.operator.world import GPU_LABEL, World, made_once

from purser.core.names import NODE_FACTS_ANNOTATION

PRESENT = "nvidia.com/gpu.present"


@pytest.fixture
@made_once
def world() -> World:
    world = World()
    world.add_policy()
    world.add_node("both", nfd=True)
    world.add_node("own", nfd=False)
    world.settle()
    assert world.status()["state"] == "ready"
    return world


def test_when_only_its_word_on_gpus_goes_that_may_pass(world: World) -> None:
    operands = {pod.uid for pod in world.on("both") if pod.operand != "gpu-discovery"}
    world.label("both", **{GPU_LABEL: None})
    world.settle()
    world.wait(500)
    world.settle()
    assert "purser.dev/gpu-missing-since" in world.nodes["both"].annotations
    world.nfd_comes("both")
    world.settle()
    assert operands <= {pod.uid for pod in world.on("both")}
    assert "purser.dev/gpu-missing-since" not in world.nodes["both"].annotations


def test_what_pursers_discovery_saw_before_the_other_one_came_is_old_and_forgotten_with_the_gpu(world: World) -> None:
    world.gpus["own"] = 0
    world.crash("own", "gpu-discovery")
    world.nfd_comes("own")
    world.settle()
    assert world.deployed("own") != {}
    world.wait(600)
    world.settle()
    assert world.deployed("own") == {}
    assert NODE_FACTS_ANNOTATION not in world.nodes["own"].annotations
    seen = set()
    world.nfd_leaves("own")
    for _ in range(5):
        world.round()
        world.tick()
        seen.add(world.nodes["own"].labels[PRESENT])
    assert seen == {"false"}
