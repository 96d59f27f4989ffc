"""A driver leaves last: once no operand that needs it and no pod with a GPU is there, and nobody is evicted for it."""

from collections.abc import Callable

import pytest
from tests.unit.operator.world import World, settled_world

from purser.operator.deciding import blocked_removals, is_clean, nodes_to_inspect, reconcile
from purser.operator.model import Action, Evict, NodeWorkload, PatchNode
from purser.operator.order import Operand

NO_DRIVER = {"driver": {"enabled": False}}
EXCLUDED = {"nvidia.com/gpu.deploy.operands": "false"}


def delete(world: World) -> None:
    world.delete_policy()


def disable(world: World) -> None:
    world.change_policy(NO_DRIVER)


def exclude(world: World) -> None:
    world.label("a", **EXCLUDED)
    world.label("b", **EXCLUDED)


REMOVALS = (delete, disable, exclude)
Removal = Callable[[World], None]


@pytest.fixture
def world() -> World:
    found = settled_world("a", "b")
    found.history.clear()
    found.watchers.append(nobody_is_evicted)
    return found


def nobody_is_evicted(action: Action) -> None:
    assert not isinstance(action, Evict)


def train(world: World, node: str = "a", **more: object) -> NodeWorkload:
    pod = NodeWorkload(namespace="ml", name=f"train-{node}", uid=f"train-{node}", node=node, uses_gpu=True, **more)  # type: ignore[arg-type]
    world.workloads[pod.uid] = pod
    return pod


def drivers(world: World) -> set[str]:
    return {pod.node for pod in world.pods.values() if pod.operand == Operand.DRIVER and not pod.terminating}


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_driver_stays_as_long_as_a_pod_has_a_gpu(world: World, removal: Removal) -> None:
    pod = train(world)
    removal(world)
    world.settle()
    assert drivers(world) == {"a"}
    assert not world.round().actions
    del world.workloads[pod.uid]
    world.settle()
    assert drivers(world) == set()
    assert all("purser.dev/driver-pool" not in node.labels for node in world.nodes.values())
    assert not any(key.kind == "DaemonSet" and "driver" in key.name for key in world.objects) or removal is exclude


def test_operands_do_not_come_back_before_the_drivers_pod_has_gone(world: World) -> None:
    opened: list[bool] = []

    def look(action: Action) -> None:
        if isinstance(action, PatchNode) and action.labels.get(Operand.DRIVER.deploy_label, "") is None:
            world.lingering = True
        if isinstance(action, PatchNode) and action.labels.get(Operand.TOOLKIT.deploy_label) == "true":
            opened.append(any(pod.operand == Operand.DRIVER for pod in world.on(action.node)))

    world.watchers.append(look)
    disable(world)
    world.settle()
    assert opened == []
    world.lingering = False
    world.settle()
    assert opened == [False, False]


def test_operands_serve_the_pods_that_hold_a_driver(world: World) -> None:
    train(world)
    disable(world)
    world.settle()
    assert world.pod("a", Operand.DEVICE_PLUGIN) is not None
    (failing,) = world.status()["failingNodes"]
    assert (failing["name"], failing["reason"], failing["operand"]) == ("a", "DriverInUse", "driver")
    assert "pod ml/train-a still uses a GPU" in failing["message"]
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Degraded")["status"] == "True"


def test_a_deleted_policy_names_the_pods_it_waits_for(world: World) -> None:
    train(world)
    train(world, "b")
    delete(world)
    world.settle()
    told = world.condition("Ready")
    assert told["reason"] == "Leaving"
    assert "node a: pod ml/train-a still uses a GPU (and 1 more node)" in told["message"]
    assert blocked_removals(world.snapshot()) == (
        "node a: pod ml/train-a still uses a GPU",
        "node b: pod ml/train-b still uses a GPU",
    )
    assert not is_clean(world.snapshot())
    assert {obj["metadata"]["labels"]["purser.dev/operand"] for obj in world.objects.values()} == {"driver"}


def test_nodes_whose_driver_is_to_leave_are_looked_into(world: World) -> None:
    assert nodes_to_inspect(world.snapshot()) == frozenset()
    train(world)
    delete(world)
    assert nodes_to_inspect(world.snapshot()) == {"a", "b"}
    world.settle()
    assert nodes_to_inspect(world.snapshot()) == {"a"}


@pytest.mark.parametrize("removal", REMOVALS)
def test_as_long_as_pods_are_not_known_the_driver_stays(world: World, removal: Removal) -> None:
    removal(world)
    for _ in range(30):
        blind = world.snapshot()
        blind.workloads.clear()
        for action in reconcile(blind).actions:
            world.do(action)
        world.tick()
    assert drivers(world) == {"a", "b"}
    world.settle()
    assert drivers(world) == set()


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_node_that_blinks_keeps_its_driver_under_its_pods(world: World, removal: Removal) -> None:
    pod = train(world)
    removal(world)
    world.settle()
    world.set_node("a", ready=False)
    world.settle()
    if removal is delete:
        assert blocked_removals(world.snapshot()) == ("node a: pod ml/train-a still uses a GPU",)
    else:
        assert [(each["name"], each["reason"]) for each in world.status()["failingNodes"]] == [("a", "DriverInUse")]
    world.set_node("a", ready=True)
    world.settle()
    assert drivers(world) == {"a"}
    del world.workloads[pod.uid]
    world.settle()
    assert drivers(world) == set()


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("fate", ["its pods were asked to terminate", "it has none", "it is deleted"])
def test_a_node_that_is_away_for_good_holds_nothing_up(world: World, removal: Removal, fate: str) -> None:
    train(world)
    removal(world)
    world.settle()
    if fate == "it is deleted":
        del world.nodes["a"]
    else:
        world.set_node("a", ready=False)
        world.workloads.clear()
        if fate == "its pods were asked to terminate":
            train(world, terminating=True)
    world.settle()
    if removal is delete:
        assert world.policies == {} and world.objects == {}
    else:
        assert "nvidia.com/gpu.deploy.driver" not in world.nodes.get("a", world.nodes["b"]).labels


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_node_that_is_away_and_whose_pods_are_not_known_keeps_its_driver(world: World, removal: Removal) -> None:
    world.set_node("a", ready=False)
    removal(world)
    for _ in range(30):
        blind = world.snapshot()
        assert "a" in blind.workloads
        blind.workloads.clear()
        for action in reconcile(blind).actions:
            world.do(action)
        world.tick()
    assert world.nodes["a"].labels["nvidia.com/gpu.deploy.driver"] == "true"
    world.settle()
    assert "nvidia.com/gpu.deploy.driver" not in world.nodes["a"].labels


def test_what_people_say_of_the_drivers_own_label_counts_at_once(world: World) -> None:
    train(world)
    world.label("a", **{"nvidia.com/gpu.deploy.driver": "false"})
    world.settle()
    assert drivers(world) == {"b"}
    assert world.nodes["a"].labels["nvidia.com/gpu.deploy.driver"] == "false"


def test_a_policy_that_comes_while_the_last_one_waits_takes_the_driver_over(world: World) -> None:
    train(world)
    delete(world)
    world.settle()
    pod = world.pod("a", Operand.DRIVER)
    world.add_policy("next")
    world.settle()
    assert list(world.policies) == ["next"]
    assert world.pod("a", Operand.DRIVER) == pod
    assert world.condition("Ready", "next")["status"] == "True"
