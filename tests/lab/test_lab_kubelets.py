"""A lab whose kubelets align: what agents tell of them, and where pods end up."""

import pytest

from purser.core.kubelet.config import MemoryPolicy
from purser.core.kubelet.cpuset import parse_cpuset
from purser.core.kubelet.report import decode, node_of
from purser.core.kubelet.state import KubeletNode
from purser.core.names import KUBELET_ANNOTATION
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.kubelet.configuration import KubeletSection
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.waiting import eventually

NODE = "p5.48xlarge-0"


@pytest.fixture
async def aligned_lab(quiet_logs):
    kubelet = KubeletSection(memoryManagerPolicy=MemoryPolicy.STATIC)
    settings = LabSettings(node_choices(["p5.48xlarge"]), kubelet=kubelet, slots=1)
    async with Lab(settings) as lab:
        async with waiting.limit():
            await lab.ready()
        yield lab


async def create(lab, *names):
    for name in names:
        limits = {"nvidia.com/gpu": "4", "cpu": "8", "memory": "16Gi"}
        container = {"name": "c", "image": "i", "resources": {"limits": limits}}
        await lab.client.create(
            PODS.raw(), {"metadata": {"name": name}, "spec": {"containers": [container]}}, "default"
        )


async def report(lab):
    return decode((await lab.client.get(NODES, NODE)).metadata.annotations[KUBELET_ANNOTATION])


async def running(lab):
    pods = (await lab.client.list(PODS, "default")).items
    return {pod.metadata.name: pod for pod in pods if pod.status.phase == "Running"}


async def test_pods_are_aligned_reported_and_kept_over_a_restart(aligned_lab):
    lab = aligned_lab
    choice = lab.settings.nodes[0]
    told = node_of(await report(lab))
    assert told == KubeletNode(lab.settings.kubelet_of(choice).config, choice.profile.machine)

    await create(lab, "one", "two")
    pods = await eventually(lambda: _both(lab))
    node = lab.nodes[NODE]
    places = {name: await node.numa_node_of_gpus(("default", name, "c")) for name in pods}
    assert sorted(sorted(of_pod.values()) for of_pod in places.values()) == [[0] * 4, [1] * 4]
    records = {name: node.container(pod.metadata.uid, "c") for name, pod in pods.items()}
    for name, record in records.items():
        numa = next(iter(places[name].values()))
        assert record.memory_nodes == str(numa)
        assert node_cpus(choice, record.cpuset) == {numa}

    async def told_of_both():
        return len((await report(lab)).held) == 2

    await eventually(told_of_both)
    await lab.restart_kubelet(NODE)
    await eventually(told_of_both)
    assert await node.numa_node_of_gpus(("default", "one", "c")) == places["one"]
    await create(lab, "three")

    async def refused_by_the_scheduler():
        pod = await lab.client.get(PODS.raw(), "three", "default")
        return pod["status"].get("conditions")

    conditions = await eventually(refused_by_the_scheduler)
    assert (conditions[0]["type"], conditions[0]["status"]) == ("PodScheduled", "False")
    assert not node.rejections


async def _both(lab):
    pods = await running(lab)
    return pods if len(pods) == 2 else None


def node_cpus(choice, cpuset):
    cpus = parse_cpuset(cpuset)
    assert cpus.bit_count() == 8
    return {numa for numa, of_node in choice.profile.machine.cpus_by_numa.items() if cpus & of_node}
