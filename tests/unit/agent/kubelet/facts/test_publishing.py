"""The whole agent beside a kubelet's real files: what it publishes on the Node, and when."""

from pathlib import Path

import pytest
import pytest_asyncio
from tests.unit.agent.builders import NODE
from tests.unit.agent.conftest import eventually, node_writes
from tests.unit.agent.emulated_kubelet import RESOURCE, Kubelet

from purser.agent.kubelet.facts import watching
from purser.agent.kubeletapi.podresources.v1 import api_pb2
from purser.core.kubelet import cpumanager
from purser.core.kubelet.config import CpuPolicy, KubeletConfig, TopologyPolicy
from purser.core.kubelet.cpumanager import checkpoint as cpu_file
from purser.core.kubelet.devicemanager import checkpoint as device_file
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.report import decode, node_of, state_of
from purser.core.kubelet.state import Allocation, CpuState, KubeletNode, KubeletState
from purser.core.names import KUBELET_ANNOTATION
from purser.kube.resources import NODES
from purser.lab.driver.sysfs_machine import write_machine

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

VERSION = "v1.33.0"
ALIGNED = """
kind: KubeletConfiguration
topologyManagerPolicy: restricted
cpuManagerPolicy: static
reservedSystemCPUs: "0"
"""
MACHINE = Machine(
    (NumaNode(0, {"memory": 8 << 30}, (10, 20)), NumaNode(1, {"memory": 8 << 30}, (20, 10))),
    tuple(Cpu(n, n // 4, n // 4, n, n // 4) for n in range(8)),
    2,
)
CONFIG = KubeletConfig(
    version=VERSION, topology_policy=TopologyPolicy.RESTRICTED, cpu_policy=CpuPolicy.STATIC, reserved_cpus="0"
)
NIC = "example.com/nic"


class TellingKubelet(Kubelet):
    """Knows a NIC on each NUMA node besides the GPUs."""

    async def GetAllocatableResources(self, request, context):
        devices = [
            api_pb2.ContainerDevices(
                resource_name=NIC,
                device_ids=[f"nic-{node}"],
                topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=node)]),
            )
            for node in (0, 1)
        ]
        gpus = api_pb2.ContainerDevices(resource_name=RESOURCE, device_ids=list(self.devices))
        return api_pb2.AllocatableResourcesResponse(devices=[*devices, gpus])


@pytest_asyncio.fixture(loop_scope="module")
async def kubelet(folder):
    kubelet = TellingKubelet(folder)
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


class Files:
    """kubelet's root folder, and the node as its agent has it published."""

    def __init__(self, folder: Path, world, kubelet, reports):
        self.folder, self.world, self.kubelet, self.reports = folder, world, kubelet, reports
        write_machine(folder / "sys", MACHINE)
        self.settings = {"kubelet_dir": folder, "sysfs_root": folder / "sys"}

    def write(self, name, text):
        """As kubelet does: whole, or not at all."""
        temporary = self.folder / f".{Path(name).name}"
        temporary.write_text(text)
        temporary.replace(self.folder / name)

    def write_all(self, exclusive=None, held=None):
        """What kubelet's managers write: GPUs as its plugin tells them, a NIC on each NUMA node."""
        cpus = cpumanager.start(KubeletNode(CONFIG, MACHINE))
        taken = sum((exclusive or {}).values())
        self.write(cpu_file.FILE_NAME, cpu_file.encode(CpuState(cpus.default & ~taken, 0, exclusive or {})))
        registered = {NIC: ("nic-0", "nic-1"), RESOURCE: tuple(self.kubelet.devices)}
        self.write(f"device-plugins/{device_file.FILE_NAME}", device_file.encode(held or {}, registered))

    async def report(self):
        node = await self.world.client.get(NODES, NODE)
        text = node.metadata.annotations.get(KUBELET_ANNOTATION)
        return None if text is None else decode(text)

    async def read_anew(self, write):
        """Write, and return once the agent has made a report of that, and has published whatever it had to."""
        made = len(self.reports)
        write()
        await eventually(lambda: len(self.reports) > made)
        await self.world.published_again()


@pytest_asyncio.fixture(loop_scope="module")
async def files(folder, world, kubelet, monkeypatch):
    body = {"status": {"nodeInfo": {"kubeletVersion": VERSION}}}
    await world.client.patch_merge(NODES, NODE, body, subresource="status")
    assemble, reports = watching.assemble, []

    def noted(*args):
        reports.append(assemble(*args))
        return reports[-1]

    monkeypatch.setattr(watching, "assemble", noted)
    return Files(folder, world, kubelet, reports)


async def test_what_kubelet_has_is_published_and_every_change_of_it(files, world, kubelet):
    files.write("config.yaml", ALIGNED)
    async with world.agent(**files.settings) as agent:
        await eventually(lambda: len(kubelet.devices) == 16)
        files.write_all()
        await eventually(agent.ready)

        report = await eventually(lambda: _with_gpus(files, 16))
        assert node_of(report).config == CONFIG
        assert node_of(report).machine.numa_nodes == MACHINE.numa_nodes
        state = state_of(report)
        assert state.cpus == CpuState(0xFF, reserved=0b1)
        assert [d.numa_nodes for _, d in sorted(state.devices.resources[NIC].devices.items())] == [(0,), (1,)]
        assert state.devices.resources[RESOURCE].healthy == frozenset(kubelet.devices)

        key, gpu = ("uid", "main"), sorted(kubelet.devices)[0]
        files.write_all({key: 0b110}, {key: {RESOURCE: Allocation({-1: (gpu,)})}})
        report = await eventually(lambda: _with_holder(files, key))
        assert state_of(report).cpus == CpuState(0b11111001, 0b1, {key: 0b110})
        assert state_of(report).devices.held[key][RESOURCE].device_ids == {gpu}
        assert await agent.metric("purser_agent_kubelet_facts_missing", part="cpus") == 0


async def _with_gpus(files, count):
    report = await files.report()
    gpus = state_of(report).devices.resources.get(RESOURCE) if report else None
    return report if gpus and len(gpus.devices) == count else None


async def _with_holder(files, key):
    report = await files.report()
    cpus = state_of(report).cpus if report else None
    return report if cpus and key in cpus.exclusive and key in state_of(report).devices.held else None


async def test_files_that_say_the_same_are_not_published_again(files, world, kubelet, api):
    files.write("config.yaml", ALIGNED)
    async with world.agent(**files.settings) as agent:
        await eventually(lambda: len(kubelet.devices) == 16)
        files.write_all({("uid", "main"): 0b110})
        await eventually(agent.ready)
        before = await eventually(lambda: _with_cpus(files))
        await world.published_again()
        with node_writes(api) as written:
            await files.read_anew(lambda: files.write_all({("uid", "main"): 0b110}))
        assert written == [f"/api/v1/nodes/{NODE}"] * 2
        assert await files.report() == before


async def _with_cpus(files):
    report = await _with_gpus(files, 16)
    return report if report and report.cpus is not None else None


async def test_with_a_broken_file_the_configuration_is_reported_until_it_is_whole_again(files, world, kubelet):
    files.write("config.yaml", ALIGNED)
    files.write_all()
    files.write(cpu_file.FILE_NAME, '{"policyName":"static","checksum":1}')
    async with world.agent(**files.settings) as agent:
        await eventually(agent.ready)

        async def cpus_are(missing):
            report = await files.report()
            told = await agent.metric("purser_agent_kubelet_facts_missing", part="cpus")
            return report and (report.cpus is None) is missing and told == missing

        await eventually(lambda: cpus_are(True))
        assert state_of(await files.report()) == KubeletState()
        assert (await files.report()).config == CONFIG
        assert await agent.ready(), "the scheduler predicts less, and everything else works"
        files.write_all()
        await eventually(lambda: cpus_are(False))


async def test_a_kubelet_that_aligns_nothing_publishes_its_configuration_and_no_pod_changes_it(files, world, kubelet):
    files.write("config.yaml", "kind: KubeletConfiguration")
    async with world.agent(**files.settings) as agent:
        await eventually(agent.ready)
        report = await eventually(files.report)
        assert (node_of(report), state_of(report)) == (
            KubeletNode(KubeletConfig(version=VERSION), Machine()),
            KubeletState(),
        )
        await files.read_anew(lambda: files.write_all({("uid", "main"): 0b10}))
        assert await files.report() == report


async def test_an_edited_configuration_counts_when_kubelet_starts_again(files, world, kubelet):
    files.write("config.yaml", "kind: KubeletConfiguration")
    async with world.agent(**files.settings) as agent:
        await eventually(agent.ready)
        await eventually(files.report)
        edited = "kind: KubeletConfiguration\ntopologyManagerPolicy: restricted"
        await files.read_anew(lambda: files.write("config.yaml", edited))
        assert (await files.report()).config.topology_policy is TopologyPolicy.NONE
        await kubelet.restart()

        async def is_restricted():
            return (await files.report()).config.topology_policy is TopologyPolicy.RESTRICTED

        await eventually(is_restricted)


async def test_without_a_configuration_nothing_is_reported(files, world, kubelet):
    stale = {"metadata": {"annotations": {KUBELET_ANNOTATION: "of another agent"}}}
    await world.client.patch_merge(NODES, NODE, stale)
    async with world.agent(**files.settings) as agent:
        await eventually(agent.ready)

        async def is_gone():
            node = await world.client.get(NODES, NODE)
            return KUBELET_ANNOTATION not in node.metadata.annotations

        await eventually(is_gone)
        assert await agent.metric("purser_agent_kubelet_facts_missing", part="config") == 1
        files.write("config.yaml", "kind: KubeletConfiguration")
        assert await eventually(files.report)


async def test_a_removed_report_is_published_again(files, world, kubelet):
    files.write("config.yaml", "kind: KubeletConfiguration")
    async with world.agent(**files.settings):
        before = await eventually(files.report)
        gone = {"metadata": {"annotations": {KUBELET_ANNOTATION: None}}}
        await world.client.patch_merge(NODES, NODE, gone)
        assert await eventually(files.report) == before
