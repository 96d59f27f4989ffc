"""Purser's kube-scheduler with a second profile and with extenders of others: docs/other-schedulers.md."""

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from purser.core.names import GPU_RESOURCE, GRANT_ANNOTATION, SCHEDULER_NAME
from purser.kube import Client, ClusterConfig
from tests.scenarios.hollow import hollow_nodes

from .kubernetes import RealCluster, busybox_pod
from .kubernetes.releases import CRI_V1
from .purser_processes import LOOPBACK, Purser
from .test_harness_callouts import https_server

NAMESPACE = "extended"
SECOND = "second-profile"
DEAD = {"urlPrefix": f"https://{LOOPBACK}:1", "filterVerb": "filter", "enableHTTPS": True, "ignorable": True}
STRATEGY = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
PACKING = {
    "schedulerName": SECOND,
    "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": STRATEGY}}],
}


class Other:
    """An extender that cares about every pod, and refuses one node."""

    def __init__(self) -> None:
        self.refused = ""
        self.asked: list[str] = []

    def answer(self, path: str, body: Any) -> Any:
        self.asked.append(body["Pod"]["metadata"]["name"])
        names = [name for name in body["NodeNames"] if name != self.refused]
        return {"NodeNames": names, "FailedNodes": {self.refused: "it is mine"}, "Error": ""}


@pytest.fixture(scope="module")
def other(purser: Purser) -> Iterator[Other]:
    """Beside Purser's extender and a dead one, in a kube-scheduler with two profiles."""
    if purser.cluster.version < CRI_V1:
        pytest.skip("the second profile's configuration is newer")
    other = Other()
    with https_server(purser.cluster, other.answer) as url:
        purser.configure_kube_scheduler(profiles=[PACKING], extenders=[DEAD, refusing(url, purser.cluster)])
        purser.kube_scheduler.stop()
        purser.kube_scheduler.start()
        purser.wait_kube_scheduler()
        yield other


def refusing(url: str, cluster: RealCluster) -> dict[str, Any]:
    ca = base64.b64encode(cluster.ca_file.read_bytes()).decode()
    tls = {"enableHTTPS": True, "tlsConfig": {"caData": ca}}
    return {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True, **tls}


@pytest.fixture
async def hollow(purser: Purser) -> AsyncIterator[str]:
    """A second node with a card; it exists in the API alone."""
    cluster = purser.cluster
    cluster.create_namespace(NAMESPACE)
    async with Client(ClusterConfig.load(cluster.kubeconfig)) as client, hollow_nodes(client, 1) as [name]:
        yield name
        cluster.delete("pods", f"-n{NAMESPACE}", "--all", "--grace-period=0", "--force")
    cluster.delete("namespace", NAMESPACE)


def placed(cluster: RealCluster, name: str) -> Any:
    """The pod, once it has a node."""

    def found() -> Any:
        pod = cluster.get("pod", name, NAMESPACE)
        return pod if pod["spec"].get("nodeName") else None

    return cluster.wait_until(f"{name} has a node", found)


async def test_the_nodes_that_another_extender_refuses_are_not_taken_and_purser_binds(
    purser: Purser, other: Other, hollow: str
) -> None:
    cluster = purser.cluster
    for refused, expected in ((cluster.node_name, hollow), (hollow, cluster.node_name)):
        other.refused = refused
        share, plain = f"share-off-{refused}", f"plain-off-{refused}"
        cluster.create(
            busybox_pod(share, namespace=NAMESPACE, resources={GPU_RESOURCE: "1", "nvidia.com/gpumem": "1000"}),
            busybox_pod(plain, namespace=NAMESPACE, schedulerName=SECOND),
        )
        pod = placed(cluster, share)
        assert (pod["spec"]["nodeName"], pod["spec"]["schedulerName"]) == (expected, SCHEDULER_NAME)
        assert GRANT_ANNOTATION in pod["metadata"]["annotations"]
        assert placed(cluster, plain)["spec"]["nodeName"] == expected
    cluster.wait_pod(share, NAMESPACE)
    assert cluster.container_env(NAMESPACE, share)["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    assert {share, plain} <= set(other.asked)


async def test_a_pod_of_another_profile_gets_no_gpu_but_the_reason(purser: Purser, other: Other, hollow: str) -> None:
    cluster = purser.cluster
    other.refused = ""
    cluster.create(busybox_pod("second", namespace=NAMESPACE, schedulerName=SECOND, resources={GPU_RESOURCE: "1"}))

    def message() -> str:
        conditions = cluster.get("pod", "second", NAMESPACE)["status"].get("conditions", [])
        return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), "")

    assert f'the pod is for scheduler "{SECOND}"' in cluster.wait_until("it was refused", message)
