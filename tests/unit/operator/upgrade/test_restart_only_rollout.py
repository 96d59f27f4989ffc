"""The whole kernel where only the driver's pods change: what is not loaded again disturbs nobody."""

from typing import Any

import pytest
from tests.unit.operator.world import World, settled_world

from purser.operator.model import Action, Evict, NodeWorkload, PatchNode
from purser.operator.names import PAUSED_FOR_UPGRADE, UPGRADE_STATE_LABEL
from purser.operator.order import Operand


def settled() -> World:
    return settled_world(*"abc")


def driver_of(world: World, node: str) -> str:
    (pod,) = [pod.uid for pod in world.pods.values() if pod.node == node and pod.operand == Operand.DRIVER]
    return pod


def watch(world: World) -> tuple[list[str], list[Action]]:
    """States that node a goes through, and what disturbs its users."""
    states: list[str] = []
    disturbing: list[Action] = []

    def see(action: Action) -> None:
        if isinstance(action, Evict):
            disturbing.append(action)
        if isinstance(action, PatchNode):
            if PAUSED_FOR_UPGRADE in action.labels.values():
                disturbing.append(action)
            if action.node == "a" and UPGRADE_STATE_LABEL in action.labels:
                states.append(str(action.labels[UPGRADE_STATE_LABEL]))

    world.watchers.append(see)
    return states, disturbing


def test_another_priority_of_the_drivers_pods_restarts_them_and_nothing_else() -> None:
    world = settled()
    before = driver_of(world, "a")
    states, disturbing = watch(world)
    world.change_policy({"daemonsets": {"priorityClassName": "system-node-critical", "labels": {"team": "gpu"}}})
    world.settle()
    assert not disturbing
    assert states == [
        "upgrade-required",
        "cordon-required",
        "pod-restart-required",
        "validation-required",
        "uncordon-required",
        "upgrade-done",
    ]
    assert driver_of(world, "a") != before
    assert world.status()["state"] == "ready"
    assert world.status()["upgrade"]["done"] == 3


TOLERATIONS = {"tolerations": [{"operator": "Exists"}]}


@pytest.mark.parametrize(
    ("spec", "evicted"),
    [
        pytest.param({"daemonsets": TOLERATIONS}, False, id="a toleration"),
        pytest.param({"driver": {"resources": {"limits": {"memory": "8Gi"}}}}, False, id="resources"),
        pytest.param({"driver": {"version": "570.1"}}, True, id="a version"),
        pytest.param({"driver": {"kernelModuleType": "open"}}, True, id="the kind of its modules"),
    ],
)
def test_gpu_pods_leave_only_for_another_driver(spec: dict[str, Any], evicted: bool) -> None:
    world = settled_world("a")
    train = NodeWorkload(namespace="default", name="train", uid="t", node="a", uses_gpu=True, controller="Job")
    world.workloads["t"] = train
    before = world.pod("a", Operand.DRIVER)
    world.change_policy(spec)
    world.settle()
    after = world.pod("a", Operand.DRIVER)
    assert before is not None and after is not None
    assert before.uid != after.uid
    assert (before.driver_config != after.driver_config) is evicted
    assert any(isinstance(action, Evict) for action in world.history) is evicted
    assert ("t" in world.workloads) is not evicted
    assert world.status()["state"] == "ready"
