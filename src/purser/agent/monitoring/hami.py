"""The node's GPUs and shares in the metrics of HAMi's monitor and scheduler."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from purser.agent.book import BookedPod
from purser.agent.monitoring.text import Sample, family
from purser.agent.nvml.driver import Telemetry
from purser.core.kubernetes.quantities import MIB
from purser.core.ledger import UNUSED, Usage
from purser.core.model import Device
from purser.core.monitoring.accounts import ContainerUse, GpuAccount
from purser.core.monitoring.hami import ZONE, HamiFact, HamiMetric

_Told: TypeAlias = Mapping[str, str]
_Fact: TypeAlias = tuple[_Told, HamiFact, float | None]

_WHOLE = 100.0
"""All of a GPU's compute, in percent."""


class HamiNode(msgspec.Struct, frozen=True):
    """What HAMi would export for a node."""

    node: str
    devices: tuple[Device, ...]
    usage: Mapping[str, Usage]
    pods: tuple[BookedPod, ...]
    telemetry: Mapping[str, Telemetry]
    """By uuid, of GPUs that were measured lately; so are the accounts."""
    accounts: Mapping[str, GpuAccount]


def render(node: HamiNode, metrics: Iterable[HamiMetric]) -> str:
    """The metrics in Prometheus' text format; those without samples are left out."""
    by_fact: dict[HamiFact, list[tuple[_Told, float]]] = {}
    for told, fact, value in (*_of_gpus(node), *_of_shares(node)):
        if value is not None:
            by_fact.setdefault(fact, []).append((told, value))
    return "".join(
        family(metric.name, "gauge", metric.about, _samples(metric, by_fact.get(metric.fact, ()))) for metric in metrics
    )


def _samples(metric: HamiMetric, facts: Iterable[tuple[_Told, float]]) -> Iterator[Sample]:
    for told, value in facts:
        yield {**{label: told[what] for what, label in metric.labels.items()}, **ZONE}, value


def _of_gpus(node: HamiNode) -> Iterator[_Fact]:
    for device in node.devices:
        told = {
            "node": node.node,
            "index": str(device.index),
            "uuid": device.uuid,
            "model": f"NVIDIA-{device.model}",
            "cores": str(int(_WHOLE)),
        }
        used = node.usage.get(device.uuid, UNUSED)
        yield told, HamiFact.MEMORY_LIMIT, float(device.memory_mib * MIB)
        yield told, HamiFact.CORE_LIMIT, _WHOLE
        yield told, HamiFact.MEMORY_ALLOCATED, float(used.memory_mib * MIB)
        if device.memory_mib:
            yield told, HamiFact.MEMORY_ALLOCATED_RATIO, used.memory_mib / device.memory_mib
        yield told, HamiFact.CORE_ALLOCATED, float(used.cores_percent)
        yield told, HamiFact.SHARED_COUNT, float(used.slots)
        if (telemetry := node.telemetry.get(device.uuid)) is not None:
            if telemetry.memory is not None:  # HAMi counts what the driver keeps for itself
                yield told, HamiFact.HOST_MEMORY, float(telemetry.memory.used + (telemetry.memory.reserved or 0))
            yield told, HamiFact.HOST_UTILISATION, telemetry.fields.get("DCGM_FI_DEV_GPU_UTIL")
            yield told, HamiFact.HOST_MEMORY_UTILISATION, telemetry.fields.get("DCGM_FI_DEV_MEM_COPY_UTIL")


def _of_shares(node: HamiNode) -> Iterator[_Fact]:
    measured = {device for told in node.telemetry.values() for each in told.instances for device in each.devices}
    uses = {
        (use.owner.pod_uid, use.owner.container, use.device): use
        for gpu in node.accounts.values()
        for use in gpu.containers
    }
    for pod in node.pods:
        for container in pod.containers:
            part = pod.grant.of(container)
            for index, share in enumerate(() if part is None else part.shares):
                told = {
                    "namespace": pod.grant.namespace,
                    "pod": pod.grant.pod,
                    "container": container,
                    "share": str(index),
                    "uuid": share.uuid,
                }
                yield told, HamiFact.SHARE_MEMORY_LIMIT, float(share.memory_mib * MIB)
                if share.uuid in node.accounts or share.uuid in measured:
                    use = uses.get((pod.grant.pod_uid, container, share.uuid))
                    yield from _of_use(told, use)


def _of_use(told: _Told, use: ContainerUse | None) -> Iterator[_Fact]:
    """A container without a process uses nothing."""
    memory = 0.0 if use is None else float(use.memory)
    yield told, HamiFact.SHARE_MEMORY, memory
    yield told, HamiFact.CONTAINER_MEMORY, memory
    if use is None or use.sm_percent is not None:
        yield told, HamiFact.CONTAINER_UTILISATION, 0.0 if use is None else float(use.sm_percent or 0)
