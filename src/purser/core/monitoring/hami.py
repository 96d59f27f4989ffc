"""The metrics of HAMi's monitor and scheduler: which of them a node's agent exports, and why it does not export others.

Names, labels and units are those of cmd/vGPUmonitor/metrics.go and cmd/scheduler/metrics.go in Project-HAMi/HAMi (after
2.10). What HAMi calls a ratio is in percent, but for the memory of a GPU that is allocated.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class HamiFact(StrEnum):
    """What is exported, for a GPU or for a container's share of one."""

    HOST_GPU_MEMORY = "host-memory"
    HOST_UTILIZATION = "host-utilization"
    HOST_MEMORY_UTILIZATION = "host-memory-utilization"
    MEMORY_LIMIT = "memory-limit"
    CORE_LIMIT = "core-limit"
    MEMORY_ALLOCATED = "memory-allocated"
    MEMORY_ALLOCATED_RATIO = "memory-allocated-ratio"
    CORE_ALLOCATED = "core-allocated"
    SHARED_COUNT = "shared-count"
    OVERVIEW = "overview"
    SHARE_MEMORY = "share-memory"
    SHARE_MEMORY_LIMIT = "share-memory-limit"
    CONTAINER_MEMORY = "container-memory"
    CONTAINER_UTILIZATION = "container-utilization"
    MIG_DEVICE = "mig-device"


class HamiMetric(msgspec.Struct, frozen=True):
    """One of HAMi's names."""

    name: str
    fact: HamiFact
    labels: Mapping[str, str]
    """HAMi's label by Purser's name of what it says."""
    about: str


ZONE: Mapping[str, str] = {"zone": "vGPU"}
"""On all of them."""

_GPU = {"node": "node", "index": "device_index", "uuid": "device_uuid", "model": "device_type"}
_CORES = {**_GPU, "cores": "device_cores"}
_GPU_WITHOUT_NODE = {label: word for label, word in _GPU.items() if label != "node"}
_SHARE = {
    "namespace": "namespace",
    "pod": "pod",
    "container": "container",
    "share": "vdevice_index",
    "uuid": "device_uuid",
}

METRICS: tuple[HamiMetric, ...] = (
    HamiMetric("hami_host_gpu_memory_used_bytes", HamiFact.HOST_GPU_MEMORY, _GPU, "GPU memory in use (B)."),
    HamiMetric("hami_host_gpu_utilization_ratio", HamiFact.HOST_UTILIZATION, _GPU, "GPU utilization (%)."),
    HamiMetric(
        "hami_host_gpu_memory_controller_utilization_ratio",
        HamiFact.HOST_MEMORY_UTILIZATION,
        _GPU_WITHOUT_NODE,
        "Utilization of the GPU's memory interface (%).",
    ),
    HamiMetric("hami_gpu_memory_limit_bytes", HamiFact.MEMORY_LIMIT, _GPU, "Total GPU memory (B)."),
    HamiMetric("hami_gpu_core_limit_ratio", HamiFact.CORE_LIMIT, _GPU, "Total GPU compute (%)."),
    HamiMetric("hami_gpu_memory_allocated_bytes", HamiFact.MEMORY_ALLOCATED, _CORES, "GPU memory that pods hold (B)."),
    HamiMetric(
        "hami_node_gpu_memory_allocated_ratio",
        HamiFact.MEMORY_ALLOCATED_RATIO,
        _GPU,
        "Fraction of the GPU's memory that pods hold (0 to 1).",
    ),
    HamiMetric("hami_gpu_core_allocated_ratio", HamiFact.CORE_ALLOCATED, _GPU, "Compute that pods hold (%)."),
    HamiMetric("hami_gpu_shared_count", HamiFact.SHARED_COUNT, _GPU, "Number of containers that share the GPU."),
    HamiMetric(
        "hami_node_gpu_overview",
        HamiFact.OVERVIEW,
        {**_CORES, "memory": "device_memory_limit"},
        "GPU memory that pods hold (B); the GPU's total memory, in MiB, is a label.",
    ),
    HamiMetric("hami_vgpu_memory_used_bytes", HamiFact.SHARE_MEMORY, _SHARE, "Memory that the container uses (B)."),
    HamiMetric(
        "hami_vgpu_memory_limit_bytes",
        HamiFact.SHARE_MEMORY_LIMIT,
        _SHARE,
        "Memory that the container was granted (B).",
    ),
    HamiMetric(
        "hami_container_device_memory_bytes", HamiFact.CONTAINER_MEMORY, _SHARE, "Memory that the container uses (B)."
    ),
    HamiMetric(
        "hami_container_device_utilization_ratio",
        HamiFact.CONTAINER_UTILIZATION,
        _SHARE,
        "Compute that the container uses (%).",
    ),
    HamiMetric(
        "hami_mig_device_info",
        HamiFact.MIG_DEVICE,
        {
            **_SHARE,
            "mig": "mig_uuid",
            "profile": "profile",
            "instance": "gpu_instance_id",
            "compute_instance": "compute_instance_id",
        },
        "1 for each MIG device that the container holds.",
    ),
)

_OLD_LABELS = {
    "node": "nodeid",
    "index": "deviceidx",
    "uuid": "deviceuuid",
    "model": "devicetype",
    "cores": "devicecores",
    "namespace": "podnamespace",
    "pod": "podname",
    "container": "ctrname",
    "share": "vdeviceid",
    "memory": "devicememorylimit",
    "instance": "instanceid",
}
_OLD_NAMES = {
    HamiFact.HOST_GPU_MEMORY: "HostGPUMemoryUsage",
    HamiFact.HOST_UTILIZATION: "HostCoreUtilization",
    HamiFact.MEMORY_LIMIT: "GPUDeviceMemoryLimit",
    HamiFact.CORE_LIMIT: "GPUDeviceCoreLimit",
    HamiFact.MEMORY_ALLOCATED: "GPUDeviceMemoryAllocated",
    HamiFact.MEMORY_ALLOCATED_RATIO: "nodeGPUMemoryPercentage",
    HamiFact.CORE_ALLOCATED: "GPUDeviceCoreAllocated",
    HamiFact.SHARED_COUNT: "GPUDeviceSharedNum",
    HamiFact.OVERVIEW: "nodeGPUOverview",
    HamiFact.SHARE_MEMORY: "vGPU_device_memory_usage_in_bytes",
    HamiFact.SHARE_MEMORY_LIMIT: "vGPU_device_memory_limit_in_bytes",
    HamiFact.CONTAINER_UTILIZATION: "Device_utilization_desc_of_container",
    HamiFact.MIG_DEVICE: "MigInfo",
}
_FACTS_WITHOUT_MODEL = {HamiFact.MEMORY_ALLOCATED_RATIO}

OLD_METRICS: tuple[HamiMetric, ...] = tuple(
    HamiMetric(
        _OLD_NAMES[metric.fact],
        metric.fact,
        {
            what: _OLD_LABELS[what]
            for what in metric.labels
            if what in _OLD_LABELS and (what != "model" or metric.fact not in _FACTS_WITHOUT_MODEL)
        },
        metric.about,
    )
    for metric in METRICS
    if metric.fact in _OLD_NAMES
)
"""Of HAMi's option ``--legacy-metrics``."""

_OF_HAMI_CORE = (
    "only HAMi-core counts this, in memory that it shares with HAMi's monitor; the driver does not report it"
)
_OF_SCHEDULER = "reported by the scheduler, not by a node"
_NUMBERED_CONTAINERS_NOTE = (
    "HAMi numbers a pod's containers; `purser_grant_memory_bytes` and `purser_grant_cores_ratio` name them"
)

NOT_EXPORTED: Mapping[str, str] = {
    "hami_vgpu_memory_context_bytes": _OF_HAMI_CORE,
    "hami_vgpu_memory_module_bytes": _OF_HAMI_CORE,
    "hami_vgpu_memory_buffer_bytes": _OF_HAMI_CORE,
    "hami_container_last_kernel_elapsed_seconds": _OF_HAMI_CORE,
    "hami_node_gpu_mig_instance_info": "agents do not query a MIG instance's placement on the GPU",
    "hami_vgpu_memory_allocated_bytes": _NUMBERED_CONTAINERS_NOTE,
    "hami_vgpu_core_allocated_ratio": _NUMBERED_CONTAINERS_NOTE,
    "hami_resource_quota_used": _OF_SCHEDULER,
    "hami_resource_quota_limit": _OF_SCHEDULER,
    "hami_build_info": "reports HAMi's version, but nodes with Purser do not run HAMi",
    "Device_memory_desc_of_container": _OF_HAMI_CORE,
    "Device_last_kernel_of_container": _OF_HAMI_CORE,
    "nodeGPUMigInstance": "`MigInfo` reports the same for each container",
    "vGPUMemoryAllocated": _NUMBERED_CONTAINERS_NOTE,
    "vGPUCoreAllocated": _NUMBERED_CONTAINERS_NOTE,
    "QuotaUsed": _OF_SCHEDULER,
}
"""HAMi's other names, and why they are not exported."""
