"""What is measured, in Purser's own metrics."""

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from tests.unit.agent.builders import A, B

from purser.agent.monitoring.gauges import MAX_CONTAINER_SERIES, Measurements, families
from purser.agent.nvml import Telemetry
from purser.core.monitoring.accounts import ContainerUse, GpuAccount, GpuMemory, OwnerKind, PodContainer
from purser.core.monitoring.audit import AuditFinding, FindingKey, FindingKind


class Told(Collector):
    def __init__(self, measured: Measurements) -> None:
        self.measured = measured

    def collect(self):
        return families(self.measured)


def told(**measured) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Told(Measurements(**measured)))
    return registry


def use(pod: str, memory: int, sm: int | None = None) -> ContainerUse:
    return ContainerUse(PodContainer("ns", pod, f"uid-{pod}", "main"), A, memory, sm)


def test_containers_with_equal_use_are_all_exported() -> None:
    registry = told(accounts={A: GpuAccount(A, {OwnerKind.IDLE: 7}, (use("p", 5, 30), use("q", 5)), ())})
    of = {"namespace": "ns", "container": "main", "uuid": A}
    assert [
        registry.get_sample_value("purser_container_memory_used_bytes", {**of, "pod": pod}) for pod in ("p", "q")
    ] == [5, 5]
    assert registry.get_sample_value("purser_container_utilization_ratio", {**of, "pod": "p"}) == 0.3
    assert registry.get_sample_value("purser_container_utilization_ratio", {**of, "pod": "q"}) is None, "not told"
    assert registry.get_sample_value("purser_device_memory_owner_bytes", {"uuid": A, "owner": "idle"}) == 7


def test_series_of_containers_are_bounded_and_those_with_the_most_memory_stay() -> None:
    crowd = tuple(use(f"p{number}", number) for number in range(MAX_CONTAINER_SERIES + 3))
    (family,) = [
        each for each in told(accounts={A: GpuAccount(A, {}, crowd, ())}).collect() if "memory_used_b" in each.name
    ][1:]
    assert len(family.samples) == MAX_CONTAINER_SERIES
    assert min(sample.value for sample in family.samples) == 3


def test_of_a_gpu_that_was_not_measured_lately_its_age_alone_is_reported() -> None:
    memory = GpuMemory(10, 6, 4)
    registry = told(
        telemetry={A: Telemetry(uuid=A, fields={"DCGM_FI_DEV_GPU_UTIL": 40.0}, memory=memory)},
        ages_s={A: 1.0, B: 99.0},
    )
    assert registry.get_sample_value("purser_device_utilization_ratio", {"uuid": A}) == 0.4
    assert registry.get_sample_value("purser_device_memory_used_bytes", {"uuid": A}) == 4
    assert registry.get_sample_value("purser_device_power_watts", {"uuid": A}) is None
    assert registry.get_sample_value("purser_device_memory_used_bytes", {"uuid": B}) is None
    assert registry.get_sample_value("purser_device_measurement_age_seconds", {"uuid": B}) == 99


def test_findings_are_counted_by_kind_and_zero_is_reported() -> None:
    finding = AuditFinding(FindingKey(FindingKind.FOREIGN, A), "", "", 200, 0)
    registry = told(findings=(finding,))
    counts = {
        kind.value: registry.get_sample_value("purser_agent_audit_findings", {"finding": kind.value})
        for kind in FindingKind
    }
    assert counts == {"foreign": 1, "over-memory": 0, "over-compute": 0, "without-grant": 0}
