"""Three real kubelets, each with its own containerd, network, agent and cards."""

import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import pytest

from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.core.names import GPU_RESOURCE, NODE_POLICY_ANNOTATION
from tests.scenarios.actions import cards
from tests.scenarios.pods import share, whole

from .kubernetes import RealCluster, busybox_pod
from .kubernetes.node import Node
from .operator_stack import Stack
from .purser_processes import Purser

NAMESPACE = "several"
OTHERS = ("real-1", "real-2")
SLOTS = 80
NEEDLESS = ("dcgmExporter", "devicePlugin", "gfd", "migManager")
"""Operands without which an upgrade of drivers is the same, and has fewer pods to wait for."""


@pytest.fixture(scope="module")
def three(real_cluster: RealCluster) -> Iterator[RealCluster]:
    added = [real_cluster.add_node() for _ in OTHERS]
    assert tuple(each.name for each in added) == OTHERS
    real_cluster.create_namespace(NAMESPACE)
    yield real_cluster
    real_cluster.delete("namespace", NAMESPACE)
    for each in added:
        real_cluster.remove_node(each)


@pytest.fixture(scope="module")
def agents(three: RealCluster, purser: Purser) -> Purser:
    for name in OTHERS:
        purser.add_agent(three.nodes[name])
    return purser


@pytest.fixture
def pods(three: RealCluster, agents: Purser) -> Iterator["Pods"]:
    made = Pods(three)
    yield made
    three.delete("pods", "--all", f"-n{NAMESPACE}")


class Pods:
    """Pods with cards, by name."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self.names: list[str] = []

    def create(self, name: str, limits: Mapping[str, str], node: str = "", **annotations: str) -> None:
        selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
        self.cluster.create(
            busybox_pod(name, namespace=NAMESPACE, resources=limits, annotations=annotations, **selector)
        )
        self.names.append(name)

    def run(self, name: str, limits: Mapping[str, str], node: str = "", **annotations: str) -> str:
        """The node that it runs on."""
        self.create(name, limits, node, **annotations)
        return str(self.cluster.wait_pod(name, NAMESPACE, timeout_seconds=120)["spec"]["nodeName"])

    def check_books(self) -> None:
        """Each kubelet gave every container on its node the cards of its grant, and knows of no others."""
        granted: dict[str, dict[str, set[str]]] = {name: {} for name in self.cluster.nodes}
        for name in self.names:
            pod = self.cluster.get("pod", name, NAMESPACE)
            granted[pod["spec"]["nodeName"]][name] = set(cards(pod))
            environment = self.cluster.container_env(NAMESPACE, name)
            assert set(environment["NVIDIA_VISIBLE_DEVICES"].split(",")) == set(cards(pod))
        assert {node.name: given(node) for node in self.cluster.nodes.values()} == granted


def given(node: Node) -> dict[str, set[str]]:
    """Cards by pod, as this kubelet tells."""
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix://{node.pod_resources_socket}", options=options) as channel:
        reply = api_pb2_grpc.PodResourcesListerStub(channel).List(api_pb2.ListPodResourcesRequest(), timeout=60)
    found: dict[str, set[str]] = {}
    for pod in reply.pod_resources:
        for container in pod.containers:
            ids = [id_ for each in container.devices if each.resource_name == GPU_RESOURCE for id_ in each.device_ids]
            if ids:
                found.setdefault(pod.name, set()).update(id_.partition("::")[0] for id_ in ids)
    return found


def offers(cluster: RealCluster, node: str) -> int:
    return int(cluster.get("node", node)["status"]["allocatable"].get(GPU_RESOURCE, 0))


def test_pods_are_bound_to_the_best_of_three_nodes(pods: Pods) -> None:
    assert pods.run("first", share(20000, 0), "real-1") == "real-1"
    assert pods.run("beside", share(20000, 0), **{NODE_POLICY_ANNOTATION: "binpack"}) == "real-1"
    assert pods.run("apart", share(20000, 0), **{NODE_POLICY_ANNOTATION: "spread"}) != "real-1"
    assert {pods.run("eight", whole(8)), pods.run("seven", whole(7))} < {"real-0", "real-1", "real-2"}
    pods.check_books()


def test_a_node_whose_kubelet_is_killed_holds_up_no_other_and_loses_nothing(pods: Pods) -> None:
    cluster = pods.cluster
    for node in cluster.nodes:
        assert pods.run(f"before-{node}", share(), node) == node
    process = cluster.container_pid(NAMESPACE, "before-real-1")
    cluster.kill_kubelet("real-1")
    for node in ("real-0", "real-2"):
        assert pods.run(f"meanwhile-{node}", share(), node) == node
    cluster.start_kubelet(node="real-1")
    cluster.wait_until("kubelet knows the agent again", lambda: offers(cluster, "real-1") == SLOTS)
    assert pods.run("after", share(), "real-1") == "real-1"
    assert cluster.container_pid(NAMESPACE, "before-real-1") == process
    pods.check_books()


def test_an_agent_that_is_away_takes_its_own_node_out_alone(pods: Pods, agents: Purser) -> None:
    cluster = pods.cluster
    [agent] = [each for each in agents.agents if each.node.name == "real-2"]
    agent.process.kill()
    cluster.wait_until("kubelet offers nothing there", lambda: not offers(cluster, "real-2"))
    assert {pods.run("eight", whole(8)), pods.run("again-eight", whole(8))} == {"real-0", "real-1"}
    pods.create("third-eight", whole(8))
    agent.process.start()
    assert cluster.wait_pod("third-eight", NAMESPACE, timeout_seconds=120)["spec"]["nodeName"] == "real-2"
    pods.check_books()


def test_the_operator_upgrades_one_real_node_after_the_other(three: RealCluster) -> None:
    with Stack(three).running() as stack:
        stack.label_real_nodes()
        stack.create_policy("policy", {name: {"enabled": False} for name in NEEDLESS})
        stack.wait_settled(timeout_seconds=240)
        before = drivers(stack)
        assert set(before) == set(three.nodes)
        began = len(stack.order)
        stack.change_policy({"driver": {"version": "999.9"}})
        stack.cluster.wait_until("every driver is another pod", lambda: new_drivers(stack, before), 240)
        stack.wait_settled(timeout_seconds=240)
        assert most_without_a_driver(stack, set(three.nodes), began) == 1
        result = subprocess.run(stack.command("uninstall"), capture_output=True, text=True, timeout=180)
        assert (result.returncode, result.stderr) == (0, "")


def drivers(stack: Stack) -> dict[str, str]:
    return {node: pod["metadata"]["uid"] for node, pod in stack.pods("driver").items()}


def new_drivers(stack: Stack, before: Mapping[str, str]) -> bool:
    now = drivers(stack)
    return set(now) == set(before) and not set(now.values()) & set(before.values())


def most_without_a_driver(stack: Stack, nodes: set[str], began: int) -> int:
    """The most nodes at a time whose driver was not ready, in the order of the API server's versions."""
    ready, most = set(nodes), 0
    seen: list[tuple[int, str, str, Any]] = sorted(stack.order[began:], key=lambda each: each[0])
    for _, node, what, value in seen:
        if what == "has" and value[0] == "driver" and node:
            (ready.add if value[1] else ready.discard)(node)
            most = max(most, len(nodes - ready))
    return most
