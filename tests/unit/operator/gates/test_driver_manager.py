"""What NVIDIA's driver manager writes on nodes: it pauses and lets in by itself, and leaves labels behind."""

import pytest
from tests.unit.operator.world import World, settled_world

from purser.operator.names import LEFTOVER_DEPLOY_LABELS
from purser.operator.order import Operand

PAUSED = "paused-for-driver-upgrade"


@pytest.fixture
def world() -> World:
    return settled_world("a", "b")


def manager_labels(world: World, node: str, value: str) -> None:
    """As it writes them: what is let in, and every operand that it knows and does not find, without a value."""
    let_in = [each for each in Operand if each is not Operand.DRIVER and world.deployed(node).get(each)]
    world.label(node, **{each.deploy_label: value for each in let_in})
    world.label(node, **dict.fromkeys(LEFTOVER_DEPLOY_LABELS, ""))


def test_a_recreated_driver_pod_has_its_operands_back_however_the_manager_labels_them(world: World) -> None:
    world.crash("a", Operand.DRIVER)
    world.restart_driver("a")
    manager_labels(world, "a", PAUSED)
    world.run(5)
    manager_labels(world, "a", "true")
    world.settle()
    world.heal("a", Operand.DRIVER)
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    assert set(world.deployed("a")) == set(world.deployed("b"))


def test_a_driver_waits_for_its_config_map_and_outlives_it(world: World) -> None:
    """People write ConfigMaps by removing them first; that must not take anybody's driver."""
    world.change_policy({"driver": {"kernelModuleConfig": {"name": "modules"}}})
    before = {pod.uid for pod in world.pods.values() if pod.operand == Operand.DRIVER}
    world.settle()
    drivers = {pod.uid for pod in world.pods.values() if pod.operand == Operand.DRIVER}
    assert drivers == before and not any(node.unschedulable for node in world.nodes.values())
    world.add_node("new", os="24.04")
    world.settle()
    assert Operand.DRIVER not in {pod.operand for pod in world.on("new")}
    world.wait(700)
    world.settle()
    assert "driver.kernelModuleConfig" in world.condition("Degraded")["message"]
    world.config_maps["modules"] = ("nvidia.conf",)
    world.settle()
    assert world.condition("Ready")["status"] == "True"
    drivers = {pod.uid for pod in world.pods.values() if pod.operand == Operand.DRIVER}
    assert len(drivers) == 3 and not drivers & before
    del world.config_maps["modules"]
    written = len(world.history)
    world.settle()
    assert {pod.uid for pod in world.pods.values() if pod.operand == Operand.DRIVER} == drivers
    assert len(world.history) == written
    world.config_maps["modules"] = ("nvidia-uvm.conf", "nvidia.conf")
    world.settle()
    assert not drivers & {pod.uid for pod in world.pods.values() if pod.operand == Operand.DRIVER}


def test_what_the_manager_leaves_goes_with_the_policy_and_what_people_wrote_stays(world: World) -> None:
    manager_labels(world, "a", "true")
    world.label("a", **{Operand.DRIVER.deploy_label: "pre-installed", LEFTOVER_DEPLOY_LABELS[0]: "true"})
    world.label("b", **{Operand.DCGM_EXPORTER.deploy_label: "false"})
    world.settle()
    world.delete_policy()
    world.settle()
    assert world.policies == {}
    left = {
        name: {key: value for key, value in node.labels.items() if key.startswith("nvidia.com/gpu.deploy.")}
        for name, node in world.nodes.items()
    }
    assert left == {"a": {LEFTOVER_DEPLOY_LABELS[0]: "true"}, "b": {Operand.DCGM_EXPORTER.deploy_label: "false"}}
