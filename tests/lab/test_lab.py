"""The lab itself: several nodes, its metrics, and what only a lab can stage."""

import json
import logging

import aiohttp
import pytest
import pytest_asyncio
import structlog

from purser.core.monitoring.cgroups import CgroupOwner, cgroup_id_of, owner_of
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.folders import node_folders
from purser.lab.settings import DEFAULT_NODES, LabSettings, node_choices
from tests import waiting
from tests.conftest import log_plainly
from tests.lab.lab_cluster import scenario_cluster
from tests.scenarios.actions import create, eventually, running
from tests.scenarios.pods import pod, share, whole
from tests.unit.cli.typed import beside

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    async with Lab(LabSettings(node_choices(()))) as lab:
        async with waiting.limit():
            await lab.ready()
        yield lab
    log_plainly()


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(lab, quiet_logs):
    async with scenario_cluster(lab) as cluster:
        yield cluster


async def text(port, path="/metrics"):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def test_the_default_nodes_offer_their_slots_and_everything_serves_metrics(lab):
    nodes = {node.metadata.name: node for node in (await lab.client.list(NODES)).items}
    assert sorted(nodes) == sorted(f"{profile}-0" for profile in DEFAULT_NODES)
    offered = {name: int(node.status.allocatable["nvidia.com/gpu"]) for name, node in nodes.items()}
    assert offered == {"a100-40gb-8-0": 80, "h100-8-0": 80, "t4-4-0": 40}
    for node in lab.nodes.values():
        status, metrics = await text(node.metrics_port)
        assert status == 200
        assert metrics.count("purser_device_healthy{") == len(node.driver.uuids)
        assert (await text(node.metrics_port, "/readyz"))[0] == 200
    assert (await text(lab.scheduler_metrics_port))[0] == 200


async def test_pods_pack_or_spread_over_nodes(cluster):
    anywhere = {"nodeSelector": {}}
    used = {}
    for policy in ("binpack", "spread"):
        names = [f"{policy}-{place}" for place in range(3)]
        for name in names:
            annotations = {"purser.dev/node-policy": policy}
            await create(cluster, pod(cluster, name, share(), annotations=annotations, **anywhere))
            await running(cluster, [name])
        found = await running(cluster, names)
        used[policy] = {one["spec"]["nodeName"] for one in found.values()}
    assert len(used["binpack"]) == 1
    assert len(used["spread"]) > 1


async def test_only_the_node_with_large_gpus_gets_the_large_share(cluster):
    await create(cluster, pod(cluster, "large", share(memory=60000), nodeSelector={}))
    found = (await running(cluster, ["large"]))["large"]
    assert found["spec"]["nodeName"] == "h100-8-0"


async def test_a_pod_with_a_run_time_ends_and_frees_its_gpu(cluster):
    annotations = {"purser.dev/lab-run-seconds": "0.2"}
    first = pod(cluster, "brief", whole(8), annotations=annotations, restartPolicy="Never")
    await create(cluster, first)

    async def over():
        found = await cluster.client.get(PODS, "brief", cluster.namespace)
        return found.status.phase == "Succeeded"

    await eventually(cluster, "the pod ends", over)
    await create(cluster, pod(cluster, "next", whole(8)))
    await running(cluster, ["next"])


async def test_gpus_of_a_running_lab_are_changed_by_commands(lab, cluster):
    async def gpu(*words):
        return await beside("lab", "gpu", *words, f"--kubeconfig={lab.kubeconfig}")

    await create(cluster, pod(cluster, "train", share()))
    train = (await running(cluster, ["train"]))["train"]
    node, uid = train["spec"]["nodeName"], train["metadata"]["uid"]
    code, out, _ = await gpu(
        "process", "start", node, 0, "--pod", f"{cluster.namespace}/train", "--sm", 80, "-o", "json"
    )
    assert code == 0
    proc = node_folders(lab.folder, list(lab.nodes).index(node)).host_root / "proc" / str(json.loads(out)["pid"])
    owner = owner_of((proc / "cgroup").read_text())
    container = train["status"]["containerStatuses"][0]["containerID"]
    assert owner == CgroupOwner(uid, cgroup_id_of(container))
    assert lab.nodes[node].driver.state.gpus[0].utilization[0] == 80

    async def has_lost_one():
        return (await lab.client.get(NODES, "t4-4-0")).status.allocatable["nvidia.com/gpu"] == "30"

    assert (await gpu("lose", "t4-4-0", 2))[0] == 0
    await eventually(cluster, "the node offers less", has_lost_one)
    assert (await gpu("recover", "t4-4-0", 2))[0] == 0
    await lab.client.delete(PODS, "train", cluster.namespace)

    async def is_over():
        return not lab.nodes[node].driver.state.gpus[0].processes and not proc.exists()

    await eventually(cluster, "the process ends with its pod", is_over)
