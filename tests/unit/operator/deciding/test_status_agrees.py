"""What status says of nodes in one place agrees with what it says in the others."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.operator.world import World, made_once

from purser.operator.model import NodeWorkload
from purser.operator.order import Operand

RULED_OUT: dict[str, Any] = {
    "driver": {"version": "580.1", "requirements": [{"nodeSelector": {"which": "a"}, "excluded": ["580.1"]}]}
}


@pytest.fixture
@made_once
def world() -> World:
    found = World()
    found.add_policy(spec={"driver": {"version": "580.1"}})
    found.add_node("a", labels={"which": "a"})
    found.add_node("b")
    found.settle()
    return found


def rule_out(world: World) -> None:
    world.change_policy(RULED_OUT)


def forget_the_system(world: World) -> None:
    world.set_node("a", os_image="Plan 9")
    world.nfd_leaves("a")
    world.annotate("a", "purser.dev/node-facts", None)
    world.troubles["a", "gpu-discovery"] = "ErrImagePull"
    world.label("a", **{"feature.node.kubernetes.io/pci-10de.present": "true"})


def crash(world: World) -> None:
    world.crash("a", Operand.DCGM_EXPORTER)


def refuse(world: World) -> None:
    world.label("a", **{"nvidia.com/gpu.deploy.driver": None})
    world.refusing["Node a"] = "no"


TROUBLES = (rule_out, forget_the_system, crash, refuse)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_node_that_fails_is_counted_as_failing_and_not_as_ready(
    world: World, trouble: Callable[[World], None]
) -> None:
    trouble(world)
    world.run(3)
    status = world.status()
    assert [each["name"] for each in status["failingNodes"]] == ["a"]
    assert status["nodes"] == {"total": 2, "ready": 1, "progressing": 0, "failing": 1, "excluded": 0}
    assert (status["state"], world.condition("Ready")["status"]) == ("notReady", "False")
    assert world.condition("Ready")["message"].startswith("1 of 2 GPU nodes is ready; node a: ")
    assert world.condition("Degraded")["status"] == "True"


def test_of_a_driver_that_is_ruled_out_and_runs_on_nobody_says_that_there_is_none(world: World) -> None:
    pods = set(world.pods)
    rule_out(world)
    world.settle()
    (failing,) = world.status()["failingNodes"]
    assert failing["reason"] == "DriverVersionBlocked"
    assert failing["message"].startswith("the driver is not upgraded: driver 580.1 matches 580.1, which is excluded")
    assert set(world.pods) == pods
    for pod in world.on("a"):
        if pod.operand == Operand.DRIVER:
            del world.pods[pod.uid]
    world.settle()
    (failing,) = world.status()["failingNodes"]
    assert (failing["reason"], failing["message"]) == (
        "NoDriver",
        "driver 580.1 matches 580.1, which is excluded on this node",
    )


def test_an_operand_says_in_one_word_what_blocks_it(world: World) -> None:
    def told() -> dict[str, str]:
        return {each["name"]: each["reason"] for each in world.status()["operands"] if each["reason"]}

    assert told() == {}
    world.add_node("c")
    world.crash("c", Operand.DRIVER)
    world.settle()
    waiting = {each["name"] for each in world.status()["operands"] if each["waiting"]}
    assert waiting
    assert told() == {"driver": "CrashLoopBackOff", **dict.fromkeys(waiting, "Waiting")}


def test_progressing_names_a_node_that_is_on_its_way(world: World) -> None:
    crash(world)
    world.add_node("c")
    world.round()
    world.round()
    assert world.condition("Progressing")["message"].startswith("node c: ")


def test_progressing_says_what_an_upgrade_waits_for_whichever_way_it_is_reported(world: World) -> None:
    why = "node a: pod ml/share has no controller and would not be recreated (force is off)"
    world.workloads["share"] = NodeWorkload(namespace="ml", name="share", uid="share", node="a", uses_gpu=True)
    world.change_policy({"driver": {"version": "600.1", "upgradePolicy": {"maxUnavailable": 1}}})
    world.run(6)
    told = world.condition("Progressing")
    assert (told["reason"], told["message"]) == ("Updating", f"updating: driver; {why}")
    assert world.condition("Ready")["message"] == f"2 of 2 GPU nodes are ready; {told['message']}"
    world.add_node("c")
    world.round()
    world.tick()
    world.round()
    told = world.condition("Progressing")
    assert told["reason"] == "NodesProgressing"
    assert told["message"].startswith("node c: ")
    assert told["message"].endswith(f"; {why}")
    world.workloads.clear()
    world.settle()
    assert world.condition("Progressing")["reason"] == "Settled"
