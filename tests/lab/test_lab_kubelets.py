"""A lab's kubelets: where pods end up that they align, and what agents tell of them is what they go by, field for
field."""

from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from purser.core.kubelet.config import CpuPolicy, MemoryPolicy
from purser.core.kubelet.cpuset import parse_cpuset
from purser.core.kubelet.report import decode, node_of, state_of
from purser.core.kubelet.state import Allocation, KubeletNode, KubeletState
from purser.core.names import KUBELET_ANNOTATION
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.kubelet.books import Books
from purser.lab.kubelet.configuration import KubeletSection
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.waiting import eventually


@asynccontextmanager
async def lab_of(profile, **kubelet):
    settings = LabSettings(node_choices([profile]), kubelet=KubeletSection(**kubelet), slots=1)
    async with Lab(settings) as lab:
        async with waiting.limit():
            await lab.ready()
        yield lab


@pytest.fixture
def opened(monkeypatch):
    """The books of every kubelet that was started, the latest one last."""
    opened = []

    class Recorded(Books):
        def __init__(self, *args):
            super().__init__(*args)
            opened.append(self)

    monkeypatch.setattr("purser.lab.kubelet.kubelet.Books", Recorded)
    return opened


async def create(lab, *names, gpus, **limits):
    for name in names:
        resources = {"limits": {"nvidia.com/gpu": gpus, **limits}}
        spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
        await lab.client.create(PODS.raw(), {"metadata": {"name": name}, "spec": spec}, "default")


async def two_running(lab):
    pods = (await lab.client.list(PODS, "default")).items
    running = {pod.metadata.name: pod for pod in pods if pod.status.phase == "Running"}
    return running if len(running) == 2 else None


async def report(lab):
    (name,) = lab.nodes
    return decode((await lab.client.get(NODES, name)).metadata.annotations[KUBELET_ANNOTATION])


def without_responses(state: KubeletState) -> KubeletState:
    """What a report can tell: no plugin's answers, no merged hints."""
    held = {
        key: {name: Allocation(one.devices_per_numa) for name, one in of.items()}
        for key, of in state.devices.held.items()
    }
    return replace(state, devices=replace(state.devices, held=held), hints={})


async def two_are_reported(lab, opened):
    """Before and after a restart of kubelet."""

    async def are_reported():
        told, books = await report(lab), opened[-1]
        return node_of(told) == books.node and state_of(told) == without_responses(books.state)

    assert len(opened[-1].state.devices.held) == len(opened[-1].state.cpus.exclusive) == 2
    await eventually(are_reported)
    (name,) = lab.nodes
    await lab.restart_kubelet(name)
    await eventually(are_reported)
    assert len(opened) == 2


async def test_an_old_kubelet_is_reported_as_it_is(opened, quiet_logs):
    async with lab_of("t4-4", version="v1.20.2", cpuManagerPolicy=CpuPolicy.STATIC) as lab:
        await create(lab, "one", "two", gpus="2", cpu="3", memory="4Gi")
        await eventually(lambda: two_running(lab))
        await two_are_reported(lab, opened)


async def test_pods_are_aligned_reported_and_kept_over_a_restart(opened, quiet_logs):
    async with lab_of("p5.48xlarge", memoryManagerPolicy=MemoryPolicy.STATIC) as lab:
        (choice,), (node,) = lab.settings.nodes, lab.nodes.values()
        told = node_of(await report(lab))
        assert told == KubeletNode(lab.settings.kubelet_of(choice).config, choice.profile.machine)

        await create(lab, "one", "two", gpus="4", cpu="8", memory="16Gi")
        pods = await eventually(lambda: two_running(lab))
        places = {name: await node.numa_node_of_gpus(("default", name, "c")) for name in pods}
        assert sorted(sorted(of_pod.values()) for of_pod in places.values()) == [[0] * 4, [1] * 4]
        for name, pod in pods.items():
            record, numa = node.container(pod.metadata.uid, "c"), next(iter(places[name].values()))
            assert record.memory_nodes == str(numa)
            assert node_cpus(choice, record.cpuset) == {numa}

        await two_are_reported(lab, opened)
        assert await node.numa_node_of_gpus(("default", "one", "c")) == places["one"]
        await create(lab, "three", gpus="4", cpu="8", memory="16Gi")

        async def refused_by_the_scheduler():
            pod = await lab.client.get(PODS.raw(), "three", "default")
            return pod["status"].get("conditions")

        (condition,) = await eventually(refused_by_the_scheduler)
        assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
        assert not node.rejections


def node_cpus(choice, cpuset):
    cpus = parse_cpuset(cpuset)
    assert cpus.bit_count() == 8
    return {numa for numa, of_node in choice.profile.machine.cpus_by_numa.items() if cpus & of_node}
