"""NodeResourceTopology objects of other exporters count for nodes whose agent tells nothing."""

import asyncio
import contextlib

import msgspec
import pytest
from tests.unit.core.placement.test_kubelet import pod
from tests.unit.kube.servers import api_server
from tests.waiting import eventually

from purser.core.fleet import Fleet
from purser.core.kubelet.config import KubeletConfig
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.report import encode, report_of
from purser.core.kubelet.state import KubeletNode as KubeletNode
from purser.core.kubelet.state import KubeletState
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.names import GPU_RESOURCE
from purser.core.placement import Placement, place
from purser.kube.errors import ApiError
from purser.kube.objects import Node
from purser.kube.resources import untyped_resource
from purser.scheduler.cache.kubelets import Kubelets, NodeResourceTopology
from purser.scheduler.cache.topologies import DEFINITION_NAME, TOPOLOGIES, Topologies

DEFINITIONS = untyped_resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
NODE = "n"


def zone(number: int, cpus: int, gpus: int):
    amounts = {"cpu": cpus, "memory": 64 << 30, GPU_RESOURCE: gpus}
    return {
        "name": f"node-{number}",
        "type": "Node",
        "resources": [
            {"name": name, "capacity": str(n), "allocatable": str(n), "available": str(n)}
            for name, n in amounts.items()
        ],
    }


def topology():
    return {
        "apiVersion": TOPOLOGIES.api_version,
        "kind": TOPOLOGIES.kind,
        "metadata": {"name": NODE},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": [zone(0, 16, 2), zone(1, 16, 2)],
    }


def definition():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION_NAME},
        "spec": {
            "group": TOPOLOGIES.group,
            "scope": "Cluster",
            "names": {"plural": TOPOLOGIES.plural, "singular": "noderesourcetopology", "kind": TOPOLOGIES.kind},
            "versions": [
                {
                    "name": TOPOLOGIES.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@pytest.fixture
def fleet():
    fleet = Fleet()
    devices = tuple(Device(f"g{i}", i, "NVIDIA", 40000, slots=1, numa_nodes=(i // 2,)) for i in range(4))
    fleet.set_inventory(NodeInventory(NODE, devices))
    return fleet


@pytest.fixture
def kubelets(fleet):
    kubelets = Kubelets(fleet)
    node = {"metadata": {"name": NODE}, "status": {"nodeInfo": {"kubeletVersion": "v1.30.0"}}}
    kubelets.put_node(msgspec.convert(node, Node))
    return kubelets


async def test_objects_are_followed_from_when_there_is_a_definition_until_there_is_none(fleet, kubelets, tmp_path):
    async with api_server(tmp_path / "kc", tls=False) as (_, client):
        following = asyncio.create_task(Topologies(client, kubelets).run())
        assert fleet.node(NODE).kubelet is None
        await client.create(DEFINITIONS, definition())
        raw = TOPOLOGIES.raw()
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(ApiError):  # not served yet
                    await client.create(raw, topology())
                    break
                await asyncio.sleep(0.05)
        await eventually(lambda: fleet.node(NODE).kubelet is not None)
        await client.delete(raw, NODE)
        await eventually(lambda: fleet.node(NODE).kubelet is None)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def grant(uid: str, *uuids: str) -> Grant:
    shares = tuple(DeviceShare(uuid, 40000, 100) for uuid in uuids)
    return Grant(uid, "ns", uid, NODE, (ContainerGrant("main", ContainerKind.APP, shares),))


def told(kubelets):
    kubelets.put_topology(msgspec.convert(topology(), NodeResourceTopology, strict=False))


def test_a_pod_goes_where_the_zones_say_that_kubelet_takes_it(fleet, kubelets):
    told(kubelets)
    fit = place(fleet.node(NODE), pod("a", 2, 4))
    assert isinstance(fit, Placement)
    assert {share.uuid for share in fit.containers[0].shares} in ({"g0", "g1"}, {"g2", "g3"})
    assert "TopologyAffinityError" in place(fleet.node(NODE), pod("a", 3, 4)).message


def test_a_pod_that_started_is_on_its_way_no_more_and_keeps_its_gpus(fleet, kubelets):
    told(kubelets)
    for uid, card in (("a", "g0"), ("b", "g1"), ("c", "g2")):
        fleet.ledger.reserve(grant(uid, card))
        fleet.put_pod(NODE, pod(uid, 1).kubelet_pod)
    assert "3 pods are awaiting kubelet's admission" in place(fleet.node(NODE), pod("d", 1)).message
    for uid in "abc":
        fleet.mark_pod_admitted(uid)
    assert (
        "3 pods are awaiting kubelet's admission" in place(fleet.node(NODE), pod("d", 1)).message
    )  # the exporter has yet to look
    told(kubelets)
    fit = place(fleet.node(NODE), pod("d", 1))
    assert [share.uuid for share in fit.containers[0].shares] == ["g3"]


def test_what_the_nodes_own_agent_reports_counts_for_more(fleet, kubelets):
    told(kubelets)
    text = encode(report_of(KubeletNode(KubeletConfig("v1.30.0"), Machine()), KubeletState()))
    node = {"metadata": {"name": NODE, "annotations": {"purser.dev/kubelet": text}}}
    kubelets.put_node(msgspec.convert(node, Node))
    assert fleet.node(NODE).kubelet is None
    told(kubelets)
    assert fleet.node(NODE).kubelet is None
