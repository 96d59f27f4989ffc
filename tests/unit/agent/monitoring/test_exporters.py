"""The same GPUs in the words of DCGM exporter and of HAMi."""

import re
from typing import Any

import pytest
from tests.unit.agent.builders import A, B, device, grant, part

from purser.agent.allocation.book import BookedContainer, BookedPod
from purser.agent.kubeletapi.podresources.v1 import api_pb2
from purser.agent.monitoring.dcgm import ExposedGpu, render
from purser.agent.monitoring.hami import HamiNode
from purser.agent.monitoring.hami import render as render_hami
from purser.agent.monitoring.holders import DeviceHolder, DeviceHolders, holders_of
from purser.agent.monitoring.text import family, number
from purser.agent.nvml import Gpu, InstanceTelemetry, Telemetry
from purser.core.device.gpus import NodeMigDevice
from purser.core.kubernetes.quantities import MIB
from purser.core.ledger import pod_usage
from purser.core.model import Enforcement
from purser.core.monitoring.accounts import ContainerUse, GpuAccount, GpuMemory, PodContainer
from purser.core.monitoring.hami import METRICS, OLD_METRICS

MIGS = (
    NodeMigDevice(uuid="MIG-7", profile="1g.5gb", memory_mib=4864),
    NodeMigDevice(uuid="MIG-9", profile="1c.3g.20gb", memory_mib=19968),
)
GPU = Gpu(index=1, uuid=A, name="NVIDIA A100-SXM4-40GB", pci_bus_id="0000:0b:00.0", minor=5, migs=MIGS)
ON_GPU = 'gpu="1",UUID="GPU-aaaaaaaa",pci_bus_id="00000000:0B:00.0",device="nvidia1",modelName="NVIDIA A100-SXM4-40GB"'
REST = 'hostname="node-1",Hostname="node-1",DCGM_FI_DRIVER_VERSION="550.1"'
FIELDS = {"DCGM_FI_DEV_GPU_TEMP": 41.0, "DCGM_FI_DEV_POWER_USAGE": 52.25, "DCGM_FI_DEV_FB_USED": 7.0}
P, Q = DeviceHolder("ns", "p", "main"), DeviceHolder("ns", "q", "main")


def lines(text: str, name: str) -> list[str]:
    """The samples of a metric, without its name."""
    return re.findall(rf"(?m)^{name}(.*)$", text)


def exposed(holders: DeviceHolders, *instances: InstanceTelemetry, xid: int | None = 0) -> str:
    return render(
        "node-1", "550.1", [ExposedGpu(GPU, Telemetry(uuid=A, fields=FIELDS, instances=instances), xid)], holders
    )


def test_labels_are_those_of_dcgm_exporter_in_its_order() -> None:
    text = exposed({A: (P,)})
    assert lines(text, "DCGM_FI_DEV_GPU_TEMP") == [f'{{{ON_GPU},{REST},container="main",namespace="ns",pod="p"}} 41']
    assert "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n" in text
    assert "52.25" in lines(text, "DCGM_FI_DEV_POWER_USAGE")[0]
    assert "DCGM_FI_DEV_SM_CLOCK" not in text, "what was not measured is not there at all"


@pytest.mark.parametrize(
    ("holders", "labels"),
    [
        ((), ""),
        ((P,), ',container="main",namespace="ns",pod="p"'),
        ((P, DeviceHolder("ns", "p", "side")), ',namespace="ns",pod="p"'),
        ((P, Q), ""),
        ((P, DeviceHolder("other", "p", "main")), ""),
    ],
    ids=["nobody", "one-container", "one-pod", "two-pods", "two-pods-of-a-name"],
)
def test_a_gpu_has_one_sample_and_names_a_pod_that_has_it_alone(holders: tuple[DeviceHolder, ...], labels: str) -> None:
    assert lines(exposed({A: holders}), "DCGM_FI_DEV_FB_USED") == [f"{{{ON_GPU},{REST}{labels}}} 7"]


def test_under_mig_instances_have_what_is_theirs_and_the_gpu_the_rest() -> None:
    instances = [
        InstanceTelemetry(
            id=number,
            devices=(f"MIG-{number}",),
            fields={"DCGM_FI_DEV_FB_USED": float(number), "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5},
            memory=None,
            processes=(),
        )
        for number in (7, 9)
    ]
    text = exposed({A: (Q,), "MIG-7": (P,)}, *instances)
    mig = '{},GPU_I_PROFILE="{}",GPU_I_ID="{}",{}'
    assert lines(text, "DCGM_FI_DEV_FB_USED") == [
        f'{{{mig.format(ON_GPU, "1g.5gb", 7, REST)},container="main",namespace="ns",pod="p"}} 7',
        f"{{{mig.format(ON_GPU, '3g.20gb', 9, REST)}}} 9",
    ]
    assert len(lines(text, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")) == 2
    assert lines(text, "DCGM_FI_DEV_POWER_USAGE") == [f"{{{ON_GPU},{REST}}} 52.25"], "once: sums are right"


def test_the_last_xid_is_named() -> None:
    [line] = lines(exposed({}, xid=79), "DCGM_FI_DEV_XID_ERRORS")
    assert line == f'{{{ON_GPU},{REST},err_code="79",err_msg="Xid 79 (GPU has fallen off the bus)"}} 79'
    [line] = lines(exposed({}), "DCGM_FI_DEV_XID_ERRORS")
    assert line.endswith('err_code="0",err_msg="No Error"} 0')
    assert not lines(exposed({}, xid=None), "DCGM_FI_DEV_XID_ERRORS"), "the driver reports none of this GPU"


def test_what_others_write_stays_in_its_label() -> None:
    assert family("m", "gauge", "x", [({"l": 'a"} 1\nevil{b="\\'}, 1.0)]).splitlines()[2:] == [
        'm{l="a\\"} 1\\nevil{b=\\"\\\\"} 1'
    ]
    assert (number(3e15), number(0.1)) == ("3000000000000000", "0.1")


def test_holders_are_kubelets_of_all_resources_of_nvidia() -> None:
    def pod(name: str, **resources: list[str]) -> api_pb2.PodResources:
        devices = [
            api_pb2.ContainerDevices(resource_name=resource.replace("__", "/").replace("_", "."), device_ids=ids)
            for resource, ids in resources.items()
        ]
        return api_pb2.PodResources(
            namespace="ns", name=name, containers=[api_pb2.ContainerResources(name="main", devices=devices)]
        )

    listing = [
        pod("p", nvidia_com__gpu=[f"{A}::0", f"{A}::1"]),
        pod("q", nvidia_com__gpu_shared=[f"{A}::2"], intel_com__nic=["GPU-x"]),
        pod("over", nvidia_com__gpu=[B]),
    ]
    assert holders_of(listing, frozenset({"ns/over"})) == {A: (P, Q)}


# --- HAMi


T4 = Gpu(index=0, uuid=A, name="Tesla T4")


def hami(metrics=METRICS, measured: bool = True, gpu: Gpu = T4) -> str:
    held = grant("p", part("main", B, A, *(mig.uuid for mig in gpu.migs), memory_mib=1000, cores_percent=30))
    accounts = {
        A: GpuAccount(A, {}, (ContainerUse(PodContainer("ns", "p", "uid-p", "main"), A, 600 * MIB, 12),), ()),
        B: GpuAccount(B, {}, (), ()),
    }
    memory = GpuMemory(16000 * MIB, 15000 * MIB, 900 * MIB, 100 * MIB)
    fields = {"DCGM_FI_DEV_GPU_UTIL": 40.0, "DCGM_FI_DEV_MEM_COPY_UTIL": 9.0}
    node = HamiNode(
        node="node-1",
        gpus=(gpu,),
        devices=(device(A),),
        usage=pod_usage(held),
        pods=(BookedPod(held, {"main": BookedContainer((), Enforcement.NONE)}),),
        telemetry={A: Telemetry(uuid=A, fields=fields, memory=memory)} if measured else {},
        accounts=accounts if measured else {},
    )
    return render_hami(node, metrics)


def test_gpus_and_shares_are_reported_by_hamis_names_and_in_its_units() -> None:
    text = hami()
    gpu = 'node="node-1",device_index="0",device_uuid="GPU-aaaaaaaa",device_type="NVIDIA-Tesla T4"'
    share = 'namespace="ns",pod="p",container="main",vdevice_index="{}",device_uuid="{}",zone="vGPU"'
    assert lines(text, "hami_host_gpu_memory_used_bytes") == [f'{{{gpu},zone="vGPU"}} {1000 * MIB}']
    assert lines(text, "hami_host_gpu_utilization_ratio") == [f'{{{gpu},zone="vGPU"}} 40']
    assert lines(text, "hami_gpu_memory_allocated_bytes") == [f'{{{gpu},device_cores="100",zone="vGPU"}} {1000 * MIB}']
    overview = 'device_cores="100",device_memory_limit="16000",zone="vGPU"'
    assert lines(text, "hami_node_gpu_overview") == [f"{{{gpu},{overview}}} {1000 * MIB}"]
    assert lines(text, "hami_gpu_core_allocated_ratio") == [f'{{{gpu},zone="vGPU"}} 30']
    assert lines(text, "hami_vgpu_memory_limit_bytes") == [
        f"{{{share.format(0, B)}}} {1000 * MIB}",
        f"{{{share.format(1, A)}}} {1000 * MIB}",
    ]
    assert lines(text, "hami_vgpu_memory_used_bytes") == [
        f"{{{share.format(0, B)}}} 0",
        f"{{{share.format(1, A)}}} {600 * MIB}",
    ]
    assert lines(text, "hami_container_device_utilization_ratio")[1].endswith(" 12")


def test_memory_that_is_not_known_is_no_number() -> None:
    """Of a GPU that uses the machine's."""
    nothing: dict[str, Any] = {"usage": {}, "pods": (), "telemetry": {}, "accounts": {}}
    node = HamiNode(node="node-1", gpus=(T4,), devices=(device(A, memory_mib=0),), **nothing)
    text = render_hami(node, (*METRICS, *OLD_METRICS))
    assert "memory_limit" not in text
    assert lines(text, "hami_gpu_memory_allocated_bytes") == []
    assert len(lines(text, "hami_node_gpu_overview")) == 1


@pytest.mark.parametrize(
    ("metrics", "name", "labels"),
    [
        (
            METRICS,
            "hami_mig_device_info",
            'namespace="ns",pod="p",container="main",vdevice_index="2",device_uuid="GPU-aaaaaaaa",mig_uuid="MIG-7"'
            ',profile="1g.5gb",gpu_instance_id="9",compute_instance_id="1"',
        ),
        (
            OLD_METRICS,
            "MigInfo",
            'podnamespace="ns",podname="p",ctrname="main",vdeviceid="2",deviceuuid="GPU-aaaaaaaa",instanceid="9"',
        ),
    ],
    ids=["new", "old"],
)
def test_a_mig_device_is_reported_with_its_gpu_and_the_gpu_with_its_sensors(metrics, name, labels) -> None:
    mig = NodeMigDevice(uuid="MIG-7", profile="1g.5gb", memory_mib=4864, gpu_instance=9, compute_instance=1)
    text = hami(metrics, gpu=Gpu(index=3, uuid=A, name="NVIDIA A100", migs=(mig,)))
    assert lines(text, name) == [f'{{{labels},zone="vGPU"}} 1']
    assert 'NVIDIA-NVIDIA A100"' in text, "as HAMi names it"


def test_what_was_not_measured_is_not_reported() -> None:
    text = hami(measured=False)
    assert "hami_host_gpu" not in text
    assert "hami_vgpu_memory_used_bytes" not in text
    assert lines(text, "hami_vgpu_memory_limit_bytes")


def test_the_older_names_have_the_older_labels() -> None:
    text = hami(OLD_METRICS)
    assert lines(text, "nodeGPUMemoryPercentage") == [
        '{nodeid="node-1",deviceidx="0",deviceuuid="GPU-aaaaaaaa",zone="vGPU"} 0.0625'
    ]
    assert lines(text, "vGPU_device_memory_usage_in_bytes")[1].startswith(
        '{podnamespace="ns",podname="p",ctrname="main",vdeviceid="1",deviceuuid="GPU-aaaaaaaa"'
    )
    assert "hami_" not in text
