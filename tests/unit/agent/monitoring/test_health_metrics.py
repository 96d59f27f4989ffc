"""Metrics of GPUs' health."""

import pytest
from tests.unit.agent.builders import A, B, device

from purser.agent.metrics import AgentMetrics
from purser.agent.monitoring import NodeSnapshot, NodeStateCollector
from purser.agent.nvml import DeviceReading
from purser.core.device.gpus import FabricIds
from purser.core.health.fabric import FabricRegistration, FabricState
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
    metrics.registry.register(
        NodeStateCollector(
            lambda: NodeSnapshot(inventory, {}, {}, (), 0, registered=True, streams=1, degraded={A: "NVLink errors"})
        )
    )
    assert metrics.registry.get_sample_value(name, {"uuid": uuid, "reason": reason}) == value


@pytest.mark.parametrize(
    ("registration", "labels", "value"),
    [
        (FabricRegistration(FabricState.COMPLETED, FabricIds("c", 7)), {"state": "completed", "domain": "c.7"}, 1),
        (FabricRegistration(FabricState.COMPLETED), {"state": "completed", "domain": ""}, 1),
        (FabricRegistration(FabricState.FAILED, error="Unknown Error"), {"state": "failed", "domain": ""}, 0),
        (None, {"state": "not-supported", "domain": ""}, None),
    ],
)
def test_how_far_a_gpu_is_on_its_way_into_an_nvlink_domain(
    registration: FabricRegistration | None, labels: dict[str, str], value: int | None
) -> None:
    metrics, readings = AgentMetrics(), {A: DeviceReading(uuid=A, registration=registration)}
    metrics.registry.register(
        NodeStateCollector(lambda: NodeSnapshot(None, readings, {}, (), 0, registered=True, streams=1))
    )
    found = metrics.registry.get_sample_value("purser_device_in_nvlink_domain", {"uuid": A, **labels})
    assert found == value
