"""A node that has all it needs, and the same with one thing wrong at a time."""

import errno
import json
import os
import shutil
import socket
import threading
from pathlib import Path

import pytest
import pytest_asyncio
from tests.reported_files import reported
from tests.unit.agent.conftest import shared_folder, shared_kubelet
from tests.unit.agent.sriov.sysfs_tree import HostTree
from tests.unit.cli.typed import beside

from purser.agent.checking import CheckState, check_node
from purser.agent.checking.config import check_config_on
from purser.agent.checking.driver import _check_gpus
from purser.agent.checking.mig import wants_on_demand
from purser.agent.nvml import Gpu, MigMode, NullDriver
from purser.agent.settings import AgentSettings, DevicePluginFlags, SharingSettings, SriovSettings
from purser.core.device.counting import DISPLAY_MODELS
from purser.core.sharing import MigStrategy
from purser.lab.driver import SimulatedDriver
from purser.lab.driver.node_mig import create_mig, set_mig

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]
folder, kubelet = shared_folder, shared_kubelet

FAILED, WARNING, OK, ABSENT = CheckState.FAILED, CheckState.WARNING, CheckState.OK, CheckState.ABSENT

FILES = {
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Jan  1 UTC 2026\n",
    "etc/containerd/conf.d/99-nvidia.toml": 'BinaryName = "/usr/bin/nvidia-container-runtime"\n',
    "run/cdi/gpu.yaml": "{{kind: k8s.device-plugin.nvidia.com/gpu, devices: [{{name: GPU-1}}, {{name: GPU-2}}]}}",
    "usr/local/vgpu/libvgpu.so": "",
    "usr/local/vgpu/ld.so.preload": "/usr/local/vgpu/libvgpu.so\n",
    "usr/bin/nvidia-cuda-mps-control": "",
    "var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n",
    **{f"dev/{name}": "" for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in range(4)))},
}


class Host:
    """A node in a folder."""

    def __init__(self, folder, driver):
        self.folder, self.root, self.driver = folder, folder / "host", driver
        self.opened = driver.open()  # once: each opening loads the binding again
        self.opened.close = lambda: None
        self.settings = {
            "node_name": "n",
            "host_root": self.root,
            "sysfs_root": driver.sysfs_root,
            "driver_roots": (self.root,),
            "device_plugin_dir": folder / "device-plugins",
            "pod_resources_socket": folder / "pod-resources" / "kubelet.sock",
            "kubelet_dir": self.root / "var/lib/kubelet",
            "state_dir": folder / "state",
        }

    def install(self):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        for name, text in FILES.items():
            self.write(name, text.format(version=self.opened.info().version))
        self.listen("host/run/containerd/containerd.sock").close()
        self.has_pids("4711")

    def has_pids(self, pids):
        """The agent's, in each PID namespace from the host's on."""
        self.write("proc/self/status", f"Name:\tpurser\nNSpid:\t{pids}\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def listen(self, name):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        return listener

    async def check(self, find_driver=None, **settings):
        found = await check_node(AgentSettings(**{**self.settings, **settings}), find_driver or (lambda: self.opened))
        return {each.check: each for each in found}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(folder, kubelet):
    host = Host(folder, SimulatedDriver.create(folder / "driver", "n", "t4-4"))
    yield host
    type(host.opened).close(host.opened)


@pytest_asyncio.fixture(loop_scope="module")
async def host(node):
    node.install()
    return node


async def test_a_node_that_has_all_it_needs(host):
    found = await host.check()
    assert {name: each.state for name, each in found.items() if each.state is not OK} == {"agent's checkpoint": ABSENT}
    assert [name for name in found if name.startswith("GPU ")] == [f"GPU {index}" for index in range(4)]
    assert not any(each.advice for each in found.values())
    assert "2 devices" in found["CDI"].found


async def test_an_agent_in_a_pid_namespace_of_its_own_is_reported(host):
    host.has_pids("4711\t1")
    found = (await host.check())["processes"]
    assert (found.state, found.found) == (WARNING, "not in the host's PID namespace")
    assert "hostPID: true" in found.advice


async def test_devices_that_are_none_for_pods_are_named_and_unknown_memory_is_not_zero(host, folder):
    station = SimulatedDriver.create(folder / "station", "n", "dgx-station-a100")
    station.fail_call(4, "nvmlDeviceGetMemoryInfo", 3)
    found = await host.check(station.open)
    assert [found[f"GPU {index}"].state for index in range(5)] == [OK] * 5
    assert "so pods do not get this GPU" in found["GPU 3"].found
    assert "/dev/nvidia4" in found["device files"].found
    assert "/dev/nvidia3" not in found["device files"].found
    assert ("81920 MiB" in found["GPU 2"].found, "memory unknown" in found["GPU 4"].found) == (True, True)


REMOVED = [
    ("proc/self/status", "processes", WARNING, "proc/self/status: No such file or directory"),
    ("proc/driver/nvidia/version", "kernel module", FAILED, "nvidia is not loaded"),
    ("dev/nvidia2", "device files", FAILED, "missing: /dev/nvidia2"),
    ("etc/containerd/conf.d/99-nvidia.toml", "container toolkit", FAILED, "not installed"),
    ("run/containerd/containerd.sock", "container runtime", WARNING, "no containerd"),
    ("run/cdi/gpu.yaml", "CDI", ABSENT, "does not require one"),
    ("usr/local/vgpu/libvgpu.so", "HAMi-core", WARNING, "only ld.so.preload"),
    ("usr/bin/nvidia-cuda-mps-control", "MPS", ABSENT, "nvidia-cuda-mps-control was not found under "),
    ("var/lib/kubelet/config.yaml", "kubelet's files", WARNING, "cannot read"),
]


async def test_what_is_missing_is_reported_and_nothing_else(host):
    usual = await host.check()
    for name, check, state, says in REMOVED:
        host.install()
        (host.root / name).unlink()
        found = await host.check()
        assert (found[check].state, says in found[check].found) == (state, True), (name, found[check])
        assert state is ABSENT or found[check].advice, name
        assert "nvidia2" not in name or found[check].advice.startswith("Run nvidia-modprobe -c 2 on the node. ")
        assert {each for each in found if found[each] != usual[each]} == {check}, name


WRITTEN = [
    (
        "proc/driver/nvidia/version",
        "Kernel Module  1.2.3  Tue",
        "driver library",
        FAILED,
        "the kernel module has version 1.2.3",
    ),
    ("proc/driver/nvidia/version", "?", "kernel module", OK, "nvidia"),
    ("run/cdi/other.yaml", "kind: [", "CDI", OK, "2 devices"),
    ("etc/cdi/bad.json", "{" * 100_000, "CDI", OK, "2 devices"),
    ("usr/local/vgpu/ld.so.preload", "/else.so", "HAMi-core", WARNING, "does not name libvgpu.so"),
    ("var/lib/kubelet/config.yaml", "kind: Pod", "kubelet's files", WARNING, "kind is 'Pod'"),
]


async def test_what_is_wrong_is_reported(host):
    for name, text, check, state, says in WRITTEN:
        host.install()
        host.write(name, text)
        found = await host.check()
        assert (found[check].state, says in found[check].found) == (state, True), (name, found[check])


async def test_where_cdi_names_devices_the_hook_is_missed_and_the_runtime_of_nvidia_is_not(host):
    (host.root / "run/cdi/gpu.yaml").unlink()
    (host.root / "etc/containerd/conf.d/99-nvidia.toml").unlink()
    found = await host.check(sharing=SharingSettings(flags=DevicePluginFlags(device_lists="cdi-cri")))
    assert [found[each].state for each in ("CDI", "container toolkit", "CDI hook")] == [ABSENT, WARNING, WARNING]
    assert "/usr/bin/nvidia-ctk" in found["CDI hook"].found


async def test_a_lost_gpu_is_reported_and_the_others_are_well(host):
    host.driver.lose_gpu(1, xid=None)
    try:
        found = await host.check()
    finally:
        host.driver.recover_gpu(1)
    assert [found[f"GPU {index}"].state for index in range(4)] == [OK, FAILED, OK, OK]
    assert "dmesg" in found["GPU 1"].advice


async def test_the_advice_is_about_what_is_wrong_with_the_gpu(host):
    host.driver.fail_call(1, "nvmlDeviceGetMemoryInfo", 4)  # NVML_ERROR_NO_PERMISSION
    try:
        found = await host.check()
    finally:
        host.driver.clear_failures(1)
    assert (found["GPU 1"].state, "privileged" in found["GPU 1"].advice) == (FAILED, True)
    for name in ("nvidiactl", "nvidia-uvm"):
        (host.root / "dev" / name).unlink()
    advice = (await host.check())["device files"].advice
    assert advice.startswith("Run nvidia-modprobe -c 255 and nvidia-modprobe -u -c 0 on the node. ")


async def test_gpus_that_are_none_for_pods_are_not_denied():
    (display, none) = (Gpu(index=0, uuid="GPU-d", name=next(iter(DISPLAY_MODELS))),), ()
    assert [next(iter(_check_gpus(gpus, False))).found for gpus in (display, none)] == [
        "the driver lists no GPUs that pods can use",
        "the driver lists no GPUs",
    ]


async def test_a_strategy_by_option_is_not_looked_for_in_a_file():
    flags = DevicePluginFlags(mig_strategy=MigStrategy.SINGLE)
    settings = AgentSettings(node_name="n", sharing=SharingSettings(flags=flags))
    gpus = [Gpu(index=i, uuid=f"GPU-{i}", name="A100", mig=MigMode(on, on)) for i, on in enumerate((True, False))]
    (found,) = check_config_on(settings, gpus)
    assert found.found.startswith("the agent's options: ")
    assert found.advice.startswith("Correct the MIG strategy")


async def test_neither_a_driver_that_is_not_there_nor_one_that_hangs_holds_it_up(host):
    found = await host.check(lambda: NullDriver("no library"))
    assert (found["driver library"].state, found["driver library"].found) == (FAILED, "no library")
    assert found["driver library"].advice.startswith("Set the location of the driver's libraries")
    found = await host.check(lambda: NullDriver("/usr/lib64/libnvidia-ml.so.1: nvmlInit: RM has detected a mismatch"))
    assert found["driver library"].advice.startswith("Check dmesg for NVRM messages. If the driver was updated")
    never = threading.Event()
    try:
        found = await host.check(never.wait, probe_timeout_s=0.01)
    finally:
        never.set()
    assert "has not answered within 0.01 s" in found["driver library"].found
    assert found["PodResources"].state is OK


async def test_a_node_below_wsl_has_neither_the_module_nor_its_device_files(host, folder):
    """Windows has the driver; containers get /dev/dxg."""
    wsl = SimulatedDriver.create(folder / "wsl", "n", "wsl")
    shutil.rmtree(host.root / "proc/driver")
    shutil.rmtree(host.root / "dev")
    host.write("dev/dxg", "")
    host.write("usr/lib/wsl/lib/libdxcore.so", "")
    empty = {"sysfs_root": folder / "no-sysfs"}
    found = await host.check(wsl.open, **empty)
    assert [each for each in found.values() if each.state is FAILED] == []
    assert [found[each].state for each in ("kernel module", "driver library", "device files")] == [OK] * 3
    assert found["device files"].found == "/dev/dxg"
    (host.root / "dev/dxg").unlink()
    found = await host.check(wsl.open, **empty)
    assert (found["device files"].state, found["device files"].found) == (FAILED, "missing: /dev/dxg")
    assert "wsl --update" in found["device files"].advice


async def test_another_gpu_plugin_is_reported_while_it_is_served(host):
    with host.listen("device-plugins/nvidia-gpu.sock"), host.listen("device-plugins/fpga.sock"):
        assert (await host.check())["other device plugins"].state is WARNING
    assert (await host.check())["other device plugins"].state is OK


async def test_the_device_plugins_file_is_read_as_by_the_agent(host, folder):
    file = folder / "plugin" / "a.yaml"
    file.parent.mkdir()
    missing = "cannot read the configuration file: "
    for text, folder_of, says in (
        (None, None, missing),
        ("version: v9", None, "version"),
        ("version: v9", file.parent, "a.yaml: "),
        ("version: v1", None, ""),
        ("version: v1", file.parent, ""),
        ("version: v1", folder / "none", "cannot read the folder of configuration files"),
    ):
        if text is not None:
            file.write_text(text)
        sharing = SharingSettings(file=None if folder_of else file, folder=folder_of)
        row = (await host.check(sharing=sharing))["device plugin's file"]
        assert (row.state, says in row.found) == (WARNING if says else OK, True), row
    row = (await host.check(sharing=SharingSettings(folder=file.parent, default="b")))["device plugin's file"]
    assert "the default names the file b, which does not exist" in row.found
    file.write_text("{version: v1, flags: {migStrategy: on-demand}}")
    assert wants_on_demand(AgentSettings(node_name="n", sharing=SharingSettings(file=file)))
    assert "device plugin's file" not in await host.check()


async def rows_of(host, **sharing):
    """What the check says of the device plugin's file."""
    settings = AgentSettings(**{**host.settings, "sharing": SharingSettings(**sharing)})
    found = await check_node(settings, lambda: host.opened)
    return [each for each in found if each.check == "device plugin's file"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}",
            ["resources[0].replicas is 1", "no valid entry"],
        ),
        ("flags: {failOnInitError: false, color: red}", ["flags.color is unknown", "flags.failOnInitError has no"]),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [9]}]}}",
            ["devices takes effect", "device 9,"],
        ),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: gpu-0}]}}",
            [
                "rename takes effect here",
                "resources[0] gives devices 0, 1, 2, 3 the name nvidia.com/gpu-0, about which kube-sch",
            ],
        ),
        (
            "sharing: {mps: {resources: [{name: gpu, replicas: 60}]}}",
            ["MPS on GPU 0 supports only 48", *["MPS on GPU"] * 3],
        ),
        ('{"nodeconfig": [{"name": "n", "devicesplitcount": 4}]}', ["devicesplitcount has no effect"]),
        (
            '{"nodeconfig": [{"name": "n", "filterdevices": {"index": [5]}}]}',
            ["hides GPUs from", "does not have this GPU"],
        ),
    ],
)
async def test_every_note_on_the_file_is_shown(host, folder, text, says):
    file = folder / "noted.yaml"
    file.write_text(text)
    rows = [row for row in await rows_of(host, file=file) if row.state is not OK]
    assert [row.state for row in rows] == [WARNING] * len(says)
    assert all(str(file) in row.found and row.advice for row in rows)
    for each in says:
        assert any(each in row.found for row in rows), each


async def test_files_as_users_have_them(host, folder):
    """A number above the limit is told with the limit; devices of other nodes and filtered ones are told by name."""
    for name, says in (
        ("replicas-1001.yaml", "must be at most 1000"),
        ("fleet.yaml", "asks to replicate device 4, which the node does not have"),
        ("one-card.yaml", "takes effect here, although NVIDIA's device plugin ignores it"),
        ("filterdevices.json", "filterdevices hides GPUs from pods: index 3"),
    ):
        file = folder / name
        file.write_text(reported(name).read_text().replace("t4-4-0", "n"))
        rows = await rows_of(host, file=file)
        assert any(says in row.found for row in rows), rows


async def test_every_note_on_the_sriov_file_is_shown(host, folder):
    HostTree(host.root).pf("0000:18:00.0", "ens1f0", 2)
    file = folder / "sriov.json"
    pools = [
        {"resourceName": "odd", "selectors": {"pfName": ["x"]}},
        {"resourceName": "a.b", "selectors": {"vendors": ["1"]}, "colour": 1},
        {"resourceName": "net", "selectors": {"pfNames": ["ens1f0", "ens1f0#0"]}},
    ]
    file.write_text(json.dumps({"resourceList": pools, "more": 1}))
    settings = AgentSettings(**{**host.settings, "sriov": SriovSettings(config=file)})
    rows = [each for each in await check_node(settings, lambda: host.opened) if each.check == "SR-IOV pools"]
    for says in (
        "resourceList[0].selectors: unknown field pfName: use pfNames",
        "resourceList[1]: kubelet would reject resource intel.com/a.b",
        "resourceList[1].colour is unknown",
        "more is unknown",
        "ens1f0#0 has no effect",
    ):
        (row,) = (each for each in rows if says in each.found)
        assert (row.state, row.found.startswith(f"{file}: "), bool(row.advice)) == (WARNING, True, True)
    assert [row.found for row in rows if row.state is OK] == ["intel.com/net has 2 devices: 0000:18:02.0, 0000:18:02.1"]


async def test_a_gpu_in_mig_mode_without_mig_devices_is_reported(folder):
    driver = SimulatedDriver.create(folder / "mig", "m", "a100-pcie-4")
    set_mig(driver.folder, 1, enabled=True)
    set_mig(driver.folder, 2, enabled=True)
    create_mig(driver.folder, 2, "1g.5gb")
    host = Host(folder / "of-mig", driver)
    found = await host.check()
    assert [found[f"GPU {at}"].state for at in range(4)] == [OK, WARNING, OK, OK]
    assert found["GPU 1"].found.endswith(": MIG is enabled, but there are no MIG devices")
    assert "mig.config" in found["GPU 1"].advice
    create_mig(driver.folder, 1, "3g.20gb", slices=1)
    file = folder / "mixed.yaml"
    file.write_text("{version: v1, flags: {migStrategy: mixed}}")
    (row,) = [each for each in await rows_of(host, file=file) if each.state is not OK]
    assert "MIG device 1:0 is 1c.3g.20gb, which is a part of a GPU instance" in row.found
    on_demand = SharingSettings(flags=DevicePluginFlags(mig_strategy=MigStrategy.ON_DEMAND))
    assert (await host.check(sharing=on_demand))["GPU 1"].state is OK
    type(host.opened).close(host.opened)


async def test_kubelets_sockets_and_the_agents_checkpoint(host, folder):
    nowhere = folder / "nowhere"
    found = await host.check(device_plugin_dir=nowhere, pod_resources_socket=nowhere / "kubelet.sock")
    assert (found["kubelet"].state, found["PodResources"].state) == (FAILED, FAILED)
    (folder / "state").mkdir()
    (folder / "state" / "agent-checkpoint.json").write_text("{")
    assert (await host.check())["agent's checkpoint"].state is WARNING


async def test_what_may_not_be_looked_at_is_reported_and_the_rest_is_looked_at(host):
    """As by whoever is not root; root may look everywhere, and at names that are too long nobody."""
    found = await host.check(hami_core_dir=Path("/" + "x" * 300))
    assert (found["HAMi-core"].state, "File name too long" in found["HAMi-core"].found) == (WARNING, True)
    assert {"MPS", "processes"} <= found.keys()


async def test_without_the_hosts_root_that_is_said_first(host):
    found = list((await host.check(host_root=host.folder / "none")).values())
    assert (found[0].check, found[0].state) == ("host's root", FAILED)


async def test_where_permissions_are_wrong_the_advice_is_not_to_start_kubelet(host, monkeypatch):
    def denied(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("socket.socket.connect", denied)  # root may connect to all of them
    found = await host.check()
    assert [found[each].advice[:12] for each in ("kubelet", "PodResources")] == ["Run as root,"] * 2


async def test_folders_that_cannot_be_written_to(host, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    assert (await host.check())["permissions"].state is FAILED


async def test_the_command_shows_it_and_its_exit_code_says_whether_gpus_can_be_handed_out(host):
    words = ("agent", "check", f"--host-root={host.root}", "--driver-library=/nowhere.so")
    code, text, _ = await beside(*words)
    assert code == 1
    assert "\ndriver library: Set the location" in text
    code, text, _ = await beside(*words, "-o", "json")
    assert code == 1
    (library,) = [each for each in json.loads(text) if each["check"] == "driver library"]
    assert library["state"] == "failed"
