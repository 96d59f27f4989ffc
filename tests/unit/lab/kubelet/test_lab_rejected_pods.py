"""A whole kubelet on an API server: what pods and the node look like under its policies."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.unit.lab.kubelet.rig import GPU, Plugin, register, serving
from tests.waiting import eventually

from purser.core.kubernetes.quantities import quantity_ceil
from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.resources import EVENTS, NODES, PODS
from purser.lab.apiserver import ApiServer
from purser.lab.driver import profiles
from purser.lab.kubelet.configuration import KubeletSection, configure
from purser.lab.kubelet.kubelet import Kubelet
from purser.lab.kubelet.node import NodeSettings

GIB = 2**30


class Cluster:
    def __init__(self, client, folder):
        self.client = client
        self.folder = folder
        self.plugin_folder = folder / "device-plugins"
        self.rejections = []

    @asynccontextmanager
    async def kubelet(self, profile="p5.48xlarge", **section):
        machine = profiles.load(profile).machine
        said = msgspec.convert(section, KubeletSection).over(profiles.load(profile).kubelet)
        settings = NodeSettings("n1", machine=machine, kubelet=configure(said, machine))
        kubelet = Kubelet(settings, self.folder, self.client, on_rejection=self.rejections.append)
        task = asyncio.create_task(kubelet.run())
        await kubelet.started.wait()
        try:
            yield kubelet
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def pod(self, name, has_init=False, **limits):
        container = {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}
        spec = {"containers": [container], "nodeName": "n1"}
        if has_init:
            spec["initContainers"] = [{**container, "name": "i"}]
        return await self.client.create(PODS.raw(), {"metadata": {"name": name}, "spec": spec}, "default")

    async def settled(self, name):
        async def probe():
            pod = await self.client.get(PODS.raw(), name, "default")
            return pod if pod.get("status", {}).get("phase") in ("Running", "Failed") else None

        return await eventually(probe)

    async def gone(self, name):
        async def probe():
            pods = (await self.client.list(PODS, "default")).items
            return name not in [pod.metadata.name for pod in pods]

        await eventually(probe)

    async def offers(self, gpus):
        async def probe():
            node = await self.client.get(NODES, "n1")
            return node if node.status.allocatable.get(GPU) == str(gpus) else None

        return await eventually(probe)

    async def event(self, reason):
        async def probe():
            return [event for event in (await self.client.list(EVENTS, "default")).items if event.reason == reason]

        return await eventually(probe)


@pytest.fixture
async def cluster(folder):
    async with ApiServer(tls=False) as api:
        config = ClusterConfig.load(api.write_kubeconfig(folder / "kubeconfig"))
        async with Client(config) as client:
            yield Cluster(client, folder / "k")


GPUS = {0: "abcd", 1: "efgh"}


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("v1.36.2", "Pod was rejected: Resources cannot be allocated with Topology locality"),
        ("v1.20.2", "Pod Resources cannot be allocated with Topology locality"),
    ],
)
async def test_four_gpus_that_are_free_on_two_numa_nodes_are_refused_to_one_pod(cluster, version, message):
    async with cluster.kubelet(version=version), serving(cluster, Plugin(GPUS)):
        await register(cluster)
        await cluster.offers(8)
        for name in ("one", "two"):
            await cluster.pod(name, **{GPU: "3"})
            await cluster.settled(name)
        await cluster.pod("four", **{GPU: "2"})
        pod = await cluster.settled("four")
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "TopologyAffinityError")
        assert pod["status"]["message"] == message
        (event,) = await cluster.event("TopologyAffinityError")
        assert (event.type, event.message) == ("Warning", "Resources cannot be allocated with Topology locality")
        assert cluster.rejections == ["TopologyAffinityError"]


async def test_a_container_is_started_with_its_own_cpus_beside_its_gpus(cluster):
    async with cluster.kubelet(memoryManagerPolicy="Static") as kubelet, serving(cluster, Plugin(GPUS)):
        await register(cluster)
        await cluster.offers(8)
        uids = {}
        for name, gpus in (("first", "4"), ("second", "4")):
            await cluster.pod(name, cpu="8", memory="16Gi", **{GPU: gpus})
            uids[name] = (await cluster.settled(name))["metadata"]["uid"]
        records = {name: kubelet.runtime.get(uid, "c") for name, uid in uids.items()}
    assert (records["first"].cpuset, records["first"].memory_nodes) == ("1-4,97-100", "0")
    assert (records["second"].cpuset, records["second"].memory_nodes) == ("48-51,144-147", "1")


async def test_a_pod_that_cannot_be_aligned_to_whole_cores_fails_with_the_reason(cluster):
    async with cluster.kubelet(cpuManagerPolicyOptions={"full-pcpus-only": "true"}, topologyManagerPolicy="none"):
        await cluster.pod("odd", cpu="3", memory="1Gi")
        pod = await cluster.settled("odd")
    assert pod["status"]["reason"] == "SMTAlignmentError"
    assert pod["status"]["message"].endswith("requested 3 cpus not multiple cpus per core = 2")


async def test_pods_keep_what_they_hold_over_a_restart_and_give_it_back_when_they_are_gone(cluster):
    async with cluster.kubelet(), serving(cluster, Plugin(GPUS)):
        await register(cluster)
        await cluster.offers(8)
        await cluster.pod("first", cpu="94", memory="1Gi", **{GPU: "4"})
        await cluster.settled("first")
    async with cluster.kubelet() as kubelet, serving(cluster, Plugin(GPUS)):
        await register(cluster)
        await cluster.offers(8)
        await cluster.pod("second", cpu="96", memory="1Gi", **{GPU: "4"})
        assert (await cluster.settled("second"))["status"]["phase"] == "Running"
        assert [cpus.bit_count() for cpus in kubelet.books.state.cpus.exclusive.values()] == [94, 96]
        await cluster.client.delete(PODS, "first", "default")
        await cluster.gone("first")
        await cluster.pod("third", cpu="94", memory="1Gi", **{GPU: "4"})
        assert (await cluster.settled("third"))["status"]["phase"] == "Running"


NO_HEALTHY = f"no healthy devices present; cannot allocate unhealthy devices {GPU}"


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("v1.36.3", f"Pod was rejected: Allocate failed due to {NO_HEALTHY}, which is unexpected"),
        ("v1.25.10", f"Pod Allocate failed due to {NO_HEALTHY}, which is unexpected"),
        ("v1.25.9", None),
    ],
)
async def test_started_without_its_plugin_kubelet_refuses_pods_whose_init_container_held_a_gpu(
    cluster, version, message
):
    async with cluster.kubelet("a100-40gb-8", version=version), serving(cluster, Plugin()):
        await register(cluster)
        await cluster.offers(3)
        await cluster.pod("plain", **{GPU: "1"})
        await cluster.settled("plain")
        await cluster.pod("prepared", has_init=True, **{GPU: "1"})
        await cluster.settled("prepared")
    async with cluster.kubelet("a100-40gb-8", version=version):
        await cluster.pod("next", memory="1Ki")
        await cluster.settled("next")
        assert (await cluster.settled("plain"))["status"]["phase"] == "Running"
        assert (await cluster.settled("prepared"))["status"].get("message") == message


async def test_the_node_says_what_its_machine_has_and_what_of_it_is_for_pods(cluster):
    async with cluster.kubelet(systemReserved={"memory": "2Gi"}, version="v1.29.4"):
        node = await cluster.client.get(NODES.raw(), "n1")
    capacity, allocatable = node["status"]["capacity"], node["status"]["allocatable"]
    assert (capacity["cpu"], allocatable["cpu"]) == ("192", "190")
    assert quantity_ceil(capacity["memory"]) == 2048 * GIB
    assert quantity_ceil(allocatable["memory"]) == 2046 * GIB - 100 * 2**20
    assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.29.4"


async def test_hugepages_of_the_machine_are_a_resource_and_no_memory_for_pods(cluster, tmp_path):
    profile = tmp_path / "huge.yaml"
    profile.write_text(
        "description: hugepages\ndriver_version: 550.163.01\ncuda_version: '12.4'\ngpus: []\n"
        "numa: [{node: 0, cpus: 0-3, memory: 8Gi, hugepages: {2Mi: 1Gi}}]\n"
    )
    async with cluster.kubelet(profile):
        node = await cluster.client.get(NODES.raw(), "n1")
    capacity, allocatable = node["status"]["capacity"], node["status"]["allocatable"]
    assert quantity_ceil(capacity["hugepages-2Mi"]) == quantity_ceil(allocatable["hugepages-2Mi"]) == GIB
    assert quantity_ceil(allocatable["memory"]) == 7 * GIB - 100 * 2**20


async def test_a_kubelet_that_has_started_has_written_its_configuration_and_state(cluster):
    async with cluster.kubelet():
        names = {path.name for path in cluster.folder.iterdir() if path.is_file()}
        assert names == {"config.yaml", "cpu_manager_state", "memory_manager_state"}
        assert not (cluster.plugin_folder / "kubelet_internal_checkpoint").exists()
