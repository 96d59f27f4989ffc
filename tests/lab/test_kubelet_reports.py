"""What the agent publishes of a lab's kubelet is what that kubelet itself goes by, field for field."""

import pytest
from msgspec.structs import replace

from purser.core.kubelet.config import CpuPolicy, MemoryPolicy
from purser.core.kubelet.report import decode, node_of, state_of
from purser.core.kubelet.state import Allocation, KubeletState
from purser.core.names import GPU_RESOURCE, KUBELET_ANNOTATION
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.kubelet.books import Books
from purser.lab.kubelet.configuration import KubeletSection
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.waiting import eventually

OLD = KubeletSection(version="v1.20.2", cpuManagerPolicy=CpuPolicy.STATIC)
NEW = KubeletSection(version="v1.33.0", cpuManagerPolicy=CpuPolicy.STATIC, memoryManagerPolicy=MemoryPolicy.STATIC)


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


def without_responses(state: KubeletState) -> KubeletState:
    """What a report can tell: no plugin's answers, no merged hints."""
    held = {
        key: {name: Allocation(one.devices_per_numa) for name, one in of.items()}
        for key, of in state.devices.held.items()
    }
    return replace(state, devices=replace(state.devices, held=held), hints={})


@pytest.mark.parametrize(
    "kubelet", [pytest.param(OLD, id="1.20.2"), pytest.param(NEW, id="1.33.0", marks=pytest.mark.gate)]
)
async def test_the_report_is_what_kubelet_goes_by_also_after_a_restart(kubelet, opened, quiet_logs):
    settings = LabSettings(node_choices(["t4-4"]), kubelet=kubelet)
    async with Lab(settings) as lab:
        async with waiting.limit():
            await lab.ready()
        name = next(iter(lab.nodes))
        for number in range(2):
            limits = {"cpu": "3", "memory": "4Gi", GPU_RESOURCE: "2"}
            spec = {"containers": [{"name": "c", "image": "busybox", "resources": {"limits": limits}}]}
            await lab.client.create(PODS, {"metadata": {"name": f"p{number}"}, "spec": spec}, "default")

        async def is_published():
            node = await lab.client.get(NODES, name)
            text = node.metadata.annotations.get(KUBELET_ANNOTATION)
            if text is None:
                return False
            report, books = decode(text), opened[-1]
            return node_of(report) == books.node and state_of(report) == without_responses(books.state)

        async def are_running():
            return {pod.status.phase for pod in (await lab.client.list(PODS)).items} == {"Running"}

        await eventually(are_running)
        assert len(opened[-1].state.devices.held) == 2
        assert len(opened[-1].state.cpus.exclusive) == 2
        await eventually(is_published)
        await lab.restart_kubelet(name)
        await eventually(is_published)
        assert len(opened) == 2
