"""Metrics of GPUs' health."""

import pytest
from tests.unit.agent.builders import A, B, device

from purser.agent.metrics import AgentMetrics, NodeSnapshot
from purser.core.model import NodeInventory


@pytest.mark.parametrize(
    ("name", "uuid", "reason", "value"),
    [
        ("purser_device_healthy", A, "", 1),
        ("purser_device_degraded", A, "NVLink errors", 1),
        ("purser_device_healthy", B, "Xid 79", 0),
        ("purser_device_degraded", B, "", 0),
    ],
)
def test_a_gpu_is_healthy_or_not_and_degraded_or_not(name: str, uuid: str, reason: str, value: int) -> None:
    inventory = NodeInventory("n", (device(A), device(B, healthy=False, unhealthy_reason="Xid 79")))
    metrics = AgentMetrics()
    metrics.watch(
        lambda: NodeSnapshot(inventory, {}, {}, (), 0, registered=True, streams=1, degraded={A: "NVLink errors"})
    )
    assert metrics.registry.get_sample_value(name, {"uuid": uuid, "reason": reason}) == value
