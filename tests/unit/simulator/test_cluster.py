"""What a cluster has now as a workload, from the lab's API server."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.kube.servers import api_server
from typer.testing import CliRunner

from purser.cli import app, serving
from purser.core.grant.signing import sign
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.names import INVENTORY_ANNOTATION
from purser.core.placement.shape import PodShape
from purser.kube.client import Client
from purser.kube.resources import NAMESPACES, NODES, PODS
from purser.simulator import arrivals
from purser.simulator.cluster import NothingToSimulate, read_cluster
from purser.simulator.orders import draw_order

GPU = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "50"}


@pytest_asyncio.fixture
async def client(tmp_path):
    async with api_server(tmp_path / "kubeconfig", tls=False) as (_, client):
        await client.create(NAMESPACES, {"metadata": {"name": "team"}})
        yield client


async def put_node(client: Client, name: str, gpus: int, inventory: str | None = None) -> None:
    devices = tuple(Device(f"GPU-{name}-{n}", n, "NVIDIA A100", 40960, slots=10) for n in range(gpus))
    text = inventory or msgspec.json.encode(NodeInventory(name, devices)).decode()
    annotations = {INVENTORY_ANNOTATION: text} if gpus or inventory else {}
    status = {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}}
    await client.create(NODES, {"metadata": {"name": name, "annotations": annotations}, "status": status})


async def put_pod(client: Client, name: str, limits: dict[str, str], node: str = "", **metadata: object) -> None:
    resources = {"limits": limits, "requests": {"cpu": "2", "memory": "1Gi"}}
    container = {"name": "main", "image": "i", "resources": resources}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    await client.create(PODS, {"metadata": {"name": name, **metadata}, "spec": spec}, "team")


def granted(name: str, node: str) -> dict[str, str]:
    share = DeviceShare(f"GPU-{node}-0", 4096, 50)
    grant = Grant(f"uid-{name}", "team", name, node, (ContainerGrant("main", ContainerKind.APP, (share,)),))
    return sign(grant, Ed25519PrivateKey.generate())


async def test_nodes_and_pods_with_gpus_are_simulated_and_other_pods_keep_what_they_have(client: Client) -> None:
    await put_node(client, "a", 2)
    await put_node(client, "plain", 0)
    await put_pod(client, "holds", GPU, "a", annotations=granted("holds", "a"))
    await put_pod(client, "waits", GPU)
    await put_pod(client, "other", {"cpu": "2"}, "a")
    found = await read_cluster(client)
    [node] = found.nodes
    assert (node.name, len(node.gpus), node.gpus[0].memory_mib) == ("a", 2, 40960)
    assert (node.cpu_free_milli, node.memory_free_mib, node.pods_free) == (14_000, 63 * 1024, 109)
    shape = PodShape(2000, 1024, 1, 4096, gpu_cores_percent=50)
    assert sorted((pod.name, pod.shape) for pod in found.pods) == [("team/holds", shape), ("team/waits", shape)]
    assert found.notes == ("node plain is skipped because it has no inventory",)
    order = draw_order(found, 1, 100)
    run = arrivals.run(found, order, "binpack")
    assert (run.placed, run.rows.allocated[-1]) == (4, 2000)


async def test_the_command_simulates_a_cluster(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "configure_logs", lambda level: None)  # those of the tests stay as they are
    await put_node(client, "a", 2)
    await put_pod(client, "holds", GPU, "a", annotations=granted("holds", "a"))
    words = ["simulate", "--cluster", f"--kubeconfig={tmp_path / 'kubeconfig'}", "--policy=best-fit", "-o", "json"]
    found = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert (found.exit_code, found.stderr) == (0, "")
    [policy] = json.loads(found.stdout)["policies"]
    assert policy["allocation_percent"]["100"] == 100


async def test_what_cannot_be_read_is_left_out_and_reported(client: Client) -> None:
    await put_node(client, "a", 1)
    await put_node(client, "b", 1, inventory="{")
    await put_pod(client, "fine", GPU)
    await put_pod(
        client, "odd", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096", "nvidia.com/gpumem-percentage": "500"}
    )
    await put_pod(client, "picky", GPU, annotations={"nvidia.com/use-gpuuuid": "GPU-a-0"})
    found = await read_cluster(client)
    assert [pod.name for pod in found.pods] == ["team/fine"]
    notes = " | ".join(found.notes)
    assert "node b is skipped: annotation" in notes
    assert "pod team/odd" in notes
    why = "it has no grant, and requirements other than amounts are not simulated"
    assert f"pod team/picky is skipped because {why}" in notes


async def test_a_cluster_without_gpus_is_reported(client: Client) -> None:
    with pytest.raises(NothingToSimulate, match="no node in the cluster has an inventory"):
        await read_cluster(client)
    await put_node(client, "a", 1)
    with pytest.raises(NothingToSimulate, match="no pod in the cluster holds a GPU"):
        await read_cluster(client)
