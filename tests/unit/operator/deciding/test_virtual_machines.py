"""Nodes whose GPUs are for virtual machines get no operand: a driver would take the GPUs from machines that run."""

from typing import Any

import pytest
from tests.unit.operator.world import World, settled_world

from purser.operator.model import EmitEvent, Evict, NodeWorkload
from purser.operator.names import DEPLOY_OPERANDS_LABEL
from purser.operator.order import Operand

LABEL = "nvidia.com/gpu.workload.config"
VIRTUAL = ("vm-passthrough", "vm-vgpu")


def prefers(workload: str) -> dict[str, Any]:
    return {"sandboxWorkloads": {"defaultWorkload": workload}}


def operands(world: World, node: str) -> set[str]:
    return {pod.operand for pod in world.on(node)} - {"gpu-discovery"}


@pytest.mark.parametrize(
    ("labels", "spec", "has_operands"),
    [
        pytest.param({LABEL: "vm-passthrough"}, {}, False, id="whole GPUs for virtual machines"),
        pytest.param({LABEL: "vm-vgpu"}, {}, False, id="vGPUs"),
        pytest.param({LABEL: "container"}, {}, True, id="containers"),
        pytest.param({}, prefers("vm-passthrough"), False, id="the default, no label"),
        pytest.param({LABEL: "container"}, prefers("vm-passthrough"), True, id="the label counts more"),
        pytest.param({LABEL: "vm-vgpu"}, prefers("container"), False, id="and the other way round"),
        pytest.param({LABEL: "VM-Passthrough"}, prefers("vm-vgpu"), False, id="an unknown word: the default"),
        pytest.param({LABEL: ""}, {}, True, id="an empty word: the default"),
    ],
)
def test_whom_gpus_are_for_decides_whether_a_node_gets_operands(
    labels: dict[str, str], spec: dict[str, Any], has_operands: bool
) -> None:
    world = World()
    world.add_policy(spec=spec)
    world.add_node("a", labels=labels)
    world.cards["a"] = "20b0"
    world.settle()
    assert bool(operands(world, "a")) is has_operands
    assert bool(world.deployed("a")) is has_operands
    assert world.status()["state"] == "ready"
    assert (world.status()["nodes"]["excluded"], world.status()["nodes"]["ready"]) == (
        (0, 1) if has_operands else (1, 0)
    )


@pytest.mark.parametrize("workload", VIRTUAL)
def test_a_running_node_that_goes_to_virtual_machines_is_emptied_the_driver_last_and_nobody_evicted(
    workload: str,
) -> None:
    world = settled_world("a", "b")
    world.watchers.append(lambda action: pytest.fail(str(action)) if isinstance(action, Evict) else None)
    pod = NodeWorkload(namespace="ml", name="train", uid="train", node="a", uses_gpu=True)
    world.workloads[pod.uid] = pod
    world.label("a", **{LABEL: workload})
    world.settle()
    assert operands(world, "a") == {Operand.DRIVER}
    assert "pod ml/train still uses a GPU" in world.condition("Degraded")["message"]
    del world.workloads[pod.uid]
    world.settle()
    assert operands(world, "a") == set()
    ready = world.condition("Ready")
    assert (ready["status"], ready["message"]) == (
        "True",
        "1 of 1 GPU node is ready; nodes for virtual machines run no operands: a",
    )
    world.label("a", **{LABEL: None})
    world.settle()
    assert operands(world, "a") == operands(world, "b")


def test_where_virtual_machines_have_all_gpus_the_policy_says_so() -> None:
    world = World()
    world.add_policy(spec=prefers("vm-passthrough"))
    world.add_node("a")
    world.add_node("b")
    world.settle()
    assert world.condition("Ready")["message"] == (
        "no GPU nodes for containers; nodes for virtual machines run no operands: a (and 1 more node)"
    )


def test_where_people_have_excluded_all_gpu_nodes_the_policy_says_so() -> None:
    world = World()
    world.add_policy()
    world.add_node("a")
    world.add_node("b")
    world.label("a", **{DEPLOY_OPERANDS_LABEL: "false"})
    world.label("b", **{LABEL: "vm-vgpu"})
    world.settle()
    ready = world.condition("Ready")
    assert (ready["reason"], ready["message"]) == (
        "NoGpuNodes",
        "all GPU nodes are excluded; nodes for virtual machines run no operands: b",
    )


@pytest.mark.parametrize("default", ["container", "vm-vgpu"])
def test_an_unknown_word_is_named_once_on_the_node(default: str) -> None:
    world = World()
    world.add_policy(spec=prefers(default))
    world.add_node("a", labels={LABEL: "vm-gpu"})
    events: list[EmitEvent] = []
    for _ in range(60):
        events += [each for each in world.round().events if each.kind == "Node"]
        world.tick()
    remedy = "set the label to container, vm-passthrough or vm-vgpu"
    message = f"label {LABEL} has unknown value vm-gpu, so {default} applies: {remedy}"
    assert [(each.reason, each.warning) for each in events] == [("WorkloadUnknown", True)]
    assert message in events[0].message
    assert [each["message"] for each in world.status()["failingNodes"]] == [message]
    assert world.status()["state"] == "ready"
