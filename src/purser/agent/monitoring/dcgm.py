"""The node's GPUs in the metrics of NVIDIA's DCGM exporter: its names, labels and order of labels.

Labels follow internal/pkg/rendermetrics of NVIDIA/dcgm-exporter 4.6.0-4.8.3, with these differences, most of them for
sums that are right (docs/exporter-metrics.md says so to users):

- The node's name is in ``hostname``, and in ``Hostname`` as exporters before 4.8.3 have it.
- A GPU has one sample of a metric. Where several pods share it no pod is named; the exporter names the last one, or
  repeats the whole GPU's sample for each.
- Under MIG only values measured per instance are exported for each; the exporter repeats a GPU's power for all.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from purser.agent.monitoring.holders import DeviceHolders, sole_holder
from purser.agent.monitoring.text import Labels, Sample, family
from purser.agent.nvml.driver import Gpu, InstanceTelemetry, Telemetry
from purser.core.health.catalogue import describe
from purser.core.monitoring.dcgm import METRICS, DcgmMetric, DcgmType

XID = "DCGM_FI_DEV_XID_ERRORS"
VERSION = "DCGM_FI_DRIVER_VERSION"


class ExposedGpu(msgspec.Struct, frozen=True):
    """A GPU, and what it said when it was measured lately."""

    gpu: Gpu
    telemetry: Telemetry
    last_xid: int | None
    """0: none since the agent started; None: the driver reports none of this GPU."""


_Subject: TypeAlias = tuple[Labels, Labels, Mapping[str, float]]
"""What a GPU or instance is called, whose it is, and what it says."""


def render(node: str, driver_version: str, gpus: Iterable[ExposedGpu], holders: DeviceHolders) -> str:
    """The node's GPUs in Prometheus' text format, by DCGM exporter's names. ``driver_version``: as NVML has it."""
    about = [_subjects(node, driver_version, each, holders) for each in gpus]
    return "".join(
        family(metric.name, metric.type.value, _help(metric), _samples(metric, about))
        for metric in METRICS
        if metric.type is not DcgmType.LABEL
    )


def _help(metric: DcgmMetric) -> str:
    return f"{metric.help.removesuffix('.')} ({metric.unit})." if metric.unit else metric.help


def _samples(metric: DcgmMetric, gpus: Iterable[tuple[_Subject, list[_Subject]]]) -> Iterator[Sample]:
    for gpu, instances in gpus:
        for name, holder, fields in instances if metric.per_instance and instances else [gpu]:
            value = fields.get(metric.name)
            if value is not None:
                attributes = {**holder, **(_xid(int(value)) if metric.name == XID else {})}
                yield {**name, **dict(sorted(attributes.items()))}, value


def _subjects(
    node: str, driver_version: str, each: ExposedGpu, holders: DeviceHolders
) -> tuple[_Subject, list[_Subject]]:
    telemetry = each.telemetry
    instances = [_instance(node, driver_version, each.gpu, one, holders) for one in telemetry.instances]
    xid = {} if each.last_xid is None else {XID: float(each.last_xid)}
    holder = {} if instances else sole_holder(holders.get(telemetry.uuid, ()))
    return (_labels(node, driver_version, each.gpu, {}), holder, {**telemetry.fields, **xid}), instances


def _instance(
    node: str, driver_version: str, gpu: Gpu, instance: InstanceTelemetry, holders: DeviceHolders
) -> _Subject:
    labels = _labels(
        node, driver_version, gpu, {"GPU_I_PROFILE": _profile(gpu, instance), "GPU_I_ID": str(instance.id)}
    )
    held = {holder for device in instance.devices for holder in holders.get(device, ())}
    return labels, sole_holder(sorted(held)), instance.fields


def _profile(gpu: Gpu, instance: InstanceTelemetry) -> str:
    """Of the GPU instance: a MIG device that is not all of it has its own number before that, ``1c.3g.20gb``."""
    profile = next((each.profile for each in gpu.migs if each.uuid in instance.devices), "")
    compute, dot, rest = profile.partition(".")
    return rest if dot and compute.endswith("c") else profile


def _labels(node: str, driver_version: str, gpu: Gpu, instance: Labels) -> Labels:
    return {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid or "",
        "pci_bus_id": _bus_id(gpu.pci_bus_id),
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.name,
        **instance,
        "hostname": node,
        "Hostname": node,
        VERSION: driver_version,
    }


def _bus_id(address: str) -> str:
    """NVML's spelling, with eight digits of the domain, of that of sysfs, with four."""
    domain, _, rest = address.partition(":")
    return f"{domain:0>8}:{rest}".upper() if address else ""


def _xid(xid: int) -> Labels:
    return {"err_code": str(xid), "err_msg": describe(xid) if xid else "No Error"}
