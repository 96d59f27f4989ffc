"""Purser's operator beside the real node-feature-discovery: what that sees of a node is what the operator goes by."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from purser.core.names import GPU_PRESENT_LABEL
from purser.lab.controlplane.process import Process
from purser.lab.driver.node import SimulatedDriver
from purser.operator.manifests.discovery import GFD_ACCOUNT
from purser.operator.names import GPU_PRODUCT_LABEL, NFD_KERNEL_LABEL, NFD_PREFIX

from .kubernetes import RealCluster
from .neighbours import ACCOUNTS, manifests, program, wait_established
from .operator_stack import NAMESPACE, Stack
from .purser_processes import CHART, PURSER, UNBUFFERED

NFD_NAMESPACE = "node-feature-discovery"
PCI = f"{NFD_PREFIX}pci-0302_10de.present"
"""As node-feature-discovery names NVIDIA's 3D controllers where nobody configured it."""

OS_RELEASE = 'ID=ubuntu\nVERSION_ID="22.04"\n'
"""Another system than kubelet tells of."""

FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"
_OWN_ETC = f'mount -t tmpfs etc /etc; mkdir -p {FEATURES}; mount --bind "$0" {FEATURES}; exec "$@"'
"""The worker has this folder from nobody, and the machine must not have one: a folder, and what to start."""

SPEC = {
    "discovery": {"goneAfterSeconds": 1},
    "toolkit": {"enabled": False},
    "devicePlugin": {"enabled": False},
    "dcgmExporter": {"enabled": False},
    "migManager": {"enabled": False},
    "validator": {"enabled": False},
}
"""A driver, whose image is chosen by kernel and operating system, and GPU feature discovery."""


class NodeFeatureDiscovery:
    """Master and worker of the real node; what the worker sees is this machine with another PCI bus and system."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self.cluster = cluster
        self.driver = SimulatedDriver.create(folder / "driver", cluster.node_name, "t4-4")
        self._folder = folder
        self.feature_files = folder / "features"
        """Is the worker's features.d."""
        self.feature_files.mkdir()
        self._programs = {name: program(cluster.binaries, name) for name in ("nfd-master", "nfd-worker")}

    @contextmanager
    def running(self) -> Iterator["NodeFeatureDiscovery"]:
        kinds = ("Namespace", "CustomResourceDefinition", *ACCOUNTS)
        installed = manifests(self.cluster, "nfd", "deployment/overlays/default", kinds)
        (self._folder / "host/etc").mkdir(parents=True)
        (self._folder / "host/etc/os-release").write_text(OS_RELEASE)
        (self._folder / "host/sys").symlink_to(self.driver.sysfs_root)
        with ExitStack() as stack:
            stack.callback(self._uninstall, installed)
            self.cluster.create(*installed)
            # The worker ends where it cannot write what it found.
            wait_established(self.cluster, "nodefeatures.nfd.k8s-sigs.io")
            for name, options in {
                "nfd-master": ["--enable-leader-election=false"],
                "nfd-worker": ['--options={"core": {"sleepInterval": "1s"}}'],
            }.items():
                process = self._process(name, options)
                process.start()
                stack.callback(process.stop)
            yield self

    def _process(self, name: str, options: list[str]) -> Process:
        account = self.cluster.service_account_kubeconfig(NFD_NAMESPACE, name)
        ports = ["--metrics=0", "--grpc-health=0"]
        seen = ["unshare", "--mount", "sh", "-ec", _OWN_ETC, str(self.feature_files)] if name == "nfd-worker" else []
        argv = [
            "env",
            f"--chdir={self._folder}",
            *seen,
            self._programs[name],
            f"--kubeconfig={account}",
            *ports,
            *options,
        ]
        where = {"NODE_NAME": self.cluster.node_name, "KUBERNETES_NAMESPACE": NFD_NAMESPACE}
        return Process(name, argv, self.cluster.logs, env=where)

    def _uninstall(self, installed: list[dict[str, Any]]) -> None:
        everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": installed})
        self.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=everything)
        labels = [key for key in self.labels() if key.startswith(NFD_PREFIX)]
        self.cluster.kubectl("label", "node", self.cluster.node_name, *(f"{key}-" for key in labels))

    def labels(self) -> dict[str, str]:
        """Of the real node."""
        return dict(self.cluster.get("node", self.cluster.node_name)["metadata"]["labels"])

    def wait_label(self, key: str, value: str | None) -> None:
        """Until the node has it; None: until it has it no more."""
        self.cluster.wait_until(f"{key} is {value}", lambda: self.labels().get(key) == value)


@pytest.fixture(scope="module")
def nfd(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeFeatureDiscovery]:
    with NodeFeatureDiscovery(real_cluster, tmp_path_factory.mktemp("nfd")).running() as running:
        yield running


@pytest.fixture(scope="module")
def stack(nfd: NodeFeatureDiscovery) -> Iterator[Stack]:
    with Stack(nfd.cluster).running() as running:
        running.create_policy("policy", SPEC)
        yield running


def test_what_the_worker_sees_decides_which_driver_the_node_gets(nfd: NodeFeatureDiscovery, stack: Stack) -> None:
    nfd.wait_label(PCI, "true")
    nfd.wait_label(GPU_PRESENT_LABEL, "true")
    stack.wait_settled()
    assert nfd.labels()[NFD_KERNEL_LABEL] == os.uname().release
    driver = stack.daemon_set("driver")["spec"]["template"]["spec"]["containers"][0]
    assert driver["image"].endswith("-ubuntu22.04")


def test_what_gpu_feature_discovery_may_write_becomes_labels(nfd: NodeFeatureDiscovery, stack: Stack) -> None:
    """Its image is not here: the object that it writes is written with the account that the operator gave it."""
    [main] = stack.daemon_set("gpu-feature-discovery")["spec"]["template"]["spec"]["containers"]
    assert {"name": "USE_NODE_FEATURE_API", "value": "true"} in main["env"]
    cluster = nfd.cluster
    account = cluster.service_account_kubeconfig(NAMESPACE, GFD_ACCOUNT)
    feature = {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": f"nvidia-features-for-{cluster.node_name}",
            "namespace": NAMESPACE,
            "labels": {"nfd.node.kubernetes.io/node-name": cluster.node_name},
        },
        "spec": {"features": {}, "labels": {GPU_PRODUCT_LABEL: "Tesla-T4"}},
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(feature), kubeconfig=account)
    nfd.wait_label(GPU_PRODUCT_LABEL, "Tesla-T4")
    cluster.delete("nodefeature", f"-n{NAMESPACE}", feature["metadata"]["name"])
    nfd.wait_label(GPU_PRODUCT_LABEL, None)


@pytest.mark.parametrize("outlet", ["node-feature", "file"])
def test_labels_of_pursers_agent_become_labels_of_its_node(
    nfd: NodeFeatureDiscovery, stack: Stack, tmp_path: Path, outlet: str
) -> None:
    """By an object of its own, or by a file that the worker reads."""
    cluster = nfd.cluster
    with labelling(nfd, tmp_path, {"feature-labels": outlet, "feature-file": nfd.feature_files / "gfd"}):
        nfd.wait_label(GPU_PRODUCT_LABEL, "Tesla-T4")
        found = json.loads(cluster.kubectl("get", "nodefeatures", "-A", "-ojson"))["items"]
        having = [each for each in found if GPU_PRODUCT_LABEL in each["spec"].get("labels", {})]
        owner = {"node-feature": NAMESPACE, "file": NFD_NAMESPACE}[outlet]
        assert [each["metadata"]["namespace"] for each in having] == [owner]
        published = {key: text for key, text in having[0]["spec"]["labels"].items() if key.startswith("nvidia.com/")}
        assert published["nvidia.com/gpu.count"] == "4"
        assert len(published) > 15
        cluster.wait_until("the node has all of them", lambda: published.items() <= nfd.labels().items())
    cluster.delete("nodefeatures", "--all", f"-n{NAMESPACE}")
    nfd.wait_label(GPU_PRODUCT_LABEL, None)


@contextmanager
def labelling(nfd: NodeFeatureDiscovery, folder: Path, options: dict[str, object]) -> Iterator[None]:
    """Purser's agent with the rights that the chart gives it. kubelet is not told of its devices."""
    cluster = nfd.cluster
    rights = [each for each in rendered(featureLabels="node-feature") if each["kind"] in ACCOUNTS]
    rights = [each for each in rights if each["metadata"]["name"] == "purser-agent"]
    cluster.apply(*rights)
    arguments = {
        "node-name": cluster.node_name,
        "namespace": NAMESPACE,
        "kubeconfig": cluster.service_account_kubeconfig(NAMESPACE, "purser-agent", cluster.node_name),
        "driver-library": nfd.driver.library,
        "sysfs-root": nfd.driver.sysfs_root,
        "state-dir": folder,
        "device-plugin-dir": folder,
        "pod-resources-socket": folder / "none.sock",
        "metrics-port": 0,
        **options,
    }
    command = [str(PURSER), "agent", "run", *(f"--{name}={value}" for name, value in arguments.items())]
    agent = Process("labelling-agent", command, cluster.logs, env=UNBUFFERED)
    agent.start()
    try:
        yield
    finally:
        agent.stop()
        for each in rights:
            cluster.delete(each["kind"], each["metadata"]["name"], f"-n{NAMESPACE}")


def rendered(**agent: str) -> list[dict[str, Any]]:
    """The chart's objects."""
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render({"agent": agent}, name="purser", namespace=NAMESPACE)
    return [one for name, text in files.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one]


def test_a_node_whose_gpus_the_worker_sees_no_more_loses_its_operands(nfd: NodeFeatureDiscovery, stack: Stack) -> None:
    for index in range(4):
        nfd.driver.remove_gpu(index)
    nfd.wait_label(PCI, None)
    nfd.wait_label(GPU_PRESENT_LABEL, "false")
    nfd.cluster.wait_until("its operands have left", lambda: not stack.pods("driver"))
