"""The first driver of a node is the right one for its card: no label of NVIDIA's discovery is needed, which would come
with a driver only."""

from typing import Any

import pytest
from tests.unit.operator.world import World

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.operator.order import Operand

PRODUCT = "nvidia.com/gpu.product"
H100, T4 = "NVIDIA-H100-80GB-HBM3", "Tesla-T4"
SPEC: dict[str, Any] = {
    "driver": {
        "version": "580.1",
        "profiles": [{"name": "hopper", "nodeSelector": {PRODUCT: H100}, "version": "595.1"}],
        "requirements": [
            {"nodeSelector": {PRODUCT: H100}, "minimum": "590"},
            {"nodeSelector": {PRODUCT: "NVIDIA-B200"}, "excluded": ["580"], "reason": "it hangs"},
        ],
    }
}


@pytest.fixture
def world() -> World:
    """Nodes of three models, found by node-feature-discovery and by Purser's; no label has their models."""
    world = World()
    world.add_policy(spec=SPEC)
    world.cards |= {"h100": "2330", "h100-alone": "2330", "b200": "2901"}
    for name in ("h100", "b200", "t4"):
        world.add_node(name, nfd=True)
    world.add_node("h100-alone", nfd=False)
    return world


def driver_of(world: World, node: str) -> str:
    pod = world.pod(node, Operand.DRIVER)
    return "none" if pod is None else "hopper" if "hopper" in pod.daemon_set else "common"


def test_floors_holes_and_profiles_hold_for_the_first_driver(world: World) -> None:
    seen: dict[str, set[str]] = {}
    for _ in range(40):
        world.round()
        world.tick()
        for name in world.nodes:
            seen.setdefault(name, set()).add(driver_of(world, name))
    assert seen == {
        "h100": {"none", "hopper"},
        "h100-alone": {"none", "hopper"},
        "b200": {"none"},
        "t4": {"none", "common"},
    }
    [failing] = world.status()["failingNodes"]
    assert failing["name"] == "b200" and "it hangs" in failing["message"]


def test_a_node_waits_until_discovery_knows_its_model(world: World) -> None:
    world.troubles["h100", "gpu-discovery"] = "ImagePullBackOff"
    world.settle()
    assert driver_of(world, "h100") == "none"
    assert world.deployed("h100") == {}
    [driver] = [each for each in world.status()["operands"] if each["name"] == "driver"]
    assert (driver["waiting"], driver["state"]) != (0, "ready")
    assert "h100" not in {each["name"] for each in world.status()["failingNodes"]}
    world.heal("h100", "gpu-discovery")
    world.settle()
    assert driver_of(world, "h100") == "hopper"


def test_without_pursers_discovery_nobody_waits(world: World) -> None:
    world.change_policy({**SPEC, "discovery": {"enabled": False}})
    world.settle()
    assert driver_of(world, "h100") == "common"


def test_a_running_driver_stays_when_its_nodes_model_is_forgotten(world: World) -> None:
    world.settle()
    pods = {pod.uid for pod in world.pods.values() if pod.operand != "gpu-discovery"}
    world.troubles |= {(name, "gpu-discovery"): "CrashLoopBackOff" for name in world.nodes}
    for name in ("h100", "t4"):
        world.annotate(name, NODE_FACTS_ANNOTATION, None)
    labels = {name: world.nodes[name].labels["purser.dev/driver-pool"] for name in ("h100", "t4")}
    world.settle()
    assert pods <= set(world.pods)
    assert {name: world.nodes[name].labels["purser.dev/driver-pool"] for name in labels} == labels


def test_labels_of_shares_change_no_pool(world: World) -> None:
    world.settle()
    pods = set(world.pods)
    for value in (H100, f"{H100}-SHARED", f"{H100}-MIG-1g.10gb", None):
        world.label("h100", **{PRODUCT: value})
        world.settle()
        assert pods <= set(world.pods)
    assert world.nodes["h100"].labels["nvidia.com/gpu-driver-upgrade-state"] == "upgrade-done"
