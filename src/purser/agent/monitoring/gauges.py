"""What is measured of the node's GPUs, in Purser's own metrics."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric

from purser.agent.nvml.driver import Telemetry
from purser.core.monitoring.accounts import ContainerUse, GpuAccount, PodContainer
from purser.core.monitoring.audit import AuditFinding, FindingKind

MAX_CONTAINER_SERIES = 1024
"""Pairs of container and GPU exported at most, those with the most memory first: far more than kubelet runs on a
node."""

_SENSORS: tuple[tuple[str, str, str, float], ...] = (
    (
        "purser_device_utilization_ratio",
        "Fraction of time during which at least one kernel was running on the GPU.",
        "DCGM_FI_DEV_GPU_UTIL",
        0.01,
    ),
    ("purser_device_temperature_celsius", "Temperature.", "DCGM_FI_DEV_GPU_TEMP", 1.0),
    ("purser_device_power_watts", "Power draw.", "DCGM_FI_DEV_POWER_USAGE", 1.0),
)
"""Name, sentence, the field that it is from, and by how much that is multiplied."""


class Measurements(msgspec.Struct, frozen=True):
    """Current values of the node's GPUs, by uuid."""

    telemetry: Mapping[str, Telemetry] = {}
    accounts: Mapping[str, GpuAccount] = {}
    ages_s: Mapping[str, float] = {}
    """Seconds since the last measurement, also for GPUs whose values are too old to be exported."""
    findings: tuple[AuditFinding, ...] = ()


def by_uuid(name: str, about: str, values: Iterable[tuple[str, float]]) -> Metric:
    """A gauge with a series for each device, by its uuid."""
    family = GaugeMetricFamily(name, about, labels=["uuid"])
    for uuid, value in values:
        family.add_metric([uuid], value)
    return family


def families(measured: Measurements) -> Iterator[Metric]:
    """Every metric of these measurements, some without samples."""
    yield from _sensor_metrics(measured.telemetry)
    yield _by_owner(measured.accounts)
    yield from _container_metrics(measured.accounts.values())
    yield _ages(measured.ages_s)
    yield _findings(measured.findings)


def _sensor_metrics(telemetry: Mapping[str, Telemetry]) -> Iterator[Metric]:
    gpus = sorted(telemetry.items())
    used = ((uuid, gpu.memory.used) for uuid, gpu in gpus if gpu.memory is not None)
    yield by_uuid("purser_device_memory_used_bytes", "Memory in use.", used)
    for name, about, field, factor in _SENSORS:
        yield by_uuid(name, about, ((uuid, gpu.fields[field] * factor) for uuid, gpu in gpus if field in gpu.fields))


def _by_owner(accounts: Mapping[str, GpuAccount]) -> Metric:
    family = GaugeMetricFamily(
        "purser_device_memory_owner_bytes",
        "GPU memory by owner: processes of pods, foreign processes, the driver, and idle. The values add up to "
        "the whole GPU.",
        labels=["uuid", "owner"],
    )
    for uuid, account in sorted(accounts.items()):
        for owner, amount in account.memory.items():
            family.add_metric([uuid, owner.value], amount)
    return family


def _container_metrics(accounts: Iterable[GpuAccount]) -> Iterator[Metric]:
    labels = ["namespace", "pod", "container", "uuid"]
    memory = GaugeMetricFamily(
        "purser_container_memory_used_bytes", "GPU memory that a container's processes use.", labels=labels
    )
    busy = GaugeMetricFamily(
        "purser_container_utilization_ratio",
        "GPU compute that a container's processes used recently.",
        labels=labels,
    )
    uses = sorted((use for account in accounts for use in account.containers), key=_by_usage)
    for use in uses[:MAX_CONTAINER_SERIES]:
        its = [use.owner.namespace, use.owner.pod, use.owner.container, use.device]
        if use.memory is not None:
            memory.add_metric(its, use.memory)
        if use.sm_percent is not None:
            busy.add_metric(its, use.sm_percent / 100)
    yield memory
    yield busy


def _by_usage(use: ContainerUse) -> tuple[int, PodContainer, str]:
    return -(use.memory or 0), use.owner, use.device


def _ages(ages_s: Mapping[str, float]) -> Metric:
    return by_uuid(
        "purser_device_measurement_age_seconds",
        "Seconds since the GPU was last measured. After 30 seconds, its measured values are omitted.",
        sorted(ages_s.items()),
    )


def _findings(findings: Iterable[AuditFinding]) -> Metric:
    family = GaugeMetricFamily(
        "purser_agent_audit_findings",
        "Pods that use more GPU memory than granted (over-memory), more compute than granted (over-compute) or a "
        "GPU without a grant (without-grant), and GPUs used by processes that belong to no pod (foreign). A pod counts "
        "once for each such GPU.",
        labels=["finding"],
    )
    counts = Counter(finding.key.kind for finding in findings)
    for kind in FindingKind:
        family.add_metric([kind.value], counts[kind])
    return family
