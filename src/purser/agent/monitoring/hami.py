"""The node's GPUs and shares in the metrics of HAMi's monitor and scheduler."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from purser.agent.allocation.book import BookedPod
from purser.agent.monitoring.text import Sample, family
from purser.agent.nvml.driver import Gpu, Telemetry
from purser.core.device.gpus import NodeMigDevice
from purser.core.kubernetes.quantities import MIB
from purser.core.ledger import NO_USAGE, Usage
from purser.core.model import Device
from purser.core.monitoring.accounts import ContainerUse, GpuAccount
from purser.core.monitoring.hami import ZONE, HamiFact, HamiMetric

_Labels: TypeAlias = Mapping[str, str]
_Fact: TypeAlias = tuple[_Labels, HamiFact, float | None]

_WHOLE = 100.0
"""All of a GPU's compute, in percent."""


class HamiNode(msgspec.Struct, frozen=True):
    """What HAMi would export for a node."""

    node: str
    gpus: tuple[Gpu, ...]
    """The GPUs of the node, whole or cut."""
    devices: tuple[Device, ...]
    """What is handed out of them."""
    usage: Mapping[str, Usage]
    pods: tuple[BookedPod, ...]
    telemetry: Mapping[str, Telemetry]
    """By uuid, of GPUs that were measured lately; so are the accounts."""
    accounts: Mapping[str, GpuAccount]


def render(node: HamiNode, metrics: Iterable[HamiMetric]) -> str:
    """The metrics in Prometheus' text format; those without samples are left out."""
    by_fact: dict[HamiFact, list[tuple[_Labels, float]]] = {}
    for labels, fact, value in (*_gpu_facts(node), *_device_facts(node), *_share_facts(node)):
        if value is not None:
            by_fact.setdefault(fact, []).append((labels, value))
    return "".join(
        family(metric.name, "gauge", metric.about, _samples(metric, by_fact.get(metric.fact, ()))) for metric in metrics
    )


def _samples(metric: HamiMetric, facts: Iterable[tuple[_Labels, float]]) -> Iterator[Sample]:
    for labels, value in facts:
        yield {**{label: labels[what] for what, label in metric.labels.items() if what in labels}, **ZONE}, value


def _gpu_facts(node: HamiNode) -> Iterator[_Fact]:
    for gpu in node.gpus:
        if (telemetry := node.telemetry.get(gpu.uuid or "")) is None:
            continue
        labels = _gpu_labels(node, gpu.index, telemetry.uuid, gpu.name)
        if telemetry.memory is not None:  # HAMi counts what the driver keeps for itself
            yield labels, HamiFact.HOST_GPU_MEMORY, float(telemetry.memory.used + (telemetry.memory.reserved or 0))
        yield labels, HamiFact.HOST_UTILIZATION, telemetry.fields.get("DCGM_FI_DEV_GPU_UTIL")
        yield labels, HamiFact.HOST_MEMORY_UTILIZATION, telemetry.fields.get("DCGM_FI_DEV_MEM_COPY_UTIL")


def _device_facts(node: HamiNode) -> Iterator[_Fact]:
    for device in node.devices:
        labels = {
            **_gpu_labels(node, device.index, device.uuid, device.model),
            "cores": str(int(_WHOLE)),
        }
        used = node.usage.get(device.uuid, NO_USAGE)
        if device.memory_mib:  # where it is not known, nor is what pods hold of it
            labels["memory"] = str(device.memory_mib)
            yield labels, HamiFact.MEMORY_LIMIT, float(device.memory_mib * MIB)
            yield labels, HamiFact.MEMORY_ALLOCATED, float(used.memory_mib * MIB)
            yield labels, HamiFact.MEMORY_ALLOCATED_RATIO, used.memory_mib / device.memory_mib
        yield labels, HamiFact.CORE_LIMIT, _WHOLE
        yield labels, HamiFact.OVERVIEW, float(used.memory_mib * MIB)
        yield labels, HamiFact.CORE_ALLOCATED, float(used.cores_percent)
        yield labels, HamiFact.SHARED_COUNT, float(used.slots)


def _gpu_labels(node: HamiNode, index: int, uuid: str, model: str) -> _Labels:
    return {"node": node.node, "index": str(index), "uuid": uuid, "model": f"NVIDIA-{model}"}


def _share_facts(node: HamiNode) -> Iterator[_Fact]:
    migs = {mig.uuid: (gpu.uuid or "", mig) for gpu in node.gpus for mig in gpu.migs}
    known = [telemetry for uuid, telemetry in node.telemetry.items() if uuid in node.accounts]
    measured = {
        *node.accounts,
        *(device for telemetry in known for each in telemetry.instances for device in each.devices),
    }
    uses = {
        (use.owner.pod_uid, use.owner.container, use.device): use
        for gpu in node.accounts.values()
        for use in gpu.containers
    }
    for pod in node.pods:
        for container in pod.containers:
            part = pod.grant.of(container)
            for index, share in enumerate(() if part is None else part.shares):
                labels = {
                    "namespace": pod.grant.namespace,
                    "pod": pod.grant.pod,
                    "container": container,
                    "share": str(index),
                    "uuid": share.uuid,
                }
                yield labels, HamiFact.SHARE_MEMORY_LIMIT, float(share.memory_mib * MIB)
                if share.uuid in migs:
                    yield {**labels, **_mig_labels(*migs[share.uuid])}, HamiFact.MIG_DEVICE, 1.0
                if share.uuid in measured:
                    use = uses.get((pod.grant.pod_uid, container, share.uuid))
                    yield from _use_facts(labels, use)


def _mig_labels(gpu: str, mig: NodeMigDevice) -> _Labels:
    return {
        "uuid": gpu,
        "mig": mig.uuid,
        "profile": mig.profile,
        "instance": str(mig.gpu_instance),
        "compute_instance": str(mig.compute_instance),
    }


def _use_facts(labels: _Labels, use: ContainerUse | None) -> Iterator[_Fact]:
    """A container without a process uses nothing."""
    memory = 0 if use is None else use.memory
    if memory is not None:
        yield labels, HamiFact.SHARE_MEMORY, float(memory)
        yield labels, HamiFact.CONTAINER_MEMORY, float(memory)
    if use is None or use.sm_percent is not None:
        yield labels, HamiFact.CONTAINER_UTILIZATION, 0.0 if use is None else float(use.sm_percent or 0)
