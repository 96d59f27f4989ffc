"""Goldens: what a container gets with its devices."""

import pytest
from msgspec.structs import replace
from tests.unit.agent.builders import A, B, device, grant, part

from purser.agent.allocation.answers import AllocationFacts, ContainerFacts, answer
from purser.agent.kubelet.calls import ContainerAllocation, Mount
from purser.core.model import Enforcement, LibraryHold, SpecHold

DEVICES = {
    A: device(A, pci_bus_id="0000:07:00.0"),
    B: device(B, pci_bus_id="0000:03:00.0"),
}
CORE_MOUNTS = (
    Mount("/usr/local/vgpu", "/opt/vgpu/containers/uid-p_main", read_only=False),
    Mount("/usr/local/vgpu/libvgpu.so", "/opt/vgpu/libvgpu.so"),
    Mount("/etc/ld.so.preload", "/opt/vgpu/ld.so.preload"),
    Mount("/tmp/vgpulock", "/tmp/lock", read_only=False),
)


MPS_MOUNTS = (
    Mount("/tmp/nvidia-mps", f"/run/purser/mps/{A}", read_only=False),
    Mount("/dev/shm", f"/dev/shm/purser-mps/{A}", read_only=False),
)


def given(*uuids, container=None, enforcement=Enforcement.NONE, memory_mib=3000, cores_percent=30, **facts):
    wanted = part("main", *uuids, memory_mib=memory_mib, cores_percent=cores_percent)
    devices = {uuid: replace(each, enforcement=enforcement) for uuid, each in DEVICES.items()}
    node = AllocationFacts(devices=devices, library_dir="/opt/vgpu", lock_dir="/tmp/lock", **facts)
    return answer(grant("p", wanted), wanted, container or ContainerFacts(), node)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        pytest.param(
            given(A),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": A,
                    "PURSER_GPU_ENFORCEMENT": "none",
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                    "CUDA_DEVICE_SM_LIMIT": "30",
                }
            ),
            id="a share on a node without HAMi-core is told its limits, and that nothing enforces them",
        ),
        pytest.param(
            given(A, cores_percent=0),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": A,
                    "PURSER_GPU_ENFORCEMENT": "none",
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                }
            ),
            id="a share without a compute limit",
        ),
        pytest.param(
            given(A, enforcement=Enforcement.HAMI_CORE),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": A,
                    "PURSER_GPU_ENFORCEMENT": "hami-core",
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                    "CUDA_DEVICE_SM_LIMIT": "30",
                    "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/uid-p.cache",
                },
                CORE_MOUNTS,
            ),
            id="a share under HAMi-core",
        ),
        pytest.param(
            given(A, enforcement=Enforcement.HAMI_CORE, container=ContainerFacts(priority=1), cores_percent=0),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": A,
                    "PURSER_GPU_ENFORCEMENT": "hami-core",
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                    "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/uid-p.cache",
                    "CUDA_TASK_PRIORITY": "1",
                },
                CORE_MOUNTS,
            ),
            id="a share under HAMi-core with a priority",
        ),
        pytest.param(
            given(A, enforcement=Enforcement.MPS),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": A,
                    "PURSER_GPU_ENFORCEMENT": "mps",
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                    "CUDA_DEVICE_SM_LIMIT": "30",
                    "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
                    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3000M",
                    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
                },
                mounts=MPS_MOUNTS,
            ),
            id="a share by MPS is a client of its GPU's daemon, with its limits",
        ),
        pytest.param(
            given(
                A,
                enforcement=Enforcement.MPS,
                container=ContainerFacts(hold=SpecHold(LibraryHold.OFF)),
                cores_percent=0,
            ),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": A,
                    "PURSER_GPU_ENFORCEMENT": "none",
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                }
            ),
            id="a container that is not to be limited is not a client",
        ),
        pytest.param(
            given(A, enforcement=Enforcement.MPS, mps_exclusive=True, cores_percent=100),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": A,
                    "PURSER_GPU_ENFORCEMENT": "whole-device",
                    "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
                },
                mounts=MPS_MOUNTS,
            ),
            id="in exclusive mode whoever has the GPU is a client, without limits where it has all of it",
        ),
        pytest.param(
            given(A, B, enforcement=Enforcement.MPS, mps_exclusive=True),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": f"{B},{A}",
                    "PURSER_GPU_ENFORCEMENT": "time-slicing",
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                    "CUDA_DEVICE_MEMORY_LIMIT_1": "3000m",
                    "CUDA_DEVICE_SM_LIMIT": "30",
                }
            ),
            id="nobody is a client of two daemons",
        ),
        pytest.param(
            given(A, enforcement=Enforcement.HAMI_CORE, container=ContainerFacts(hold=SpecHold(LibraryHold.OFF))),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": A,
                    "PURSER_GPU_ENFORCEMENT": "none",
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                    "CUDA_DEVICE_SM_LIMIT": "30",
                }
            ),
            id="a container that switched HAMi-core off is not enforced and says so",
        ),
        pytest.param(
            given(A, B),
            ContainerAllocation(
                {
                    "NVIDIA_VISIBLE_DEVICES": f"{B},{A}",
                    "PURSER_GPU_ENFORCEMENT": "none",
                    "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
                    "CUDA_DEVICE_MEMORY_LIMIT_1": "3000m",
                    "CUDA_DEVICE_SM_LIMIT": "30",
                }
            ),
            id="devices are in PCI bus order, as the container counts them",
        ),
        pytest.param(
            given(A, B, memory_mib=16000, cores_percent=100, enforcement=Enforcement.HAMI_CORE),
            ContainerAllocation({"NVIDIA_VISIBLE_DEVICES": f"{B},{A}", "PURSER_GPU_ENFORCEMENT": "whole-device"}),
            id="whole devices have no limits and no library",
        ),
    ],
)
def test_a_container_gets(actual, expected):
    assert actual == expected
