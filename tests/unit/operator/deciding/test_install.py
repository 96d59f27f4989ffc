"""From nothing to a ready stack, node by node and in order."""

import itertools

import pytest
from tests.unit.operator.sections import all_operands
from tests.unit.operator.world import World, same_order

from purser.operator.model import PatchNode, WriteStatus
from purser.operator.order import Operand, prerequisites

NVIDIA = all_operands(enabled=True) | {"devicePlugin": {"flavor": "nvidia"}}


@pytest.fixture
def world() -> World:
    found = World()
    found.add_policy(spec=NVIDIA)
    return found


def test_a_node_gets_every_operand_after_what_it_needs(world: World) -> None:
    world.add_node("a", labels={"nvidia.com/mig.capable": "true"})
    world.settle()
    order = same_order(world.let_in, "a")
    assert sorted(order) == sorted(each.value for each in Operand)
    for operand in Operand:
        assert all(order.index(needed) < order.index(operand) for needed in prerequisites(operand, tuple(Operand)))
    assert world.status()["state"] == "ready"
    assert world.condition("Progressing")["status"] == world.condition("Degraded")["status"] == "False"


def test_nodes_are_found_with_node_feature_discovery_and_without(world: World) -> None:
    world.add_node("with", nfd=True)
    world.add_node("without", nfd=False)
    world.add_node("no-gpu", nfd=False, gpus=0)
    world.add_node("no-gpu-either", nfd=True, gpus=0)
    world.settle()
    assert world.status()["nodes"]["ready"] == 2
    assert world.deployed("with") == world.deployed("without")
    for name in ("no-gpu", "no-gpu-either"):
        assert world.deployed(name) == {}
        assert "nvidia.com/gpu.present" not in world.nodes[name].labels


def test_a_failing_driver_on_one_node_leaves_the_others_complete(world: World) -> None:
    for name in ("a", "b", "c"):
        world.add_node(name)
    world.crash("b", Operand.DRIVER)
    world.settle()
    assert world.deployed("b") == {"driver": "true"}
    assert world.deployed("a") == world.deployed("c") and len(world.deployed("a")) == 8
    counts = world.status()["nodes"]
    assert (counts["ready"], counts["failing"]) == (2, 1)
    (failing,) = world.status()["failingNodes"]
    assert (failing["name"], failing["operand"], failing["reason"]) == ("b", "driver", "CrashLoopBackOff")
    assert world.condition("Degraded")["message"] == "node b: driver: CrashLoopBackOff: it broke"
    assert world.condition("Ready")["message"].startswith("2 of 3 GPU nodes are ready")


def test_a_node_costs_few_writes(world: World) -> None:
    world.add_node("a")
    world.settle()
    assert sum(isinstance(each, PatchNode) for each in world.history) <= 7


def test_without_gpu_nodes_the_stack_is_ready(world: World) -> None:
    world.settle()
    assert world.condition("Ready") | {"lastTransitionTime": ""} == {
        "type": "Ready",
        "status": "True",
        "reason": "NoGpuNodes",
        "message": "no GPU nodes",
        "lastTransitionTime": "",
        "observedGeneration": 1,
    }


def test_the_finalizer_is_there_before_anything_else(world: World) -> None:
    world.add_node("a")
    (only,) = world.round().actions
    assert only.finalizers == ("purser.dev/operator-cleanup",)
    assert world.objects == {}


def test_a_drivers_own_node_gets_everything_but_a_driver(world: World) -> None:
    world.add_node("a", labels={"nvidia.com/gpu.deploy.driver": "false"})
    world.settle()
    assert world.deployed("a")["driver"] == "false"
    assert world.pod("a", Operand.DRIVER) is None
    assert world.status()["state"] == "ready"
    assert world.status()["pools"] == []


def test_the_status_reports_each_change_once(world: World) -> None:
    world.add_node("a")
    world.settle()
    _, *statuses = [each.status for each in world.history if isinstance(each, WriteStatus)]
    assert all(one != other for one, other in itertools.pairwise(statuses))
    assert {each.conditions[0].last_transition_time for each in statuses[:-1]} == {
        statuses[0].conditions[0].last_transition_time
    }


def test_a_pod_that_is_not_ready_for_long_fails_without_any_other_sign(world: World) -> None:
    world.add_node("a")
    world.settle()
    world.crash("a", Operand.DCGM_EXPORTER, "")
    assert world.round().requeue_after_s == 600.0
    world.settle()
    assert world.status()["nodes"]["failing"] == 0
    world.wait(600)
    world.settle()
    assert world.status()["failingNodes"][0]["reason"] == "NotReady"


def test_why_a_node_is_not_complete_is_an_event_on_it(world: World) -> None:
    world.add_node("a")
    world.crash("a", Operand.DRIVER, "ErrImagePull")
    said = []
    for _ in range(6):
        said += world.round().events
        world.tick()
    (about,) = [each for each in said if each.kind == "Node"]
    assert (about.name, about.reason, about.warning) == ("a", "ErrImagePull", True)
    assert about.message == "node a: driver: ErrImagePull: it broke"
