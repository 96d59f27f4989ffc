"""Pools of a node against an emulated kubelet, over real sockets: registered either way, rescanned, refused, kept."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.agent.sriov.sysfs_tree import HostTree
from tests.unit.lab.kubelet.rig import Node, container, running
from tests.unit.lab.kubelet.test_lab_plugin_watcher import watching as plugin_watching

from purser.agent.kubelet.calls import AllocateCall, PreferredAllocationCall
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.agent.kubelet.refusals import RefusalReason
from purser.agent.kubeletapi.podresources.v1 import api_pb2
from purser.agent.metrics import AgentMetrics
from purser.agent.reasons import AgentReason
from purser.agent.settings import AgentSettings, SriovSettings
from purser.agent.sriov import SriovPlugins, watching
from purser.kube.failures import ObjectFailures
from purser.lab.kubelet.admission import AdmissionError

NET, DPDK = "intel.com/net", "intel.com/dpdk"
POOLS = [
    {"resourceName": "net", "selectors": {"pfNames": ["ens1f0#0-3"]}},
    {"resourceName": "dpdk", "selectors": {"pfNames": ["ens1f0"], "drivers": ["vfio-pci"]}},
]


class Agent:
    """Pools alone, without the rest of an agent."""

    def __init__(self, folder, node, **sriov):
        self.node, self.host = node, HostTree(folder / "host")
        self.config = folder / "config.json"
        self.told, self.refused = [], []
        self.settings = AgentSettings(
            node_name="node-1",
            device_plugin_dir=node.plugin_folder,
            kubelet_dir=folder,
            state_dir=folder / "state",
            host_root=folder / "host",
            sriov=SriovSettings(config=self.config, **sriov),
            probe_interval_s=0.05,
            retry_initial_s=0.05,
        )
        self.configure(POOLS)

    def configure(self, pools):
        self.config.write_text(json.dumps({"resourceList": pools}))

    @asynccontextmanager
    async def running(self):
        async with KubeletBooks(self.node.folder / "pod-resources/kubelet.sock") as books:
            tell = lambda reason, message: self.told.append((reason, message))  # noqa: E731
            plugins = SriovPlugins(self.settings, books, AgentMetrics(), ObjectFailures(), tell, self.refused.append)
            task = asyncio.create_task(plugins.run())
            try:
                yield plugins
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def until_told(self, reason, text=""):
        async with asyncio.timeout(60):
            while True:
                for found, message in self.told:
                    if found is reason and text in message:
                        return message
                await asyncio.sleep(0.02)

    @property
    def device_information(self):
        folder = self.host.root / "run/k8s.cni.cncf.io/devinfo/dp"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
async def agent(folder):
    async with running(Node(folder)) as node:
        agent = Agent(folder, node)
        agent.host.pf("0000:18:00.0", "ens1f0", 6, numa=1)
        yield agent


def _vf(index):
    return HostTree.vf_address("0000:18:00.0", index)


def _asking(resource, count):
    return container("c", **{resource: str(count)})


async def _held(node, uid):
    return (await node.list())[f"pod-{uid}"]["c"]


async def test_a_pool_is_registered_handed_out_and_described(agent):
    node = agent.node
    async with agent.running():
        await node.until_capacity(4, resource=NET)
        assert (node.plugin_folder / "intel.com_net.sock").is_socket()
        assert DPDK in await agent.until_told(AgentReason.SRIOV_EMPTY)
        await node.admit("u1", _asking(NET, 2))
        assert await _held(node, "u1") == [_vf(0), _vf(1)]
        assert agent.device_information == [f"intel.com-net-{_vf(n)}-device.json" for n in (0, 1)]
        listed = (await node.list_raw()).pod_resources[0].containers[0].devices
        assert {each_node.ID for each in listed for each_node in each.topology.nodes} == {1}


async def test_a_device_that_a_container_holds_is_preferred_last_though_kubelet_offers_it(agent):
    node, every = agent.node, [_vf(n) for n in range(4)]
    async with agent.running() as plugins:
        await node.until_capacity(4, resource=NET)
        await node.admit("u1", _asking(NET, 1))
        arbiter = plugins._make_plugin(NET)._arbiter
        assert await arbiter.prefer(PreferredAllocationCall(2, tuple(every))) == (_vf(1), _vf(2))
        assert sorted(await arbiter.prefer(PreferredAllocationCall(4, tuple(every)))) == every
        assert _vf(0) in await arbiter.prefer(PreferredAllocationCall(2, tuple(every), (_vf(0),)))


async def test_kubelet_that_looks_for_plugins_finds_it_and_finds_it_again(agent):
    node = agent.node
    async with plugin_watching(node) as registry, agent.running():
        await node.until_capacity(4, resource=NET)
        socket = registry / "intel.com_net.sock"
        assert not (node.plugin_folder / "intel.com_net.sock").exists()
        await node.admit("u1", _asking(NET, 1))
        socket.unlink()
        await node.until_capacity(0, listed=4, resource=NET)
        await node.until_capacity(4, resource=NET)


async def test_vfs_drivers_and_links_are_followed_without_a_restart(agent):
    node, host = agent.node, agent.host
    async with agent.running():
        await node.until_capacity(4, resource=NET)
        host.bind(_vf(5), "vfio-pci", group=9)
        await node.until_capacity(1, resource=DPDK)
        host.set_vfs("0000:18:00.0", "ens1f0", 8, driver="vfio-pci")
        await node.until_capacity(1, listed=3, resource=DPDK)
        assert "no IOMMU group" in await agent.until_told(AgentReason.SRIOV_UNHEALTHY, DPDK)
        host.carrier("ens1f0", 0)
        await node.until_capacity(0, listed=4, resource=NET)
        assert await agent.until_told(AgentReason.SRIOV_UNHEALTHY, NET) == (
            f"intel.com/net: 4 of 4 devices are closed to new pods. {_vf(0)}, {_vf(1)}, {_vf(2)}, {_vf(3)}: "
            "the port of ens1f0 has no link"
        )
        host.carrier("ens1f0", 1)
        await node.until_capacity(4, resource=NET)


async def test_no_vf_is_lost_while_pods_hold_them_nor_by_a_restart(agent):
    node, host = agent.node, agent.host
    async with agent.running():
        await node.until_capacity(4, resource=NET)
        await node.admit("u1", _asking(NET, 2))
    for name in ("ens1f0v0", "ens1f0v1", "ens1f0"):
        host.move(name)
    agent.configure([{"resourceName": "other", "selectors": {"rootDevices": ["0000:18:00.0"]}}, *POOLS])
    async with agent.running():
        await node.until_capacity(2, listed=2, resource=NET)
        await node.until_capacity(4, resource="intel.com/other")
        host.drop_vfs("0000:18:00.0", keep=1)
        await node.until_capacity(1, listed=2, resource=NET)
        assert "no longer present on the node" in await agent.until_told(AgentReason.SRIOV_UNHEALTHY, NET)
        assert agent.device_information == [f"intel.com-net-{_vf(n)}-device.json" for n in (0, 1)]


async def test_a_device_that_left_its_pool_is_refused_and_not_left_out(agent):
    node = agent.node
    agent.settings = replace(agent.settings, probe_interval_s=60.0)
    async with agent.running() as plugins:
        await node.until_capacity(4, resource=NET)
        plugins._pools = {}  # between the change and kubelet's hearing of it
        with pytest.raises(AdmissionError, match=r"pool intel.com/net no longer contains .*, which kubelet chose"):
            await node.admit("u1", _asking(NET, 1))
        assert [each.reason.value for each in agent.refused] == ["SriovDeviceGone"]


async def test_device_information_that_cannot_be_written_is_a_refusal(agent):
    node = agent.node
    async with agent.running():
        await node.until_capacity(4, resource=NET)
        folder = agent.host.root / "run/k8s.cni.cncf.io/devinfo/dp"
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.touch()
        with pytest.raises(AdmissionError, match=r"cannot write the device information for intel\.com/net"):
            await node.admit("u1", _asking(NET, 1))
        assert [each.reason for each in agent.refused] == [RefusalReason.SRIOV_FILES]


async def test_a_file_that_cannot_be_read_leaves_the_pools_as_they_are(agent):
    node = agent.node
    async with agent.running():
        await node.until_capacity(4, resource=NET)
        agent.config.write_text('{"resourceList": 3}')
        message = await agent.until_told(AgentReason.SRIOV_CONFIG)
        assert message.startswith("the SR-IOV configuration")
        assert message.endswith(". The last valid configuration stays in effect.")
        await node.admit("u1", _asking(NET, 1))
        agent.configure([{"resourceName": "a.b", "deviceType": "accelerator", "selectors": {}}, _pool_of("ens1f0#0-4")])
        await node.until_capacity(5, resource=NET)
        assert "The pool is ignored" in await agent.until_told(AgentReason.SRIOV_CONFIG, "intel.com/a.b")


async def test_whatever_in_the_file_is_not_followed_is_told_once(agent):
    node, odd = agent.node, {"resourceName": "odd", "selectors": {"pfName": ["ens1f0"]}}
    agent.configure([odd, {"resourceName": "b", "selectors": {}, "deviceType": "vfio"}, *POOLS])
    async with agent.running():
        await node.until_capacity(4, resource=NET)
        for says in (
            "resourceList[0].selectors: unknown field pfName: use pfNames",
            "deviceType is vfio, but must be",
        ):
            assert await agent.until_told(AgentReason.SRIOV_CONFIG, says)
        agent.configure([odd, {"resourceName": "late", "selectors": {"pfNames": ["ens1f0#x"]}}, *POOLS])
        assert await agent.until_told(
            AgentReason.SRIOV_CONFIG, "pfNames: ens1f0#x does not name a PF or its VFs: must have the form PF, PF#1"
        )
        assert len([1 for _, message in agent.told if "unknown field pfName" in message]) == 1


def _pool_of(pf_name):
    return {**POOLS[0], "selectors": {"pfNames": [pf_name]}}


async def test_cdi_names_device_files_and_replaces_the_former_plugins_file(folder):
    async with running(Node(folder)) as node:
        agent = Agent(folder, node, uses_cdi=True)
        agent.host.pf("0000:18:00.0", "ens1f0", 2, vf_driver="vfio-pci")
        agent.host.bind(_vf(0), "vfio-pci", group=9)
        agent.host.bind(_vf(1), "vfio-pci", group=8)
        cdi = agent.host.root / "run/cdi"
        cdi.mkdir(parents=True)
        (cdi / "sriov-dp-intel.com-net-pci-dpdk.yaml").touch()
        (cdi / "others.yaml").touch()
        agent.configure(POOLS[1:])
        async with agent.running():
            await node.until_capacity(2, resource=DPDK)
            found = sorted(path.name for path in cdi.iterdir())
            assert found == ["others.yaml", "sriov-dp-intel.com-net-pci-dpdk.json"]
            specification = json.loads((cdi / found[1]).read_text())
            assert specification["kind"] == "intel.com/net-pci"
            assert [each["name"] for each in specification["devices"]] == [_vf(0), _vf(1)]
            paths = [each["path"] for each in specification["devices"][0]["containerEdits"]["deviceNodes"]]
            assert paths == ["/dev/vfio/vfio", "/dev/vfio/9"]
            assert "env" not in specification["containerEdits"]


async def test_a_container_that_holds_a_device_of_no_pool_finds_it_in_its_file(folder):
    """Of a pool that left the configuration, of which another pool has the rest."""
    async with running(Node(folder)) as node:
        agent = Agent(folder, node, uses_cdi=True)
        agent.host.pf("0000:18:00.0", "ens1f0", 3, vf_driver="vfio-pci")
        for index in range(3):
            agent.host.bind(_vf(index), "vfio-pci", group=index)
        cdi = agent.host.root / "run/cdi"
        agent.configure(POOLS[1:])
        async with agent.running():
            await node.until_capacity(3, resource=DPDK)
            await node.admit("u1", _asking(DPDK, 1))
            (held,) = await _held(node, "u1")
            agent.configure([{**POOLS[1], "resourceName": "other"}])
            await node.until_capacity(2, resource="intel.com/other")
            named = {path.name: _names(path) for path in cdi.iterdir()}
            assert named == {
                "sriov-dp-intel.com-net-pci-dpdk.json": [held],
                "sriov-dp-intel.com-net-pci-other.json": [_vf(n) for n in range(3) if _vf(n) != held],
            }


def _names(path):
    return [each["name"] for each in json.loads(path.read_text())["devices"]]


class Books:
    """kubelet's list, as told."""

    def __init__(self):
        self.held = None

    async def resources(self):
        if self.held is None:
            raise KubeletError("no answer")
        devices = [api_pb2.ContainerDevices(resource_name=name, device_ids=ids) for name, ids in self.held.items()]
        return [api_pb2.PodResources(containers=[api_pb2.ContainerResources(devices=devices)])]


@pytest.fixture
def pools(tmp_path, monkeypatch):
    """Without kubelet's sockets: one look at a time. Of two VFs the pool ``net`` has both."""
    node = SimpleNamespace(plugin_folder=tmp_path, folder=tmp_path)
    pools = Agent(tmp_path, node)
    pools.clock = 100.0
    monkeypatch.setattr(watching.time, "monotonic", lambda: pools.clock)
    pools.host.pf("0000:18:00.0", "ens1f0", 2)
    pools.books = Books()
    tell = lambda reason, message: pools.told.append((reason, message))  # noqa: E731
    plugins = SriovPlugins(pools.settings, pools.books, AgentMetrics(), ObjectFailures(), tell, pools.refused.append)

    async def look():
        await plugins._look()
        found = {}
        for each in plugins.devices.value:
            found.setdefault(each.resource, []).append(each.id)
        return found

    async def allocate(resource, id_):
        await plugins._make_plugin(resource)._arbiter.allocate(AllocateCall((id_,), resource))

    pools.look, pools.allocate, pools.plugins = look, allocate, plugins
    return pools


OTHER = [{"resourceName": "other", "selectors": {}}]


async def test_there_are_no_pools_before_kubelet_said_what_containers_hold(pools):
    assert await pools.look() == {}
    assert pools.plugins.problem.startswith("SR-IOV pools are not created until kubelet lists")
    pools.configure([*OTHER, *POOLS])
    pools.books.held = {NET: [_vf(1)]}
    assert await pools.look() == {"intel.com/other": [_vf(0)], NET: [_vf(1)]}
    assert pools.plugins.problem == pools.plugins.registration.connection.value.problem


async def test_while_kubelet_lists_nothing_a_new_configuration_waits(pools):
    pools.books.held = {}
    assert await pools.look() == {NET: [_vf(0), _vf(1)]}
    pools.books.held = None
    pools.configure(OTHER)
    assert await pools.look() == {NET: [_vf(0), _vf(1)]}
    pools.books.held = {}
    assert await pools.look() == {"intel.com/other": [_vf(0), _vf(1)]}


async def test_what_was_just_handed_out_is_held_until_kubelets_list_must_have_it(pools):
    pools.books.held = {}
    await pools.look()
    await pools.allocate(NET, _vf(1))
    pools.configure([*OTHER, *POOLS])
    assert await pools.look() == {"intel.com/other": [_vf(0)], NET: [_vf(1)]}
    pools.clock += watching.LISTING_TIMEOUT_S
    assert await pools.look() == {"intel.com/other": [_vf(0), _vf(1)]}


async def test_pools_stay_while_routes_cannot_be_read(pools):
    pools.books.held = {}
    before = await pools.look()
    (pools.host.root / "proc/1/net/route").unlink()
    pools.host.function("0000:19:00.0")
    pools.configure([*POOLS, *OTHER])
    assert await pools.look() == before
    assert pools.told[-1][0] is AgentReason.SRIOV_ROUTES


async def test_of_a_folder_the_nodes_own_file_counts(folder):
    async with running(Node(folder)) as node:
        agent = Agent(folder, node)
        agent.host.pf("0000:18:00.0", "ens1f0", 2)
        agent.config.unlink()
        agent.config.mkdir()
        every = {"resourceList": [{"resourceName": "all", "selectors": {}}]}
        (agent.config / "config.json").write_text(json.dumps(every))
        async with agent.running():
            await node.until_capacity(2, resource="intel.com/all")
            (agent.config / "node-1").write_text(json.dumps({"resourceList": POOLS[:1]}))
            await node.until_capacity(2, resource=NET)
