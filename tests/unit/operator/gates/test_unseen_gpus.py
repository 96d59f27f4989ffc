"""GPUs that nobody sees any more are not gone while a pod uses one."""

import pytest
from tests.unit.operator.world import World, made_once

from purser.operator.deciding import nodes_to_inspect, reconcile
from purser.operator.model import NodeWorkload

PRESENT = "nvidia.com/gpu.present"


@pytest.fixture(params=["own", "nfd"])
def world(request: pytest.FixtureRequest) -> World:
    return seen_by(request.param)


@made_once
def seen_by(who: str) -> World:
    """A node each for the two ways to look, of which one is about to lose its GPU."""
    found = World()
    found.add_policy(spec={"discovery": {"goneAfterSeconds": 5}})
    found.add_node("a", nfd=who == "nfd")
    found.add_node("b")
    found.settle()
    return found


def train(world: World, **more: object) -> NodeWorkload:
    pod = NodeWorkload(namespace="ml", name="train", uid="train", node="a", uses_gpu=True, **more)  # type: ignore[arg-type]
    world.workloads[pod.uid] = pod
    return pod


def lose(world: World) -> None:
    """Nobody sees the GPUs of node a any more, for long."""
    world.gpus["a"] = 0
    if "feature.node.kubernetes.io/kernel-version.full" in world.nodes["a"].labels:
        world.nfd_leaves("a")
        world.nfd_comes("a")
    for _ in range(3):
        world.settle()
        world.wait(100)
    world.settle()


def test_the_stack_stays_under_a_pod_and_goes_after_it(world: World) -> None:
    pods = {pod.uid for pod in world.on("a")}
    pod = train(world)
    lose(world)
    assert {pod.uid for pod in world.on("a")} == pods
    assert world.nodes["a"].labels[PRESENT] == "true"
    del world.workloads[pod.uid]
    world.settle()
    assert world.nodes["a"].labels[PRESENT] == "false"
    assert world.deployed("a") == {}


def test_users_get_an_event(world: World) -> None:
    train(world)
    lose(world)
    (failing,) = world.status()["failingNodes"]
    assert (failing["name"], failing["reason"]) == ("a", "GpusMissing")
    assert failing["message"].startswith("the GPUs are no longer detected but are still used by pod ml/train")
    assert world.status()["nodes"] == {"total": 2, "ready": 1, "progressing": 0, "failing": 1, "excluded": 0}
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Degraded")["status"] == "True"


@pytest.mark.parametrize("more", [{"terminating": True}, {"phase": "Succeeded"}, {"node": "b"}])
def test_other_pods_hold_nothing(world: World, more: dict[str, object]) -> None:
    fields = {"namespace": "ml", "name": "w", "uid": "w", "node": "a", "uses_gpu": True} | more
    world.workloads["w"] = NodeWorkload(**fields)  # type: ignore[arg-type]
    lose(world)
    assert world.nodes["a"].labels[PRESENT] == "false"
    assert world.condition("Ready")["message"] == "1 of 1 GPU node is ready"


def test_as_long_as_pods_are_not_known_nothing_goes(world: World) -> None:
    train(world)
    lose(world)
    pods = {pod.uid for pod in world.on("a")}
    for _ in range(5):
        blind = world.snapshot()
        assert set(blind.workloads) == {"a"}
        blind.workloads.clear()
        for action in reconcile(blind).actions:
            world.do(action)
        world.tick()
    assert {pod.uid for pod in world.on("a")} == pods


def test_only_nodes_that_would_lose_their_stack_are_looked_into(world: World) -> None:
    assert nodes_to_inspect(world.snapshot()) == frozenset()
    lose(world)
    assert nodes_to_inspect(world.snapshot()) == frozenset()
