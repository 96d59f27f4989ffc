"""What is read off a node."""

from typing import Any

import pytest

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.core.node_facts import NodeFacts, PciGpu, encode
from purser.operator.kernel.facts import has_gpu, is_mig_capable, os_of, runtime_of, users_word
from purser.operator.model import NodeView
from purser.operator.order import Operand

GPU = encode(NodeFacts(gpus=(PciGpu("20b0"),)))
NO_GPU = encode(NodeFacts())
NFD = {"feature.node.kubernetes.io/kernel-version.full": "6.8"}
NFD_GPU = {"feature.node.kubernetes.io/pci-0302_10de.present": "true"}
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
    ],
)
def test_whether_a_node_has_gpus(view: NodeView, state: str) -> None:
    assert has_gpu(view, 1000.0, 600).state == state


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
        pytest.param(containerd("1.7.3-k3s1", "v1.30.1+k3s1"), "containerd-k3s", id="k3s"),
        pytest.param(containerd("2.0.0", "v1.32.0+rke2r1"), "containerd-rke2", id="rke2"),
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


@pytest.mark.parametrize(
    ("labels", "capable"),
    [
        ({}, False),
        ({"nvidia.com/mig.capable": "true"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-GH200-480GB"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-A30-24C", "nvidia.com/mig.capable": "false"}, False),
        ({"nvidia.com/gpu.product": "Tesla-T4"}, False),
        ({"nvidia.com/gpu.product": "NVIDIA-RTX-A3000"}, False),
        ({"nvidia.com/gpu.deploy.mig-manager": "true"}, True),
        ({"nvidia.com/gpu.deploy.mig-manager": "paused-for-driver-upgrade"}, True),
        ({"nvidia.com/gpu.deploy.mig-manager": "false"}, False),
        ({"nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/gpu.product": "Tesla-T4"}, False),
    ],
)
def test_whether_gpus_can_mig(labels: dict[str, str], capable: bool) -> None:
    assert is_mig_capable(node(labels)) is capable


@pytest.mark.parametrize("value", ["true", "", "paused-for-driver-upgrade", "paused-for-mig-change"])
def test_what_the_operator_may_write_over(value: str) -> None:
    assert users_word(node({Operand.GFD.deploy_label: value}), Operand.GFD) == ""


@pytest.mark.parametrize("value", ["false", "no", "somebody"])
def test_what_is_of_people(value: str) -> None:
    assert users_word(node({Operand.GFD.deploy_label: value}), Operand.GFD) == value
