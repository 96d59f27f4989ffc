"""What is read of a node for its labels."""

import os

import pytest
from tests.unit.core.features.test_upstream_labels import vgpu_config

from purser.agent.features.collecting import collect_facts
from purser.agent.nvml.driver import DriverInfo, Gpu, MigMode
from purser.core.device.gpus import FabricIds, NodeGpu
from purser.core.features import LabelFacts, labels_of

INFO = DriverInfo(version="550.54.14", cuda_version="12.4")
T4 = Gpu(index=0, name="Tesla T4", memory_mib=15360, pci_bus_id="0000:07:00.0", compute_capability="7.5")


def device(root, address, vendor="0x10de", **attributes):
    folder = root / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, content in {"vendor": f"{vendor}\n", **attributes}.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def test_driver_and_sysfs_together(tmp_path):
    device(tmp_path, "0000:07:00.0", config=vgpu_config(), **{"class": "0x030200\n"})
    device(tmp_path, "0000:00:1f.0", vendor="0x8086", config=b"other")
    (tmp_path / "class/dmi/id").mkdir(parents=True)
    (tmp_path / "class/dmi/id/product_name").write_text("PowerEdge R750xa\n")
    assert collect_facts([T4], INFO, tmp_path, None, 7) == LabelFacts(
        gpus=(NodeGpu(model="Tesla T4", memory_mib=15360, compute_capability=(7, 5), pci_class=0x030200),),
        driver_version="550.54.14",
        cuda_version="12.4",
        machine="PowerEdge R750xa",
        pci_configs=(vgpu_config(),),
        timestamp=7,
    )


def test_what_cannot_be_read_is_not_known(tmp_path):
    folder = device(tmp_path, "0000:07:00.0", **{"class": "display\n"})
    os.mkfifo(folder / "config")
    facts = collect_facts([T4], DriverInfo(), tmp_path, None, None)
    assert (facts.machine, facts.driver_version, facts.pci_configs, facts.gpus[0].pci_class) == ("", "", (b"",), None)
    assert collect_facts([T4], INFO, tmp_path / "none", None, None).pci_configs == ()


def test_another_file_names_the_machine(tmp_path):
    (tmp_path / "type").write_text("p4d.24xlarge\n")
    assert collect_facts([], INFO, tmp_path, tmp_path / "type", None).machine == "p4d.24xlarge"


@pytest.mark.parametrize("text", ["", "0.0", "8", "-1.-1", "8.x"])
def test_a_compute_capability_without_meaning(tmp_path, text):
    gpu = Gpu(index=0, name="Tesla T4", compute_capability=text)
    assert collect_facts([gpu], INFO, tmp_path, None, None).gpus[0].compute_capability is None


def test_gpus_that_were_never_identified_do_not_count(tmp_path):
    assert collect_facts([Gpu(index=0), T4], INFO, tmp_path, None, None).gpus[0].model == "Tesla T4"


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (None, (False, False)),
        (MigMode(enabled=False, pending=True), (True, False)),
        (MigMode(enabled=True, pending=True), (True, True)),
    ],
)
def test_what_the_driver_reports_of_mig(tmp_path, mode, told):
    [gpu] = collect_facts([Gpu(index=0, name="NVIDIA H100", mig=mode)], INFO, tmp_path, None, None).gpus
    assert (gpu.can_mig, gpu.mig_enabled) == told


def test_the_nvlink_domain_that_the_driver_reports_is_a_label(tmp_path):
    cluster = "7c5f1a30-4b0e-4f8a-9d52-6e1b0c8a2f47"
    tray = [Gpu(index=index, name="NVIDIA GB200", fabric=FabricIds(cluster, 32766)) for index in range(4)]
    labels, _ = labels_of(collect_facts(tray, INFO, tmp_path, None, None))
    assert labels["nvidia.com/gpu.clique"] == f"{cluster}.32766"
