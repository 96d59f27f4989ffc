"""A table: what a container is given for each way of sharing GPUs, under each way of naming devices to the runtime, as
NVIDIA's device plugin gives it."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from tests.unit.agent.builders import A, B, grant, part

from purser.agent.allocation.answers import AllocationFacts, ContainerFacts, DeviceNodes, answer
from purser.agent.allocation.listing import listing_of
from purser.agent.instances.devices import mig_device, part_with_devices
from purser.agent.inventory.building import InventoryBasis, devices_by_uuid, make_inventory
from purser.agent.inventory.device_files import find_device_files, own_device_files
from purser.agent.inventory.enforcement import Enforcers
from purser.agent.kubelet.calls import ContainerAllocation, Mount
from purser.agent.nvml import DriverInfo, Gpu, MigMode
from purser.agent.settings import AgentSettings, DevicePluginFlags, SharingSettings
from purser.agent.sharing import config_of
from purser.core.device.gpus import NodeMigDevice
from purser.core.model import DeviceMode, MigPlacement

M, N = "MIG-11111111", "MIG-22222222"
PLACED = MigPlacement("1g.5gb", 2)


def gpu(index, uuid, **fields):
    return Gpu(index=index, uuid=uuid, minor=7 - index, name="A100", memory_mib=40000, pci_bus_id=f"{index}", **fields)


def mig(uuid, instance, memory_mib=4864):
    profile = "1g.5gb" if memory_mib < 5000 else "2g.10gb"
    return NodeMigDevice(uuid=uuid, profile=profile, memory_mib=memory_mib, gpu_instance=instance)


WHOLE = (gpu(0, B), gpu(1, A))
CUT = MigMode(enabled=True, pending=True)
ALIKE = (gpu(0, B, mig=CUT, migs=(mig(M, 9), mig(N, 11)), pci_device="20b0"),)
DIFFERENT = (gpu(0, B, mig=CUT, migs=(mig(N, 5, 9856), mig(M, 9))), gpu(1, A))
MINORS = "gpu7/gi9/access 81\ngpu7/gi9/ci0/access 82\ngpu7/gi11/access 90\n"
CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
CHANNEL = "nvidia-caps-imex-channels/channel0"
THERE = frozenset((*CONTROL, "nvidia6", "nvidia7", "nvidia-caps/nvidia-cap81", "nvidia-caps/nvidia-cap82", CHANNEL))
"""No nvidia-modeset, and one GPU instance without its capabilities' files."""


class Sharing(NamedTuple):
    """A way of sharing, and what is granted of it."""

    file: str
    gpus: tuple[Gpu, ...]
    granted: tuple[str, ...]
    resource: str
    by_uuid: tuple[str, ...]
    by_index: tuple[str, ...]
    """Empty: not allowed."""
    files: tuple[str, ...]
    """In /dev, of the devices themselves."""
    says: Mapping[str, str]
    """Variables that name no devices."""
    memory_mib: int = 40000
    cores_percent: int = 0
    mode: DeviceMode = DeviceMode.WHOLE
    enforcers: Enforcers = Enforcers()
    mounts: tuple[Mount, ...] = ()
    """Those that name no devices."""
    made: Mapping[tuple[str, MigPlacement], str] = MappingProxyType({})
    """MIG devices that were made on demand of what is granted."""


def replicas(word, more="", rename=""):
    one = f"{{name: nvidia.com/gpu, replicas: 4{rename}}}"
    return f"version: v1\nsharing: {{{word}: {{{more} resources: [{one}]}}}}"


ENFORCED = "PURSER_GPU_ENFORCEMENT"
CORE_MOUNTS = (
    Mount("/usr/local/vgpu", "/opt/vgpu/containers/uid-p_main", read_only=False),
    Mount("/usr/local/vgpu/libvgpu.so", "/opt/vgpu/libvgpu.so"),
    Mount("/etc/ld.so.preload", "/opt/vgpu/ld.so.preload"),
    Mount("/tmp/vgpulock", "/tmp/lock", read_only=False),
)
CAPS = ("nvidia-caps/nvidia-cap81", "nvidia-caps/nvidia-cap82", "nvidia7")
GPU = "nvidia.com/gpu"
MIXED = "version: v1\nflags: {migStrategy: mixed}\n"
HALVES = "resources: [{name: nvidia.com/mig-1g.5gb, rename: nvidia.com/mig-1g.5gb.shared, replicas: 2}]"
SHARING = {
    "whole GPUs, in the order of the bus": Sharing(
        *("", WHOLE, (A, B), GPU, (B, A), ("0", "1"), ("nvidia6", "nvidia7"), {ENFORCED: "whole-device"}),
        cores_percent=100,
    ),
    "shares": Sharing(
        *("", WHOLE, (A,), GPU, (A,), ("1",), ("nvidia6",)),
        {ENFORCED: "time-slicing", "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "30"},
        memory_mib=3000,
        cores_percent=30,
        mode=DeviceMode.SHARED,
    ),
    "time-slicing": Sharing(
        *(replicas("timeSlicing"), WHOLE, (A,), GPU, (A,), ("1",), ("nvidia6",), {ENFORCED: "time-slicing"}),
        memory_mib=10000,
    ),
    "time-slicing by another name, two replicas of a GPU": Sharing(
        *(replicas("timeSlicing", "renameByDefault: true,"), WHOLE, (A, A), "nvidia.com/gpu.shared"),
        *((A,), ("1",), ("nvidia6",), {ENFORCED: "time-slicing"}),
        memory_mib=10000,
    ),
    "time-slicing by a name of the administrator's": Sharing(
        *(replicas("timeSlicing", rename=", rename: nvidia.com/gpu.small"), WHOLE, (A,), "nvidia.com/gpu.small"),
        *((A,), ("1",), ("nvidia6",), {ENFORCED: "time-slicing"}),
        memory_mib=10000,
    ),
    "whole GPUs by a name for their model": Sharing(
        *("version: v1\nresources: {gpus: [{pattern: A1*, name: nvidia.com/gpu-large}]}", WHOLE, (B,)),
        *("nvidia.com/gpu-large", (B,), ("0",), ("nvidia7",), {ENFORCED: "whole-device"}),
        cores_percent=100,
    ),
    "shares by HAMi-core": Sharing(
        *("", WHOLE, (A,), GPU, (A,), ("1",), ("nvidia6",)),
        {
            ENFORCED: "hami-core",
            "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
            "CUDA_DEVICE_SM_LIMIT": "30",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/uid-p.cache",
        },
        memory_mib=3000,
        cores_percent=30,
        mode=DeviceMode.SHARED,
        enforcers=Enforcers(library=True),
        mounts=CORE_MOUNTS,
    ),
    "MPS": Sharing(
        *(replicas("mps"), WHOLE, (B,), GPU, (B,), ("0",), ("nvidia7",)),
        {
            ENFORCED: "mps",
            "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10000M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        },
        memory_mib=10000,
        cores_percent=25,
        enforcers=Enforcers(mps=frozenset({B})),
        mounts=(
            Mount("/tmp/nvidia-mps", f"/run/purser/mps/{B}", read_only=False),
            Mount("/dev/shm", f"/dev/shm/purser-mps/{B}", read_only=False),
        ),
    ),
    "MIG devices on demand": Sharing(
        *("version: v1\nflags: {migStrategy: on-demand}", ALIKE, (B,), GPU, (M,), (), CAPS, {ENFORCED: "mig"}),
        memory_mib=4864,
        cores_percent=100,
        made={(B, PLACED): M},
    ),
    "MPS, which no daemon serves": Sharing(
        *(replicas("mps"), WHOLE, (B,), GPU, (B,), ("0",), ("nvidia7",), {ENFORCED: "time-slicing"}),
        memory_mib=10000,
    ),
    "MIG devices as GPUs": Sharing(
        *("version: v1\nflags: {migStrategy: single}", ALIKE, (N,), GPU, (N,), ("0:1",)),
        *(("nvidia7",), {ENFORCED: "mig"}),
        memory_mib=4864,
        cores_percent=100,
    ),
    "MIG devices by profile": Sharing(
        *(MIXED, DIFFERENT, (M,), "nvidia.com/mig-1g.5gb", (M,), ("0:1",), CAPS, {ENFORCED: "mig"}),
        memory_mib=4864,
        cores_percent=100,
    ),
    "a GPU beside MIG devices": Sharing(
        *(MIXED, DIFFERENT, (A,), GPU, (A,), ("1",), ("nvidia6",), {ENFORCED: "whole-device"}), cores_percent=100
    ),
    "replicas of MIG devices": Sharing(
        *(f"{MIXED}sharing: {{timeSlicing: {{{HALVES}}}}}", DIFFERENT, (M,), "nvidia.com/mig-1g.5gb.shared"),
        *((M,), ("0:1",), CAPS, {ENFORCED: "time-slicing"}),
        memory_mib=2432,
    ),
}


class Naming(NamedTuple):
    """A way of naming devices, and where the names are found."""

    flags: dict[str, object]
    variable: bool = False
    mounts: bool = False
    annotation: str = ""
    cdi: bool = False
    files: str | None = None
    """Where the host has those that kubelet is named; None: none is named."""
    extra_cdi_devices: tuple[str, ...] = ()
    says: Mapping[str, str] = MappingProxyType({})
    channel: bool = False


ANNOTATION = "cdi.k8s.io/purser.dev_gpu"
NAMINGS = {
    "nothing said": Naming({}, variable=True),
    "envvar": Naming({"device_lists": "envvar"}, variable=True),
    "volume-mounts": Naming({"device_lists": "volume-mounts"}, mounts=True),
    "both": Naming({"device_lists": "envvar,volume-mounts"}, mounts=True),
    "cdi-annotations": Naming({"device_lists": "cdi-annotations"}, annotation=ANNOTATION),
    "cdi-annotations, prefix": Naming(
        {"device_lists": "cdi-annotations", "cdi_annotation_prefix": "nvidia.cdi.k8s.io/"},
        annotation="nvidia.cdi.k8s.io/purser.dev_gpu",
    ),
    "cdi-cri": Naming({"device_lists": "cdi-cri"}, cdi=True),
    "CDI both ways": Naming({"device_lists": "cdi-annotations,cdi-cri"}, annotation=ANNOTATION, cdi=True),
    "all": Naming(
        {"device_lists": "cdi-cri,volume-mounts,envvar,cdi-annotations"}, mounts=True, annotation=ANNOTATION, cdi=True
    ),
    "device files": Naming({"pass_device_specs": True}, variable=True, files=""),
    "device files with CDI and a variable": Naming(
        {"pass_device_specs": True, "device_lists": "envvar,cdi-cri"}, variable=True, cdi=True, files=""
    ),
    "device files are CDI's": Naming(
        {"pass_device_specs": True, "device_lists": "cdi-annotations"}, annotation=ANNOTATION
    ),
    "device files of another root": Naming(
        {"pass_device_specs": True, "dev_root": "/run/nvidia/driver"}, variable=True, files="/run/nvidia/driver"
    ),
    "more devices": Naming(
        {"device_lists": "cdi-cri", "gds": True, "mofed": True, "gdrcopy": True},
        cdi=True,
        extra_cdi_devices=("gdrcopy=all", "mofed=all"),
        says={"NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled", "NVIDIA_GDRCOPY": "enabled"},
    ),
    "an IMEX channel": Naming(
        {"device_lists": "envvar,volume-mounts,cdi-cri", "imex_channels": "0", "pass_device_specs": True},
        *(False, True, "", True, "", ("imex-channel=0",), {"NVIDIA_IMEX_CHANNELS": "0"}, True),
    ),
}


def expected(sharing, naming, by_index):
    """By the table."""
    names = sharing.by_index if by_index else sharing.by_uuid
    listed = {"NVIDIA_VISIBLE_DEVICES": ",".join(names)} if naming.variable else {}
    mounts = ()
    if naming.mounts:
        folder = "/var/run/nvidia-container-devices"
        listed = {"NVIDIA_VISIBLE_DEVICES": folder}
        also = ("imex/0",) if naming.channel else ()
        mounts = tuple(Mount(f"{folder}/{name}", "/dev/null") for name in (*names, *also))
    mounts = (*sharing.mounts, *mounts)
    cdi = tuple(
        f"k8s.device-plugin.nvidia.com/{each}"
        for each in (*(f"gpu={name}" for name in names), *naming.extra_cdi_devices)
    )
    files = ()
    if naming.files is not None:
        channel = (CHANNEL,) if naming.channel else ()
        files = tuple(
            Mount(f"/dev/{name}", f"{naming.files}/dev/{name}", read_only=False)
            for name in (*CONTROL, *sharing.files, *channel)
        )
    return ContainerAllocation(
        environment={**sharing.says, **naming.says, **listed},
        mounts=mounts,
        device_nodes=files,
        annotations={naming.annotation: ",".join(cdi)} if naming.annotation else {},
        cdi_devices=cdi if naming.cdi else (),
    )


@cache
def config_with(file, **flags):
    """Read once: it takes longer than all that follows of it."""
    sharing = SharingSettings(flags=DevicePluginFlags(**flags))
    return sharing, config_of(sharing, "file" if file else "", file)


def answered(sharing, flags, there=THERE):
    """By the agent's own functions, from the file to the answer."""
    said, config = config_with(sharing.file, **flags)
    settings = AgentSettings(node_name="n", mode=sharing.mode, sharing=said, managed_resources=(sharing.resource,))
    made = make_inventory(
        settings, InventoryBasis(config, DriverInfo(version="1"), sharing.gpus), {}, sharing.enforcers, "1"
    )
    devices = devices_by_uuid(made)
    assert {devices[uuid].resource for uuid in sharing.granted} == {sharing.resource}
    devices |= {uuid: mig_device(devices[gpu], uuid) for (gpu, _), uuid in sharing.made.items()}
    own = own_device_files(sharing.gpus, MINORS)
    held = config.settings
    facts = AllocationFacts(
        devices=devices,
        library_dir="/opt/vgpu",
        lock_dir="/tmp/lock",
        listing=listing_of(held, sharing.gpus, there, {"gpu", "gdrcopy", "mofed"}),
        nodes=DeviceNodes(there, own, held.dev_root.rstrip("/")) if held.pass_device_specs else None,
    )
    wanted = part("main", *sharing.granted, memory_mib=sharing.memory_mib, cores_percent=sharing.cores_percent)
    if sharing.made:
        shares = tuple(replace(share, mig=PLACED) for share in wanted.shares)
        wanted = part_with_devices(replace(wanted, shares=shares), sharing.made)
    return answer(grant("p", wanted), wanted, ContainerFacts(), facts)


@pytest.mark.parametrize(
    ("sharing", "by_index"),
    [(name, by) for name, each in SHARING.items() for by in (False, True) if not by or each.by_index],
)
def test_a_container_is_given(sharing, by_index):
    for name, naming in NAMINGS.items():
        flags = naming.flags | {"device_ids": "index" if by_index else "uuid"}
        assert answered(SHARING[sharing], flags) == expected(SHARING[sharing], naming, by_index), name


def test_a_channel_that_is_not_there_is_left_out_unless_it_is_required():
    settings = config_of(SharingSettings(flags=DevicePluginFlags(imex_channels="0"))).settings
    required = config_of(SharingSettings(flags=DevicePluginFlags(imex_channels="0", imex_required=True))).settings
    found = [listing_of(each, (), frozenset()).imex_channels for each in (settings, required)]
    assert found == [(), (0,)]


def test_below_wsl_a_container_gets_the_one_file_of_all_gpus(tmp_path):
    (tmp_path / "dxg").touch()
    there = frozenset(find_device_files(tmp_path))
    given = answered(SHARING["whole GPUs, in the order of the bus"], {"pass_device_specs": True}, there)
    assert given.device_nodes == (Mount("/dev/dxg", "/dev/dxg", read_only=False),)
