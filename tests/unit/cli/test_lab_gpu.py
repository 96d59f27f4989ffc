"""`purser lab gpu` on the folders of a lab: what each command changes, how it prints, how it ends."""

import json
from pathlib import Path

import pytest
import yaml
from tests.unit.cli.typed import here

from purser.cli.output import FAILED, MISUSED
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.parts import BankSpares, MemoryLocation
from purser.lab.driver.profiles import NodeProfile
from purser.lab.folders import NodeFolders, node_folders
from purser.lab.kubelet.runtime import ContainerRecord


class FolderLab:
    """The folders that a lab with two nodes has."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.folders: list[NodeFolders] = [node_folders(folder, place) for place in range(2)]
        names = (("a100-0", "a100-40gb-8"), ("t4-0", "t4-4"))
        self.a100, self.t4 = (
            SimulatedDriver.create(each.driver, name, profile, kind=DriverKind.PYTHON)
            for each, (name, profile) in zip(self.folders, names, strict=True)
        )

    def gpu(self, *words: object) -> tuple[int, str, str]:
        return here("lab", "gpu", *words, f"--kubeconfig={self.kubeconfig}")

    def done(self, *words: object) -> str:
        code, out, says = self.gpu(*words)
        assert (code, says) == (0, "")
        return out

    def table(self, *words: object) -> list[dict[str, object]]:
        found: list[dict[str, object]] = json.loads(self.done(*words, "-o", "json"))
        return found


@pytest.fixture
def lab(tmp_path: Path) -> FolderLab:
    return FolderLab(tmp_path)


def test_gpus_are_listed_as_they_are(lab: FolderLab) -> None:
    head, *rows = lab.done("list").splitlines()
    assert head.split()[:4] == ["NODE", "GPU", "MODEL", "STATE"]
    assert len(rows) == 12
    assert [each.split()[0] for each in lab.done("list", "t4-0").splitlines()[1:]] == ["t4-0"] * 4
    assert "UUID" in lab.done("list", "-o", "wide")
    lab.t4.lose_gpu(2)
    lab.t4.hang_call(1, "*")
    found = yaml.safe_load(lab.done("list", "t4-0", "-o", "yaml"))
    assert [each["state"] for each in found] == ["Answers", "Hangs", "Lost", "Answers"]
    assert (found[2]["last_xid"], found[2]["uuid"], found[2]["model"]) == (79, lab.t4.uuids[2], "Tesla T4")


def test_a_list_with_nothing_in_it_says_of_which_nodes(lab: FolderLab) -> None:
    says = {
        "The lab has no MIG devices.": ("mig", "list"),
        "Node a100-0 has no MIG devices.": ("mig", "list", "a100-0"),
        "No processes are running on the GPUs of the lab.": ("process", "list"),
        "No processes are running on the GPUs of node t4-0.": ("process", "list", "t4-0"),
    }
    assert {text: lab.gpu(*words) for text, words in says.items()} == {text: (0, "", f"{text}\n") for text in says}
    profile = NodeProfile(description="none", driver_version="550.54.15", cuda_version="12.4", gpus=())
    SimulatedDriver.create(lab.folders[1].driver, "t4-0", profile, kind=DriverKind.PYTHON)
    assert lab.gpu("list", "t4-0") == (0, "", "Node t4-0 has no GPUs.\n")


def test_faults_are_put_in_and_taken_away(lab: FolderLab) -> None:
    assert lab.done("xid", "a100-0", 1, 94) == "gpu/1 on node/a100-0 reported Xid 94\n"
    lab.done("lose", "a100-0", lab.a100.uuids[2])
    lab.done("lose", "a100-0", 3, "--quietly")
    assert [(event.gpu, event.xid) for event in lab.a100.state.events] == [(1, 94), (2, 79)]
    assert [gpu.lost for gpu in lab.a100.state.gpus[2:5]] == [True, True, False]
    lab.done("recover", "a100-0", 2)
    assert not lab.a100.state.gpus[2].lost
    lab.done("hang", "a100-0", 4, "--call", "nvmlDeviceGetName")
    lab.done("fail", "a100-0", 4, "nvmlDeviceGetUUID", 999)
    gpu = lab.a100.state.gpus[4]
    assert (gpu.hanging, gpu.failures[0].code) == (("nvmlDeviceGetName",), 999)
    lab.done("answer", "a100-0", 4)
    assert lab.a100.state.gpus[4].hanging == lab.a100.state.gpus[4].failures == ()
    lab.done("hang", "a100-0")
    assert lab.a100.state.hangs
    assert lab.done("answer", "a100-0") == "driver of node/a100-0 answers\n"
    assert not lab.a100.state.hangs


def test_errors_and_limits_are_counted(lab: FolderLab) -> None:
    lab.done("ecc", "a100-0", 0, "--corrected", 2, "--uncorrected", 1)
    lab.done("ecc", "a100-0", 0, "--corrected", 1, "--at", "l2", "--sram-threshold")
    lab.done("remap", "a100-0", 0, "--uncorrectable", 1, "--pending", "--spares", "low")
    lab.done("remap", "a100-0", 0, "--failed")
    lab.done("nvlink", "a100-0", 0, 5, "--down")
    lab.done("nvlink", "a100-0", 0, 5, "--error", "crc-flit", "--count", 7)
    lab.done("pcie", "a100-0", 0, "--replays", 3)
    lab.done("slowdown", "a100-0", 0, "hw-thermal", "power-cap")
    lab.done("load", "a100-0", 0, "--utilization", 90, "--tensor", 40, "--celsius", 88, "--watts", 390)
    lab.done("retire", "t4-0", 0, "0x1000")
    assert "joined clique 7 of NVLink domain 0" in lab.done(
        "fabric", "a100-0", 0, "--cluster", f"{1:032x}", "--clique", 7
    )
    lab.done("fabric", "a100-0", 1)
    lab.done("fabric", "a100-0", 2, "--state", "failed")
    assert [each.fabric and each.fabric.numbers for each in lab.a100.state.gpus[:4]] == [
        (3, 0, 7, 0, 1),
        (1, 0, 0, 0, 0),
        (3, 999, 0, 0, 0),
        None,
    ]
    gpu = lab.a100.state.gpus[0]
    assert gpu.ecc[MemoryLocation.DRAM].counts[:2] == (2, 1)
    assert gpu.ecc[MemoryLocation.L2].counts[:2] == (1, 0)
    rows = gpu.remapped_rows
    assert (rows.correctable, rows.uncorrectable, rows.pending, rows.failed) == (0, 1, True, True)
    assert (gpu.banks[BankSpares.LOW], gpu.sram_threshold_exceeded, gpu.load.tensor_percent) == (1, True, 40)
    assert (gpu.nvlinks[5].active, gpu.nvlinks[5].errors) == (False, (0, 0, 7, 0, 0))
    assert gpu.pcie_replays == 3
    assert (gpu.utilization[0], gpu.celsius, gpu.watts) == (90, 88, 390)
    assert lab.t4.state.gpus[0].retired_pages[0].address == 4096
    [row] = [each for each in lab.done("list", "-o", "wide").splitlines() if lab.a100.uuids[0] in each]
    assert "hw-thermal,power-cap" in row
    assert " 11/12 " in row
    lab.done("slowdown", "a100-0", 0)
    lab.done("load", "a100-0", 0, "--follow")
    assert (lab.a100.state.gpus[0].slowdowns, lab.a100.state.gpus[0].utilization[0]) == ((), 0)


def test_processes_start_in_pods_and_stop(lab: FolderLab) -> None:
    records = lab.folders[0].runtime()
    for name, started_at in (("main", 2.0), ("setup", 1.0)):
        records.start(ContainerRecord("0a1b-uid", "team", "train", name, {}, started_at))
    words = ("--memory", "2Gi", "--sm", 70, "--cgroup", "v1", "--cgroup-driver", "cgroupfs")
    pid = json.loads(lab.done("process", "start", "a100-0", 1, "--pod", "team/train", *words, "-o", "json"))["pid"]
    text = (lab.folders[0].host_root / "proc" / str(pid) / "cgroup").read_text()
    assert text.startswith("6:memory:/kubepods/besteffort/pod0a1b-uid/")
    assert lab.done("process", "start", "a100-0", 2, "--pid", pid) == f"process/{pid} on gpu/2 on node/a100-0 started\n"
    found = lab.table("process", "list")
    assert [(each["gpu"], each["pid"], each["container"]) for each in found] == [
        (1, pid, "team/train/main"),
        (2, pid, "team/train/main"),
    ]
    assert (found[0]["memory_mib"], found[0]["sm_percent"]) == (2048, 70)
    lab.done("process", "start", "t4-0", 0, "--graphics", "--pid", 4711)
    assert "4711   -           0            0      graphics" in lab.done("process", "list", "t4-0")
    lab.done("process", "start", "t4-0", 0, "--mps", "--pid", 4712)
    assert "4712   -           0            0      mps" in lab.done("process", "list", "t4-0")
    lab.done("process", "stop", "a100-0", pid)
    assert len(lab.table("process", "list")) == 2


def test_gpus_are_cut(lab: FolderLab) -> None:
    lab.done("mig", "on", "a100-0", 1)
    uuid = json.loads(lab.done("mig", "create", "a100-0", 1, "3g.20gb", "--start", 0, "-o", "json"))["uuid"]
    lab.done("mig", "create", "a100-0", 1, "2g.10gb", "--slices", 1)
    lab.done("process", "start", "a100-0", uuid, "--memory", "1Gi")
    assert [(each["profile"], each["start"], each["processes"]) for each in lab.table("mig", "list")] == [
        ("3g.20gb", 0, 1),
        ("1c.2g.10gb", 4, 0),
    ]
    assert lab.gpu("mig", "destroy", "a100-0", uuid) == (
        FAILED,
        "",
        "purser: the GPU or MIG instance is in use by a process or another MIG instance\n",
    )
    lab.done("process", "stop", "a100-0", 10001)
    lab.done("mig", "destroy", "a100-0", uuid)
    assert lab.gpu("mig", "off", "a100-0", 1)[0] == FAILED
    lab.done("recover", "a100-0", 1)
    assert lab.gpu("mig", "list") == (0, "", "The lab has no MIG devices.\n")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("lose", "h100-0", 0), FAILED, "the lab has no node h100-0: use one of a100-0, t4-0"),
        (("lose", "t4-0", 4), FAILED, "node t4-0 has no GPU 4: must be an index from 0 to 3, or a UUID"),
        (("lose", "t4-0", "GPU-1"), FAILED, "node t4-0 has no GPU GPU-1: must be an index from 0 to 3, or a UUID"),
        (("lose", "t4-0"), MISUSED, "Missing argument"),
        (("nvlink", "t4-0", 0, 0, "--down"), FAILED, "does not have NVLink 0"),
        (("nvlink", "t4-0", 0, 0), MISUSED, "one of --up, --down and --error is required"),
        (("remap", "t4-0", 0, "--pending"), FAILED, "Tesla T4 does not support row remapping: it uses page retirement"),
        (("fabric", "t4-0", 0, "--cluster", "x"), MISUSED, "invalid UUID x: must be one such as 7c5f1a30"),
        (("retire", "t4-0", 0, "page"), MISUSED, "invalid address page: must be a number such as 0x1000"),
        (
            ("process", "start", "t4-0", 0, "--mps", "--graphics"),
            MISUSED,
            "--graphics and --mps cannot be used together",
        ),
        (("retire", "t4-0", 0, hex(1 << 64)), MISUSED, "invalid address 0x10000000000000000"),
        (("hang", "t4-0", 0, "--call", "a\nb"), MISUSED, "'a\\nb' is not an NVML call"),
        (("fail", "t4-0", 0, "\udcff", 4), MISUSED, "is not an NVML call"),
        (("hang", "t4-0", "--call", "nvmlDeviceGetTemp"), MISUSED, "did you mean nvmlDeviceGet"),
        (("ecc", "t4-0", 0), MISUSED, "one of --corrected, --uncorrected and --sram-threshold is required"),
        (("remap", "t4-0", 0), MISUSED, "is required"),
        (("load", "t4-0", 0), MISUSED, "--follow or at least one reading is required"),
        (("xid", "t4-0", 0, 2**31), MISUSED, "2147483648 is invalid: must be a whole number from 1 to 2147483647"),
        (
            ("process", "start", "t4-0", 0, "--memory", "-1"),
            MISUSED,
            "invalid value '-1' for --memory: must not be negative",
        ),
        (("ecc", "t4-0", 0, "--at", "disk"), MISUSED, "invalid value 'disk' for --at: must be one of l1, l2, dram"),
        (
            ("slowdown", "t4-0", 0, "heat"),
            MISUSED,
            "invalid value 'heat' for REASON: must be one of power-cap, sw-thermal",
        ),
        (("process", "start", "t4-0", 0, "--pod", "nobody"), FAILED, "pod default/nobody is not running on node t4-0"),
        (("process", "start", "t4-0", 0, "--container", "c"), MISUSED, "--container requires --pod"),
        (("process", "start", "t4-0", 0, "--memory", "much"), MISUSED, "--memory much: "),
        (("process", "start", "t4-0", 0, "--memory", "1Ti"), FAILED, "but the process needs 1048576 MiB"),
        (
            ("process", "start", "t4-0", 0, "--cgroup", "v3"),
            MISUSED,
            "invalid value 'v3' for --cgroup: must be one of v1, v2",
        ),
        (("process", "stop", "t4-0", 7), FAILED, "process 7 does not use a GPU of node t4-0"),
        (("mig", "on", "t4-0", 0), FAILED, "Tesla T4 does not support MIG"),
        (("mig", "create", "a100-0", 0, "1g.5gb"), FAILED, "is not in MIG mode"),
    ],
    ids=lambda value: "" if isinstance(value, int) else str(value if isinstance(value, str) else value[0]),
)
def test_an_error_has_an_exit_code(lab: FolderLab, words: tuple[object, ...], code: int, says: str) -> None:
    found, out, error = lab.gpu(*words)
    assert (found, out) == (code, "")
    assert says in " ".join(error.split())


def test_a_kubeconfig_that_is_no_labs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    code, _, says = here("lab", "gpu", "list")
    assert (code, "KUBECONFIG is not set: run the export command that purser lab prints when it starts" in says) == (
        MISUSED,
        True,
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    code, _, says = here("lab", "gpu", "list")
    assert (code, f"kubeconfig {tmp_path}/config does not belong to a running lab" in says) == (MISUSED, True)
