"""Every name of HAMi's monitor and scheduler is exported, or it is said why not."""

from purser.core.monitoring.hami import METRICS, NOT_EXPORTED, OLD_METRICS

OF_GPU = "node device_uuid device_index device_type"
OF_SHARE = "namespace pod container vdevice_index device_uuid"
OF_ALLOCATION = "namespace node pod container_index device_uuid"
OLD_OF_GPU = "nodeid deviceuuid deviceidx devicetype"
OLD_OF_SHARE = "podnamespace podname ctrname vdeviceid deviceuuid"
OLD_OF_ALLOCATION = "podnamespace nodename podname containeridx deviceuuid"

UPSTREAM = {
    "hami_host_gpu_memory_used_bytes": OF_GPU,
    "hami_host_gpu_utilization_ratio": OF_GPU,
    "hami_host_gpu_memory_controller_utilization_ratio": "device_index device_uuid device_type",
    "hami_gpu_memory_limit_bytes": OF_GPU,
    "hami_gpu_core_limit_ratio": OF_GPU,
    "hami_gpu_memory_allocated_bytes": f"{OF_GPU} device_cores",
    "hami_node_gpu_memory_allocated_ratio": OF_GPU,
    "hami_gpu_core_allocated_ratio": OF_GPU,
    "hami_gpu_shared_count": OF_GPU,
    "hami_node_gpu_overview": f"{OF_GPU} device_cores device_memory_limit",
    "hami_vgpu_memory_used_bytes": OF_SHARE,
    "hami_vgpu_memory_limit_bytes": OF_SHARE,
    "hami_container_device_memory_bytes": OF_SHARE,
    "hami_container_device_utilization_ratio": OF_SHARE,
    "hami_mig_device_info": f"{OF_SHARE} mig_uuid profile gpu_instance_id compute_instance_id",
    "hami_vgpu_memory_context_bytes": OF_SHARE,
    "hami_vgpu_memory_module_bytes": OF_SHARE,
    "hami_vgpu_memory_buffer_bytes": OF_SHARE,
    "hami_container_last_kernel_elapsed_seconds": OF_SHARE,
    "hami_node_gpu_mig_instance_info": "",
    "hami_vgpu_memory_allocated_bytes": OF_ALLOCATION,
    "hami_vgpu_core_allocated_ratio": OF_ALLOCATION,
    "hami_resource_quota_used": "namespace quota_name limit",
    "hami_resource_quota_limit": "namespace quota_name",
    "hami_build_info": "",
}
OLD_UPSTREAM = {
    "HostGPUMemoryUsage": OLD_OF_GPU,
    "HostCoreUtilization": OLD_OF_GPU,
    "GPUDeviceMemoryLimit": OLD_OF_GPU,
    "GPUDeviceCoreLimit": OLD_OF_GPU,
    "GPUDeviceMemoryAllocated": f"{OLD_OF_GPU} devicecores",
    "GPUDeviceSharedNum": OLD_OF_GPU,
    "GPUDeviceCoreAllocated": OLD_OF_GPU,
    "nodeGPUOverview": f"{OLD_OF_GPU} devicecores devicememorylimit",
    "nodeGPUMemoryPercentage": "nodeid deviceuuid deviceidx",
    "vGPU_device_memory_usage_in_bytes": OLD_OF_SHARE,
    "vGPU_device_memory_limit_in_bytes": OLD_OF_SHARE,
    "Device_utilization_desc_of_container": OLD_OF_SHARE,
    "MigInfo": f"{OLD_OF_SHARE} instanceid",
    "Device_memory_desc_of_container": f"{OLD_OF_SHARE} context module data offset",
    "Device_last_kernel_of_container": OLD_OF_SHARE,
    "nodeGPUMigInstance": "nodeid deviceuuid deviceidx migname",
    "vGPUMemoryAllocated": OLD_OF_ALLOCATION,
    "vGPUCoreAllocated": OLD_OF_ALLOCATION,
    "QuotaUsed": "quotanamespace quotaName limit",
}
"""Names and labels of cmd/vGPUmonitor/metrics.go and cmd/scheduler/metrics.go in Project-HAMi/HAMi after 2.10."""


def test_names_and_labels_are_hamis() -> None:
    for metrics, upstream in ((METRICS, UPSTREAM), (OLD_METRICS, OLD_UPSTREAM)):
        exported = {metric.name: set(metric.labels.values()) for metric in metrics}
        assert exported == {name: set(upstream[name].split()) for name in exported}


def test_every_other_name_has_its_reason() -> None:
    exported = {metric.name for metric in (*METRICS, *OLD_METRICS)}
    assert exported | NOT_EXPORTED.keys() == UPSTREAM.keys() | OLD_UPSTREAM.keys()
    assert not exported & NOT_EXPORTED.keys()
