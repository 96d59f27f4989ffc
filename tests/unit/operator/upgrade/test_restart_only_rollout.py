"""The whole kernel where only the driver's pods change: what is not loaded again disturbs nobody."""

from typing import Any

import pytest
from tests.unit.operator.world import settled_world

from purser.operator.model import Evict, NodeWorkload, PatchNode
from purser.operator.names import PAUSED_FOR_UPGRADE
from purser.operator.order import Operand

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
    patches = [action for action in world.history if isinstance(action, PatchNode)]
    assert any(PAUSED_FOR_UPGRADE in patch.labels.values() for patch in patches) is evicted
    assert ("t" in world.workloads) is not evicted
    assert world.status()["state"] == "ready"
