"""The operator on the real cluster: as a process with the chart's account, on the real node and on hollow ones.

The operands' images cannot be pulled and their mounts not be given on this machine: a webhook replaces what the pods on
the real node run by a busybox that does nothing. Everything else of them is as the operator made it.
"""

import asyncio
import base64
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import helm_python
import yaml

from purser.core.names import DEPLOY_PREFIX
from purser.kube import Client, ClusterConfig, Informer
from purser.kube.racing import until
from purser.kube.resources import NODES, PODS, Raw
from purser.lab.controlplane.process import Process, is_answering
from purser.lab.hollow import HollowFleet, HollowNodes, manifests
from purser.lab.ports import free_ports
from purser.operator.names import OPERAND_LABEL

from .kubernetes import BUSYBOX_IMAGE
from .kubernetes.cluster import RealCluster
from .kubernetes.network import NODE_ADDRESS
from .purser_processes import CHART, PURSER
from .test_harness_callouts import https_server

NAMESPACE = "gpu-stack"
ACCOUNT = "purser-operator"
_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
CRD = CHART / "crds" / "clusterpolicies.purser.dev.yaml"
NFD = {
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/system-os_release.ID": "debian",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "12",
    "feature.node.kubernetes.io/kernel-version.full": "6.1.0-test",
}
"""What node-feature-discovery would write of the real node, if it had a GPU."""


class Stack:
    """What tests ask of it. Its methods block."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self.order: list[tuple[int, str, str, Any]] = []
        """(resource version, node, what, value): operands that a node is to get, and whether their pods are ready."""
        [self.metrics_port] = free_ports(1)
        self.kubeconfig = Path()
        self.operator: Process

    # --- life

    @contextmanager
    def running(self) -> Iterator["Stack"]:
        with ExitStack() as stack:
            stack.enter_context(self._busyboxes())
            stack.enter_context(self._in_a_thread())
            self._install()
            stack.callback(self._remove)
            self.operator.start()
            stack.callback(self.operator.stop)
            self.wait_operator()
            yield self

    def wait_operator(self) -> None:
        self.operator.wait_ready(lambda: is_answering(f"http://{NODE_ADDRESS}:{self.metrics_port}/readyz"))

    def _install(self) -> None:
        self.cluster.create_namespace(NAMESPACE)
        # Helm leaves one, when it uninstalls a chart.
        self.cluster.delete("crd", "clusterpolicies.purser.dev")
        # As helm does: kubectl would hold it against the schema of an old server, which ignores rules in CEL.
        self.cluster.kubectl("create", "--validate=false", "-f", str(CRD))
        self.cluster.wait_until("policies are served", self._policies_are_served)
        with helm_python.Chart.load(CHART) as chart:
            files = chart.render({"operator": {"enabled": True}}, name="purser", namespace=NAMESPACE)
        rendered = [
            one for name, text in files.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one
        ]
        self.cluster.apply(
            *(each for each in rendered if each["kind"] in _KINDS and each["metadata"]["name"] == ACCOUNT)
        )
        self.kubeconfig = self.cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        self.operator = Process("operator", self.command("run", *self._run_options()), self.cluster.logs)

    def _policies_are_served(self) -> bool:
        try:
            return "items" in self.cluster.get("clusterpolicies.purser.dev")
        except RuntimeError:
            return False

    def _run_options(self) -> list[str]:
        return [
            f"--image={BUSYBOX_IMAGE}",
            f"--metrics-address={NODE_ADDRESS}",
            f"--metrics-port={self.metrics_port}",
            "--identity=operator",
        ]

    def command(self, name: str, *options: str) -> list[str]:
        """A command line of ``purser operator``, as the operator's own account."""
        return [str(PURSER), "operator", name, f"--kubeconfig={self.kubeconfig}", f"--namespace={NAMESPACE}", *options]

    def _remove(self) -> None:
        """Also where a test failed in between: what nobody would clean up any more is freed."""
        labels = [f"{key}-" for key in NFD]
        self.cluster.kubectl("label", "node", *self.cluster.nodes, *labels)
        for policy in self.cluster.get("clusterpolicies.purser.dev")["items"]:
            free = '--patch={"metadata":{"finalizers":null}}'
            self.cluster.kubectl(
                "patch", "clusterpolicies.purser.dev", policy["metadata"]["name"], "--type=merge", free
            )
        self.cluster.delete("namespace", NAMESPACE)
        self.cluster.delete("nodes", "--selector=purser.dev/lab-hollow=true")
        self.cluster.delete("clusterrole,clusterrolebinding", ACCOUNT)
        self.cluster.delete("crd", "clusterpolicies.purser.dev")

    # --- what it changes

    def add_nodes(self, nodes: HollowNodes, **annotations: str) -> None:
        """Hollow nodes, with annotations by which they are broken."""
        for each in manifests(nodes):
            each["metadata"]["annotations"] |= annotations
            self.cluster.create(each)

    def label_real_nodes(self) -> None:
        self.cluster.kubectl("label", "node", *self.cluster.nodes, *(f"{key}={value}" for key, value in NFD.items()))

    def annotate(self, node: str, *annotations: str) -> None:
        self.cluster.kubectl("annotate", "--overwrite", "node", node, *annotations)

    def create_policy(self, name: str, spec: Any) -> None:
        self.cluster.create(
            {"apiVersion": "purser.dev/v1alpha1", "kind": "ClusterPolicy", "metadata": {"name": name}, "spec": spec}
        )

    def change_policy(self, spec: Any, name: str = "policy") -> None:
        patch = json.dumps({"spec": spec})
        self.cluster.kubectl("patch", "clusterpolicies.purser.dev", name, "--type=merge", f"--patch={patch}")

    # --- what it sees

    def status(self, name: str = "policy") -> Any:
        return self.cluster.get("clusterpolicies.purser.dev", name).get("status") or {}

    def is_settled(self, name: str = "policy") -> bool:
        """Ready, for this generation, and nothing is on its way any more."""
        policy = self.cluster.get("clusterpolicies.purser.dev", name)
        status = policy.get("status") or {}
        conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
        current = status.get("observedGeneration") == policy["metadata"]["generation"]
        return current and status.get("state") == "ready" and conditions["Progressing"] == "False"

    def wait_settled(self, name: str = "policy", timeout_seconds: float = 180) -> None:
        try:
            self.cluster.wait_until("settled", lambda: self.is_settled(name), timeout_seconds)
        except TimeoutError as error:
            status = json.dumps(self.status(name), indent=1)
            raise TimeoutError(f"{status}\nThe operator's last lines:\n{self.operator.tail()}") from error

    def daemon_set(self, operand: str) -> Any:
        return self.daemon_sets(operand)[0]

    def daemon_sets(self, operand: str) -> list[Any]:
        return list(self.cluster.get("daemonsets", "", NAMESPACE, f"{OPERAND_LABEL}={operand}")["items"])

    def pods(self, operand: str) -> dict[str, Any]:
        """By node."""
        found = self.cluster.get("pods", "", NAMESPACE, f"{OPERAND_LABEL}={operand}")["items"]
        return {each["spec"].get("nodeName", ""): each for each in found}

    def operands(self, node: str) -> set[str]:
        """The operands that a node is to get."""
        return _operands(self.cluster.get("node", node))

    def writes(self) -> dict[str, float]:
        """By verb and kind, of this process so far."""
        return {name: value for name, value in self._metrics() if name.startswith("purser_operator_writes_total{")}

    def make_round(self, policy: str = "policy") -> None:
        """Have it make a round for a change of its policy that is none to it. One that was under way ends before."""
        for _ in range(2):
            made, touched = self._rounds(), f"tests/touched={uuid.uuid4()}"
            self.cluster.kubectl("annotate", "--overwrite", "clusterpolicies.purser.dev", policy, touched)
            self.cluster.wait_until("a round is made", lambda made=made: self._rounds() > made)

    def _rounds(self) -> float:
        """How many it has made; 0 while it does not lead."""
        return dict(self._metrics()).get("gpu_operator_reconciliation_total", 0)

    def _metrics(self) -> Iterator[tuple[str, float]]:
        with urlopen(f"http://{NODE_ADDRESS}:{self.metrics_port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#")):
            yield name, float(value)

    # --- how

    @contextmanager
    def _busyboxes(self) -> Iterator[None]:
        def answer(path: str, body: Any) -> Any:
            patch = _simple(body["request"]["object"])
            encoded = base64.b64encode(json.dumps(patch).encode()).decode()
            response = {"uid": body["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
            return {"apiVersion": body["apiVersion"], "kind": body["kind"], "response": response}

        with https_server(self.cluster, answer) as url:
            self.cluster.create(_webhook(self.cluster, f"{url}/mutate"))
            try:
                yield
            finally:
                self.cluster.delete("mutatingwebhookconfiguration", "operands")

    @contextmanager
    def _in_a_thread(self) -> Iterator[None]:
        """The hollow nodes' kubelets, and whoever writes the order down."""
        began, stops = threading.Event(), []

        async def main() -> None:
            stop = asyncio.Event()
            stops.append((asyncio.get_running_loop(), stop))
            began.set()
            await until(self._beside(), stop.wait())
            await asyncio.sleep(0.25)  # TLS connections are closed a moment after their session

        thread = threading.Thread(target=asyncio.run, args=(main(),))
        thread.start()
        began.wait()
        try:
            yield
        finally:
            [(loop, stop)] = stops
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    async def _beside(self) -> None:
        async with Client(ClusterConfig.load(self.cluster.kubeconfig)) as client:
            nodes = Informer(client, NODES.raw())
            pods = Informer(client, PODS.raw(), NAMESPACE, label_selector=OPERAND_LABEL)
            nodes.add_handler(self._node, lambda _, new: self._node(new))
            pods.add_handler(self._pod, lambda _, new: self._pod(new))
            async with asyncio.TaskGroup() as group:
                for each in (nodes, pods, HollowFleet(client)):
                    group.create_task(each.run())

    def _node(self, node: Raw) -> None:
        metadata = node["metadata"]
        self.order.append((int(metadata["resourceVersion"]), metadata["name"], "gets", _operands(node)))

    def _pod(self, pod: Raw) -> None:
        metadata = pod["metadata"]
        conditions = pod.get("status", {}).get("conditions", [])
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        seen = (metadata["labels"][OPERAND_LABEL], ready)
        self.order.append((int(metadata["resourceVersion"]), pod["spec"].get("nodeName", ""), "has", seen))


def _operands(node: Raw) -> set[str]:
    labels = node["metadata"].get("labels", {})
    return {
        key.removeprefix(DEPLOY_PREFIX) for key in labels if key.startswith(DEPLOY_PREFIX) and labels[key] == "true"
    }


def _simple(pod: Raw) -> list[dict[str, Any]]:
    """Of what a pod runs, leave one container that does nothing."""
    container = {"name": "main", "image": BUSYBOX_IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000000"]}
    patch: list[dict[str, Any]] = [
        {"op": "replace", "path": "/spec/containers", "value": [container]},
        {"op": "add", "path": "/spec/terminationGracePeriodSeconds", "value": 0},
    ]
    gone = ("initContainers", "volumes", "runtimeClassName", "hostPID", "hostNetwork")
    return patch + [{"op": "remove", "path": f"/spec/{field}"} for field in gone if field in pod["spec"]]


def _webhook(cluster: RealCluster, url: str) -> dict[str, Any]:
    webhook = {
        "name": "operands.purser.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "objectSelector": {"matchExpressions": [{"key": OPERAND_LABEL, "operator": "Exists"}]},
        "clientConfig": {"url": url, "caBundle": base64.b64encode(cluster.ca_file.read_bytes()).decode()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "operands"},
        "webhooks": [webhook],
    }
