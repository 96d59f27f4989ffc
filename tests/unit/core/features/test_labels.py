"""What Purser says beyond NVIDIA's GPU feature discovery, or where that says nothing that could be compared."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.core.device.gpus import FabricIds, NodeGpu, NodeMigDevice
from purser.core.features import (
    LabelFacts,
    Replication,
    changes,
    is_feature_label,
    labels_of,
    sharing_of,
)
from purser.core.features.labels import clique_labels, machine_labels, version_labels
from purser.core.features.resources import family, model_labels, resource_labels
from purser.core.features.values import LabelTrouble, is_label, label_value
from purser.core.features.vgpu import VgpuHost, vgpu_host
from purser.core.sharing import MigStrategy, SharingStrategy, plugin_file

L4, T4 = (NodeGpu(model=model, memory_mib=1) for model in ("NVIDIA L4", "Tesla T4"))
CLUSTER = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31"


def joined(clique: int, cluster: str = CLUSTER) -> NodeGpu:
    return NodeGpu(model="NVIDIA GB200", fabric=FabricIds(cluster, clique))


@pytest.mark.parametrize(
    ("gpus", "product", "count"),
    [
        pytest.param([L4, T4, T4], "Tesla-T4", "2", id="the model of most GPUs"),
        pytest.param([T4, L4, L4], "NVIDIA-L4", "2", id="in whatever order"),
        pytest.param([T4, L4], "NVIDIA-L4", "1", id="of as many, the first by name"),
    ],
)
def test_one_model_of_several_is_the_product(gpus: list[NodeGpu], product: str, count: str) -> None:
    labels = resource_labels(LabelFacts(gpus=tuple(gpus)))
    assert (labels["nvidia.com/gpu.product"], labels["nvidia.com/gpu.count"]) == (product, count)


def test_every_model_of_a_node_is_listed() -> None:
    whole = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
    node = LabelFacts(gpus=(L4, T4, T4, NodeGpu(model=whole), NodeGpu(model="")))
    assert model_labels(node) == {
        "gpu.purser.dev/NVIDIA-L4": "1",
        "gpu.purser.dev/Tesla-T4": "2",
        "gpu.purser.dev/NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition": "1",
    }


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        *(((3, 5), "kepler"), ((4, 0), "undefined"), ((5, 2), "maxwell"), ((6, 1), "pascal"), ((7, 2), "volta")),
        *(((7, 5), "turing"), ((8, 6), "ampere"), ((8, 9), "ada-lovelace"), ((9, 0), "hopper"), ((10, 0), "blackwell")),
        *(((11, 0), "undefined"), ((12, 1), "blackwell"), ((13, 0), "rubin"), ((14, 0), "undefined")),
        *(((1, 3), "tesla"), ((2, 1), "fermi"), ((0, 0), "undefined"), ((-1, -1), "undefined")),
    ],
)
def test_family_by_compute_capability(capability: tuple[int, int], name: str) -> None:
    assert family(capability) == name


@pytest.mark.parametrize(
    ("gpus", "clique"),
    [
        ([joined(1), joined(1)], f"{CLUSTER}.1"),
        ([L4, joined(32766)], f"{CLUSTER}.32766"),
        ([joined(1), joined(2)], None),
        ([joined(1), joined(1, CLUSTER.replace("7", "8"))], None),
        ([L4], None),
    ],
)
def test_the_one_clique_of_a_node(gpus: list[NodeGpu], clique: str | None) -> None:
    assert clique_labels(LabelFacts(gpus=tuple(gpus))) == ({} if clique is None else {"nvidia.com/gpu.clique": clique})


@pytest.mark.parametrize(
    ("driver", "parts"),
    [("550.54.14", ("550", "54", "14")), ("535.86", ("535", "86", "")), ("455.06", ("455", "06", ""))],
)
def test_the_parts_of_a_driver_version(driver: str, parts: tuple[str, ...]) -> None:
    labels = version_labels(LabelFacts(driver_version=driver, cuda_version="12.4"))
    names = ("major", "minor", "revision")
    assert tuple(labels[f"nvidia.com/cuda.driver-version.{name}"] for name in names) == parts
    assert tuple(labels[f"nvidia.com/cuda.driver.{name}"] for name in ("major", "minor", "rev")) == parts


@pytest.mark.parametrize(("driver", "cuda"), [("550", "12.4"), ("1.2.3.4", "12.4"), ("", "12.4"), ("550.54", "")])
def test_an_unknown_version_costs_no_other_label(driver: str, cuda: str) -> None:
    labels, troubles = labels_of(LabelFacts(gpus=(L4,), driver_version=driver, cuda_version=cuda))
    assert len(troubles) == 1
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-L4"
    assert not [key for key in labels if "cuda" in key]


@pytest.mark.parametrize(
    ("machine", "value"),
    [
        ("To Be Filled By O.E.M.", "To-Be-Filled-By-O.E.M"),
        ("  PowerEdge R750xa ", "PowerEdge-R750xa"),
        ("", "unknown"),
        ("(/)", "unknown"),
        ("x" * 80, "x" * 63),
    ],
)
def test_a_machine_is_reported_as_kubernetes_takes_it(machine: str, value: str) -> None:
    assert machine_labels(LabelFacts(machine=machine)) == {"nvidia.com/gpu.machine": value}


def test_what_a_long_name_ends_with_is_kept() -> None:
    assert label_value("x" * 62 + "y", "-SHARED") == "x" * 56 + "-SHARED"
    assert label_value("(/)", "-SHARED") == "SHARED"


def test_profiles_with_extensions_are_named_as_resources_are() -> None:
    migs = (NodeMigDevice(profile="1g.10gb+me", memory_mib=9728, gi_slices=1, ci_slices=1),)
    gpu = NodeGpu(model="NVIDIA H100", can_mig=True, mig_enabled=True, migs=migs)
    labels = resource_labels(LabelFacts(gpus=(gpu,), mig_strategy=MigStrategy.MIXED))
    assert labels["nvidia.com/mig-1g.10gb.me.product"] == "NVIDIA-H100-MIG-1g.10gb.me"


def test_a_node_without_gpus_has_no_labels_of_gpus() -> None:
    labels, troubles = labels_of(LabelFacts(driver_version="", timestamp=7))
    assert labels == {"nvidia.com/gfd.timestamp": "7", "nvidia.com/vgpu.present": "false"}
    assert troubles == ()


ENTRY = {"name": "nvidia.com/gpu", "replicas": 4}


@pytest.mark.parametrize(
    ("way", "said", "told"),
    [
        ("timeSlicing", {"resources": [ENTRY]}, {"nvidia.com/gpu": Replication(4)}),
        ("mps", {"resources": [ENTRY], "renameByDefault": True}, {"nvidia.com/gpu": Replication(4, is_renamed=True)}),
        (
            "timeSlicing",
            {"resources": [{"name": "mig-1g.5gb", "replicas": 2, "rename": "small", "devices": 1}, ENTRY]},
            {"nvidia.com/mig-1g.5gb": Replication(2, is_renamed=True), "nvidia.com/gpu": Replication(4)},
        ),
        ("timeSlicing", {"resources": [{**ENTRY, "devices": [0]}, ENTRY | {"replicas": 2, "devices": [1]}]}, None),
    ],
)
def test_sharing_by_the_device_plugins_file(
    way: str, said: dict[str, Any], told: dict[str, Replication] | None
) -> None:
    file, *_ = plugin_file({"version": "v1", "sharing": {way: said}})
    sharing = sharing_of(file)
    assert sharing.strategy is (SharingStrategy.MPS if way == "mps" else SharingStrategy.TIME_SLICING)
    assert sharing.resources == (told or {"nvidia.com/gpu": Replication(4)})


def test_a_file_that_shares_nothing() -> None:
    file, *_ = plugin_file({"version": "v1"})
    assert sharing_of(file).strategy is SharingStrategy.NONE


STAMP = "nvidia.com/gfd.timestamp"


@pytest.mark.parametrize(
    ("wanted", "there", "found"),
    [
        ({"a": "1"}, {"a": "1"}, {}),
        ({"a": "1", "b": ""}, {"a": "2", "c": ""}, {"a": "1", "b": "", "c": None}),
        ({"a": "1", STAMP: "2"}, {"a": "1", STAMP: "1"}, {}),
        ({"a": "1", STAMP: "2"}, {"a": "2", STAMP: "1"}, {"a": "1", STAMP: "2"}),
        ({STAMP: "2"}, {}, {STAMP: "2"}),
        ({}, {STAMP: "1"}, {STAMP: None}),
    ],
)
def test_what_makes_labels_those_that_are_wanted(
    wanted: dict[str, str], there: dict[str, str], found: dict[str, str | None]
) -> None:
    assert changes(wanted, there) == found


def test_other_parts_labels_are_not_feature_discoverys() -> None:
    others = ("gpu.present", "gpu.deploy.driver", "mig.config", "mig.config.state", "gpu.workload.config")
    assert not [name for name in others if is_feature_label(f"nvidia.com/{name}")]
    assert is_feature_label("nvidia.com/mig-1g.5gb.count")


# --- vGPUs


def config(*capabilities: bytes, has_list: bool = True) -> bytes:
    """A configuration space with these capabilities, each of which names its own successor."""
    space = bytearray(256)
    space[0x06], space[0x34] = 0x10 if has_list else 0, 0x40
    content = b"".join(capabilities)
    space[0x40 : 0x40 + len(content)] = content
    return bytes(space)


HOST = b"\x00\x16" + b"550.54.16".ljust(10, b"\0") + b"r550_00".ljust(10, b"\0")
VGPU = b"\x09\x00\x1bVF" + HOST


@pytest.mark.parametrize(
    ("space", "host"),
    [
        pytest.param(config(VGPU), VgpuHost("550.54.16", "r550_00"), id="a vGPU"),
        pytest.param(config(b"\x05\x44\x00\x00", VGPU), VgpuHost("550.54.16", "r550_00"), id="behind another"),
        pytest.param(
            config(b"\x09\x00\x1eVF\x01\x03\x00" + HOST), VgpuHost("550.54.16", "r550_00"), id="behind another record"
        ),
        pytest.param(config(VGPU, has_list=False), None, id="no capabilities"),
        pytest.param(config(b"\x09\x00\x14" + bytes(17)), None, id="passed through whole"),
        pytest.param(config(b"\x05\x40"), None, id="a loop"),
        pytest.param(config(b"\xff\x44\x00\x00", VGPU), None, id="a broken chain"),
    ],
)
def test_the_host_of_a_vgpu(space: bytes, host: VgpuHost | None) -> None:
    assert vgpu_host(space) == host


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(b"", id="not readable"),
        pytest.param(config(VGPU)[:64], id="for others than root"),
        pytest.param(config(b"\x09\x00\x07VF\x01\x00"), id="records without end"),
        pytest.param(config(b"\x09\x00\x10" + VGPU[3:]), id="cut off"),
    ],
)
def test_a_configuration_without_an_answer_is_trouble(space: bytes) -> None:
    with pytest.raises(LabelTrouble):
        vgpu_host(space)


# --- whatever drivers and machines say

words = st.text("aZ09-_. +/(é", max_size=80)
gpus = st.builds(
    NodeGpu,
    model=words,
    mig_enabled=st.booleans(),
    migs=st.lists(
        st.builds(
            NodeMigDevice,
            profile=words,
            memory_mib=st.just(1),
            gi_slices=st.just(1),
            ci_slices=st.just(1),
        ),
        max_size=2,
    ).map(tuple),
)
nodes = st.builds(
    LabelFacts,
    gpus=st.lists(gpus, max_size=3).map(tuple),
    driver_version=st.text("1.a-", max_size=70),
    cuda_version=st.text("1.a-", max_size=70),
    machine=words,
    mig_strategy=st.sampled_from(MigStrategy),
    pci_configs=st.lists(st.binary(max_size=300), max_size=1).map(tuple),
)


@examples(300)
@given(nodes)
def test_kubernetes_takes_every_label(node: LabelFacts) -> None:
    labels, _ = labels_of(node)
    assert [key for key in labels if not is_feature_label(key)] == []
    assert [(key, value) for key, value in labels.items() if not is_label(key, value)] == []
