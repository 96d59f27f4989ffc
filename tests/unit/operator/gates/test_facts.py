"""What is read off a node."""

from typing import Any

import pytest

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.facts import NodeFacts, PciGpu
from purser.operator.gates.facts import (
    contradicts_nfd,
    has_gpu,
    is_mig_capable,
    is_nfd_gpu_label,
    os_of,
    product_of,
    runtime_of,
    user_override,
)
from purser.operator.model import NodeView
from purser.operator.order import Operand

GPU = encode(NodeFacts(gpus=(PciGpu("20b0"),)))
NO_GPU = encode(NodeFacts())
NFD = {"feature.node.kubernetes.io/kernel-version.full": "6.8"}
NFD_GPU = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
HALF_NFD = {"feature.node.kubernetes.io/x": "1"}
PRESENT = {"nvidia.com/gpu.present": "true"}


def node(labels: dict[str, str] | None = None, facts: str = "", **more: Any) -> NodeView:
    annotations = {NODE_FACTS_ANNOTATION: facts} if facts else {}
    return NodeView(name="n", labels=labels or {}, annotations=annotations | more.pop("annotations", {}), **more)


def containerd(version: str, kubelet: str = "v1.31.1", labels: dict[str, str] | None = None) -> NodeView:
    return node(labels, runtime=f"containerd://{version}", kubelet_version=kubelet)


@pytest.mark.parametrize(
    ("view", "state"),
    [
        pytest.param(node(), "never", id="no word of anybody"),
        pytest.param(node(NFD_GPU), "present", id="node-feature-discovery sees a GPU"),
        pytest.param(node({**NFD_GPU, "feature.node.kubernetes.io/pci-0302_10de.present": "no"}), "never", id="or not"),
        pytest.param(node(facts=GPU), "present", id="Purser's discovery sees one"),
        pytest.param(node(facts=NO_GPU), "never", id="or none"),
        pytest.param(node(facts="{"), "never", id="facts that cannot be read are none"),
        pytest.param(node(PRESENT), "missing", id="it had one and nobody looks"),
        pytest.param(node({**PRESENT, **NFD}, NO_GPU), "missing", id="node-feature-discovery is there and sees none"),
        pytest.param(node(PRESENT, NO_GPU), "gone", id="Purser's discovery looked and saw none"),
        pytest.param(node({"nvidia.com/gpu.present": "false"}), "gone", id="it was gone before"),
        pytest.param(node({"nvidia.com/gpu.present": "false"}, GPU), "present", id="it came back"),
        pytest.param(node({**PRESENT, **NFD}, GPU), "missing", id="what Purser saw is old where another one looks"),
        pytest.param(node(NFD, GPU), "never", id="and makes no GPU node"),
        pytest.param(node({**NFD, **NFD_GPU}, GPU), "present", id="both see one"),
        pytest.param(node({**NFD, **NFD_GPU}, NO_GPU), "present", id="the other one sees it"),
        pytest.param(node({**PRESENT, **HALF_NFD}, GPU), "present", id="a label of somebody is no discovery"),
        pytest.param(node({**PRESENT, **HALF_NFD}, NO_GPU), "gone", id="nor where Purser's saw none"),
    ],
)
def test_whether_a_node_has_gpus(view: NodeView, state: str) -> None:
    assert has_gpu(view, 1000.0, 600).state == state


@pytest.mark.parametrize(
    ("fields", "is_gpu"),
    [
        pytest.param("10de", True, id="vendor"),
        pytest.param("0302_10de", True, id="class and vendor"),
        pytest.param("0300_10de", True, id="a card that can show pictures"),
        pytest.param("0302_10de_2330", True, id="class, vendor and device"),
        pytest.param("10de_2330", True, id="vendor and device"),
        pytest.param("0302_10de_2330_10de_16c1", True, id="with the subsystem"),
        pytest.param("0680_10de_22a3", False, id="an NVSwitch"),
        pytest.param("0680_10de_22a3_10de_1796", False, id="an NVSwitch with its subsystem"),
        pytest.param("0200_15b3_1021_10de_0001", False, id="somebody else's device on a board of NVIDIA's"),
        pytest.param("0302_1002", False, id="somebody else's GPU"),
        pytest.param("110de", False, id="another number"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_labels_of_gpus_have_the_fields_that_an_administrator_chose(fields: str, is_gpu: bool) -> None:
    label = f"feature.node.kubernetes.io/pci-{fields}.present"
    assert is_nfd_gpu_label(label) is is_gpu
    assert (has_gpu(node({label: "true"}), 1000.0, 600).state == "present") is is_gpu
    assert has_gpu(node({label: "false"}), 1000.0, 600).state == "never"
    assert not is_nfd_gpu_label(label.removesuffix("present") + "sriov.capable")


@pytest.mark.parametrize(
    ("labels", "facts", "contradicted"),
    [
        pytest.param({}, GPU, False, id="Purser's discovery is at work"),
        pytest.param({}, NO_GPU, False, id="and sees none"),
        pytest.param({**NFD, **NFD_GPU}, GPU, False, id="both are, and agree"),
        pytest.param({**NFD, **NFD_GPU}, NO_GPU, True, id="the other one sees a GPU that was not there"),
        pytest.param(NFD_GPU, NO_GPU, True, id="also one that tells nothing but GPUs"),
        pytest.param(NFD, GPU, True, id="the other one sees none any more"),
        pytest.param(HALF_NFD, GPU, False, id="somebody's label says nothing"),
        pytest.param(NFD, NO_GPU, False, id="none sees one"),
        pytest.param(NFD, "", False, id="Purser's never looked"),
    ],
)
def test_what_purser_saw_may_be_contradicted(labels: dict[str, str], facts: str, contradicted: bool) -> None:
    assert contradicts_nfd(node(labels, facts)) is contradicted


@pytest.mark.parametrize(
    ("since", "state", "gone_at"),
    [
        pytest.param("1970-01-01T00:10:00Z", "missing", 1200.0, id="for a while"),
        pytest.param("1970-01-01T00:06:40Z", "gone", None, id="for long enough"),
        pytest.param("yesterday", "missing", 1600.0, id="since a time that cannot be read: since now"),
        pytest.param("1970-01-01T00:10:00", "missing", 1200.0, id="without a zone: UTC"),
    ],
)
def test_how_long_a_gpu_may_be_missing(since: str, state: str, gone_at: float | None) -> None:
    view = node(PRESENT, annotations={"purser.dev/gpu-missing-since": since})
    presence = has_gpu(view, 1000.0, 600)
    assert (presence.state, presence.gone_at) == (state, gone_at)


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        ("Ubuntu 22.04.4 LTS", ("ubuntu", "22.04")),
        ("Red Hat Enterprise Linux 9.4 (Plow)", ("rhel", "9")),
        ("Red Hat Enterprise Linux CoreOS 417.94 (Plow)", ("rhel", "417")),
        ("Rocky Linux 9.3 (Blue Onyx)", ("rocky", "9")),
        ("Oracle Linux Server 8.9", ("ol", "8")),
        ("CentOS Linux 7 (Core)", ("centos", "7")),
        ("Debian GNU/Linux 12 (bookworm)", ("debian", "12")),
        ("SUSE Linux Enterprise Server 15 SP5", ("sles", "15.5")),
        ("Amazon Linux 2023.6.20241212", ("amzn", "2023")),
        ("Plan 9", None),
        ("", None),
    ],
)
def test_an_operating_system_as_kubelet_reports_it(image: str, wanted: tuple[str, str] | None) -> None:
    assert os_of(node(os_image=image)) == wanted


def test_discoveries_know_the_operating_system_better() -> None:
    facts = encode(NodeFacts(os_id="ubuntu", os_version="24.04"))
    labels = {
        "feature.node.kubernetes.io/system-os_release.ID": "rhel",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "9.4",
    }
    assert os_of(node(facts=facts, os_image="Plan 9")) == ("ubuntu", "24.04")
    assert os_of(node(labels, facts)) == ("rhel", "9")


@pytest.mark.parametrize(
    ("view", "label"),
    [
        pytest.param(containerd("1.7.22", "v1.31.1"), "containerd", id="plain"),
        pytest.param(containerd("1.7.3-k3s1", "v1.30.1+k3s1"), "containerd-k3s-v2", id="k3s with an old containerd"),
        pytest.param(containerd("1.6.9-k3s1", "v1.24.1+rke2r1"), "containerd-rke2-v2-nocdi", id="an older one"),
        pytest.param(containerd("2.0.0"), "containerd", id="others keep their files wherever the version"),
        pytest.param(containerd("2.0.0", "v1.32.0+rke2r1"), "containerd-rke2", id="rke2"),
        pytest.param(containerd("2.1.5-k3s1", "v1.34.1+k3s1"), "containerd-k3s", id="k3s"),
        pytest.param(containerd("1.7.1", "v1.31.1+k0s"), "containerd-k0s", id="k0s"),
        pytest.param(containerd("1.7.1", labels={"microk8s.io/cluster": "true"}), "containerd-microk8s", id="snap"),
        pytest.param(node(facts=encode(NodeFacts(distribution="k3s"))), "containerd-k3s", id="by its files"),
        pytest.param(containerd("1.6.36"), "containerd-nocdi", id="too old for CDI"),
        pytest.param(node(runtime="cri-o://1.31.0"), "crio", id="CRI-O"),
        pytest.param(node(runtime="cri-o://1.22.9"), "crio-nocdi", id="an old CRI-O"),
        pytest.param(node(runtime="docker://20.10.7"), "docker", id="Docker"),
        pytest.param(node(), "containerd", id="not told"),
    ],
)
def test_runtime_and_distribution_are_the_nodes_own(view: NodeView, label: str) -> None:
    assert runtime_of(view).label == label


def cards(*devices: str) -> str:
    return encode(NodeFacts(gpus=tuple(PciGpu(*each.split(":")) for each in devices)))


@pytest.mark.parametrize(
    ("labels", "facts", "capable"),
    [
        ({}, "", False),
        ({"nvidia.com/mig.capable": "true"}, "", True),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, "", True),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "", True),
        ({"nvidia.com/gpu.product": "NVIDIA-GH200-480GB"}, "", True),
        ({"nvidia.com/gpu.product": "NVIDIA-A30-24C", "nvidia.com/mig.capable": "false"}, "", False),
        ({"nvidia.com/gpu.product": "Tesla-T4"}, "", False),
        ({"nvidia.com/gpu.product": "NVIDIA-RTX-A3000"}, "", False),
        ({"nvidia.com/gpu.deploy.mig-manager": "true"}, "", True),
        ({"nvidia.com/gpu.deploy.mig-manager": "paused-for-driver-upgrade"}, "", True),
        ({"nvidia.com/gpu.deploy.mig-manager": "false"}, "", False),
        ({"nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/gpu.product": "Tesla-T4"}, "", False),
        ({}, cards("2330"), True),
        ({}, cards("1eb8", "20b7"), True),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, cards("1eb8"), False),
        ({"nvidia.com/mig.capable": "false"}, cards("2330"), False),
        ({"nvidia.com/mig.capable": "true"}, cards("1eb8"), True),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, cards("ffff"), True),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, cards("1eb8", "ffff"), True),
        ({"nvidia.com/gpu.deploy.mig-manager": "true"}, cards("1eb8"), False),
        ({"nvidia.com/gpu.deploy.mig-manager": "true"}, cards("ffff"), True),
        ({}, NO_GPU, False),
    ],
)
def test_whether_gpus_can_mig(labels: dict[str, str], facts: str, capable: bool) -> None:
    assert is_mig_capable(node(labels, facts)) is capable


@pytest.mark.parametrize(
    ("label", "facts", "product"),
    [
        pytest.param("", "", "", id="nobody said"),
        pytest.param("", cards("2330"), "NVIDIA-H100-80GB-HBM3", id="by its PCI id, before it has a driver"),
        pytest.param("", cards("25b6:157e"), "NVIDIA-A2", id="and by its subsystem"),
        pytest.param("", cards("1eb8", "2330"), "Tesla-T4", id="several models: of the first card"),
        pytest.param("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", cards("2330"), "NVIDIA-H100-80GB-HBM3", id="PCI first"),
        pytest.param("Tesla-T4-SHARED", "", "Tesla-T4", id="without the word on sharing"),
        pytest.param("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "", "NVIDIA-A100-SXM4-40GB", id="without the MIG profile"),
        pytest.param("NVIDIA-A30-MIG-1g.6gb.me-SHARED", "", "NVIDIA-A30", id="without both"),
        pytest.param("NVIDIA-A30-MIG-INVALID", "", "NVIDIA-A30", id="without a wrong MIG layout"),
        pytest.param("Tesla-K80", cards("102d"), "Tesla-K80", id="a card that is not in the table"),
        pytest.param("", cards("102d"), "", id="and nobody else knows"),
        pytest.param("Tesla-T4", NO_GPU, "Tesla-T4", id="no card was seen"),
    ],
)
def test_the_model_of_a_nodes_gpus(label: str, facts: str, product: str) -> None:
    assert product_of(node({"nvidia.com/gpu.product": label} if label else {}, facts)) == product


@pytest.mark.parametrize("value", ["true", "", "paused-for-driver-upgrade", "paused-for-mig-change"])
def test_what_the_operator_may_write_over(value: str) -> None:
    assert user_override(node({Operand.GFD.deploy_label: value}), Operand.GFD) == ""


@pytest.mark.parametrize("value", ["false", "no", "somebody"])
def test_what_is_of_people(value: str) -> None:
    assert user_override(node({Operand.GFD.deploy_label: value}), Operand.GFD) == value
