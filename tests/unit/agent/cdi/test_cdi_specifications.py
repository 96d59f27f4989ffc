"""CDI specifications: what is in them for which files of a host, and when they are there at all."""

import asyncio
import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from tests.unit.agent.conftest import eventually

from purser.agent.cdi.driver_files import find_driver_files
from purser.agent.cdi.finding import CdiFinder
from purser.agent.cdi.specification import CdiDevice, CdiDeviceNode, CdiEdits, specification_of
from purser.agent.cdi.tree import HostTree
from purser.agent.cdi.writing import CdiWriter
from purser.agent.host.latest import Latest
from purser.agent.inventory.building import InventoryBasis
from purser.agent.nvml.driver import DriverInfo, Gpu, MigMode
from purser.agent.settings import AgentSettings, DevicePluginFlags, SharingSettings
from purser.agent.sharing import config_of
from purser.core.device.gpus import NodeMigDevice

LIB, VERSION = "/usr/lib/x86_64-linux-gnu", "550.54.14"
ROOT = "/run/nvidia/driver"
MIG = NodeMigDevice(uuid="MIG-1", profile="1g.5gb", memory_mib=4864, gpu_instance=7, compute_instance=0)
GPUS = (
    Gpu(index=0, uuid="GPU-a", minor=1, pci_bus_id="0000:07:00.0"),
    Gpu(index=1, uuid="GPU-b", minor=0, mig=MigMode(enabled=True, pending=True), migs=(MIG,)),
    Gpu(index=2),
)
DRIVER = {
    f"{LIB}/libcuda.so.{VERSION}": "",
    f"{LIB}/libcuda.so.1": f"-> libcuda.so.{VERSION}",
    f"{LIB}/libnvidia-ml.so.{VERSION}": "",
    f"{LIB}/libnvidia-ml.so.1": f"-> libnvidia-ml.so.{VERSION}",
    f"{LIB}/libnvidia-ml.so": "-> libnvidia-ml.so.1",
    f"{LIB}/libcuda.so.535.1": "",
    f"{LIB}/libc.so.6": "",
    "/usr/lib64": f"-> {LIB}",
    "/usr/bin/nvidia-smi": "",
    "/run/nvidia-persistenced/socket": "",
    f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin": "",
    "/etc/vulkan/icd.d/nvidia_icd.json": "",
    **{f"/dev/{name}": "-> /dev/null" for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "dri/card1")},
    "/dev/nvidia-caps/nvidia-cap30": "-> /dev/zero",
    "/dev/nvidia-caps/nvidia-cap31": "-> /dev/zero",
    "/dev/nvidia-modeset": "",
    "/dev/dri/by-path/pci-0000:07:00.0-card": "-> ../card1",
    "/dev/nvidia-caps-imex-channels/channel0": "-> /dev/null",
    "/dev/infiniband/uverbs0": "-> /dev/null",
}
"""Below the driver's root: contents, or where a link leads. /dev/nvidia-modeset is not a device."""
HOST = {
    "/usr/bin/nvidia-ctk": "",
    "/proc/driver/nvidia-caps/mig-minors": "gpu0/gi7/access 30\ngpu0/gi7/ci0/access 31\n",
}


class Host:
    """A node below a folder, with its driver in a container's root."""

    def __init__(self, folder: Path):
        self.root = folder
        for path, text in {**HOST, **{f"{ROOT}{path}": text for path, text in DRIVER.items()}}.items():
            self.put(path, text)
        (folder / "sys/bus/pci/devices/0000:07:00.0/drm/card1").mkdir(parents=True)

    def put(self, path, text=""):
        at = self.root / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            at.symlink_to(text[3:])
        else:
            at.write_text(text)
            at.chmod(0o755)

    def settings(self, **flags):
        return AgentSettings(
            node_name="n",
            host_root=self.root,
            sysfs_root=self.root / "sys",
            sharing=SharingSettings(
                flags=DevicePluginFlags(**{"driver_root": ROOT, "device_lists": "cdi-cri"} | flags)
            ),
        )

    def basis(self, gpus=GPUS, **flags):
        config = config_of(self.settings(**flags).sharing)
        return InventoryBasis(config, DriverInfo(version=VERSION), gpus)

    def found(self, **flags):
        finder = CdiFinder(self.settings(**flags), self.basis(**flags))
        return json.loads(msgspec.json.encode(finder.specifications())), list(finder.problems())


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def node(name, root=ROOT):
    """As /dev/null or /dev/zero, which stand for it here."""
    minor = 5 if "nvidia-caps/" in name else 3
    found = {"path": f"/dev/{name}", "hostPath": f"{root}/dev/{name}", "major": 1, "minor": minor}
    return found | {"fileMode": 0o666, "permissions": "rwm"}


def mount(path, options=("ro", "nosuid", "nodev", "rbind", "rprivate")):
    return {"hostPath": f"{ROOT}{path}", "containerPath": path, "options": list(options)}


def hook(*arguments):
    command = ["nvidia-ctk", "hook", *arguments]
    env = ["NVIDIA_CTK_DEBUG=false"]
    return {"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk", "args": command, "env": env}


def test_a_specification_has_what_nvidias_toolkit_puts_in_it(host):
    """But for the order of links, and the hook that older toolkits do not know."""
    found, problems = host.found()
    assert (list(found), problems) == (["gpu"], [])
    links = (
        f"libcuda.so.1::{LIB}/libcuda.so",
        f"libcuda.so.{VERSION}::{LIB}/libcuda.so.1",
        f"libnvidia-ml.so.1::{LIB}/libnvidia-ml.so",
        f"libnvidia-ml.so.{VERSION}::{LIB}/libnvidia-ml.so.1",
    )
    assert found["gpu"] == {
        "cdiVersion": "0.5.0",
        "kind": "k8s.device-plugin.nvidia.com/gpu",
        "devices": [
            {
                "name": "GPU-a",
                "containerEdits": {
                    "deviceNodes": [node("dri/card1"), node("nvidia1")],
                    "hooks": [hook("create-symlinks", "--link", "../card1::/dev/dri/by-path/pci-0000:07:00.0-card")],
                },
            },
            {
                "name": "MIG-1",
                "containerEdits": {
                    "deviceNodes": [node(f"nvidia{each}") for each in ("-caps/nvidia-cap30", "-caps/nvidia-cap31", 0)]
                },
            },
        ],
        "containerEdits": {
            "env": [f"NVIDIA_CTK_LIBCUDA_DIR={LIB}", "NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [node("nvidia-uvm"), node("nvidiactl")],
            "mounts": [
                mount("/etc/vulkan/icd.d/nvidia_icd.json"),
                mount(f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"),
                mount("/run/nvidia-persistenced/socket", ("nosuid", "nodev", "rbind", "rprivate", "noexec")),
                mount("/usr/bin/nvidia-smi"),
                mount(f"{LIB}/libcuda.so.{VERSION}"),
                mount(f"{LIB}/libnvidia-ml.so.{VERSION}"),
            ],
            "hooks": [
                hook("create-symlinks", *(word for each in links for word in ("--link", each))),
                hook("enable-cuda-compat", f"--host-driver-version={VERSION}"),
                hook("update-ldcache", "--folder", LIB),
                hook("disable-device-node-modification"),
            ],
        },
    }


def test_devices_by_index_and_those_that_are_no_gpus(host):
    host.put("/usr/bin/nvidia-cdi-hook")
    found, _ = host.found(
        device_ids="index", imex_channels="0", gds=True, mofed=True, gdrcopy=True, cdi_hook="/usr/bin/nvidia-cdi-hook"
    )
    assert [each["name"] for each in found["gpu"]["devices"]] == ["0", "1:0"]
    assert found["gpu"]["containerEdits"]["hooks"][-1]["args"] == [
        "nvidia-cdi-hook",
        "disable-device-node-modification",
    ]
    assert found["imex-channel"] == {
        "cdiVersion": "0.5.0",
        "kind": "k8s.device-plugin.nvidia.com/imex-channel",
        "devices": [
            {"name": "0", "containerEdits": {"deviceNodes": [node("nvidia-caps-imex-channels/channel0")]}},
        ],
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }
    assert found["mofed"]["devices"] == [
        {"name": "all", "containerEdits": {"deviceNodes": [node("infiniband/uverbs0")]}}
    ]
    assert set(found) == {"gpu", "imex-channel", "mofed"}, "no device, no class"


def test_what_containers_will_miss_is_reported(host):
    (host.root / "usr/bin/nvidia-ctk").unlink()
    found, problems = host.found(driver_root="/elsewhere", dev_root=ROOT)
    assert [each["name"] for each in found["gpu"]["devices"]] == ["GPU-a", "MIG-1"]
    assert "hooks" not in found["gpu"]["containerEdits"]
    assert (len(problems), "/elsewhere" in problems[0], "/usr/bin/nvidia-ctk" in problems[1]) == (2, True, True)


@pytest.mark.parametrize(
    ("name", "edits", "version"),
    [
        ("GPU-a", {}, "0.3.0"),
        ("0:1", {}, "0.5.0"),
        ("GPU-a", {"host_path": "/driver/dev/nvidia0"}, "0.5.0"),
        ("0", {"gid": 44}, "0.7.0"),
    ],
)
def test_the_version_is_the_oldest_that_has_all_fields(name, edits, version):
    groups = (edits["gid"],) if "gid" in edits else ()
    device = CdiEdits(device_nodes=(CdiDeviceNode(path="/dev/nvidia0", **edits),), additional_gids=groups)
    assert specification_of("gpu", [CdiDevice(name, device)]).cdi_version == version
    assert specification_of("gpu", [CdiDevice(name, CdiEdits())]) is None


def test_links_are_followed_below_the_root_alone(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("")
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("")
    for path, target in {
        "l": "/a",
        "up": "../../outside",
        "a/loop": "loop",
        "abs": str(outside),
        "s": "a/../l/b",
    }.items():
        (root / path).symlink_to(target)
    tree = HostTree(root)
    assert tree.resolved("/l/b/file") == tree.resolved("/s/file") == "/a/b/file"
    assert [tree.resolved(each) for each in ("/up", "/a/loop", "/abs", "/../outside")] == [None] * 4


def test_libraries_of_a_folder_with_two_names_are_found_once(tmp_path):
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("usr/lib64")
    (tmp_path / "usr/lib64/libcuda.so.1.2").write_text("")
    (tmp_path / "usr/lib64/nvidia-other.so.1.2").write_text("")
    found = find_driver_files(HostTree(tmp_path), "1.2")
    assert found.libraries == ("/usr/lib64/libcuda.so.1.2", "/usr/lib64/nvidia-other.so.1.2")
    assert found.folders == ("/usr/lib64",)


@contextlib.asynccontextmanager
async def writing(host, basis, pods=()):
    writer = CdiWriter(host.settings(), basis, lambda: bool(pods))
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.asyncio
async def test_specifications_follow_devices_and_configuration(host):
    folder = host.root / "run/cdi"
    file = folder / "k8s.device-plugin.nvidia.com-gpu.json"

    def names():
        return [each["name"] for each in json.loads(file.read_text())["devices"]] if file.exists() else None

    basis = Latest(host.basis())
    async with writing(host, basis) as writer:
        await eventually(lambda: names() == ["GPU-a", "MIG-1"])
        assert (writer.classes, file.stat().st_mode & 0o777) == ({"gpu"}, 0o644)
        (host.root / ROOT.lstrip("/") / "dev/nvidia1").unlink()
        await eventually(lambda: names() == ["MIG-1"])
        basis.set(host.basis(gpus=()))
        await eventually(lambda: names() is None)
        assert writer.classes == set()
        basis.set(host.basis())
        await eventually(names)
        folder.rename(folder.with_name("away"))
        folder.write_text("in the way")
        basis.set(host.basis(mofed=True))
        await eventually(lambda: "cannot write the CDI specifications" in writer.problem)
        folder.unlink()
        basis.set(host.basis())
        await eventually(lambda: names() and not writer.problem)
        basis.set(host.basis(device_lists="envvar,volume-mounts"))
        await eventually(lambda: names() is None)
    assert list(folder.iterdir()) == []


@pytest.mark.asyncio
async def test_names_that_containers_were_given_last_as_long_as_their_pods(host):
    """kubelet gives a container that is started again what it gave it at first, whatever the configuration is now."""
    file = host.root / "run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
    pods, basis = {"pod"}, Latest(host.basis())
    async with writing(host, basis, pods) as writer:
        await eventually(file.exists)
        basis.set(host.basis(device_lists="envvar"))
        device_file = host.root / ROOT.lstrip("/") / "dev/nvidia1"
        device_file.unlink()
        await eventually(lambda: writer.devices.value == {"MIG-1"})
        pods.clear()
        device_file.symlink_to("/dev/null")
        await eventually(lambda: not file.exists())
        pods.add("another")
        writer.problem = "not looked at yet"
        basis.set(host.basis(device_lists="volume-mounts"))
        await eventually(lambda: not writer.problem)
        assert not file.exists(), "it was never named to anybody"
