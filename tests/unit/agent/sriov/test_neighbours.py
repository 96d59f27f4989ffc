"""VFs near a pod's GPUs, by its grant: kubelet asks for both in either order, against a tree of sysfs."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest
from tests.unit.agent.sriov.sysfs_tree import HostTree
from tests.unit.agent.sriov.test_sriov_plugins import Agent as Pools
from tests.unit.core.sriov.sriov_builders import config, entry
from tests.unit.core.sriov.sriov_builders import node as node_of
from tests.unit.core.sriov.sriov_builders import vf as a_vf
from tests.unit.lab.kubelet.rig import Node, Plugin, container, register, running, serving

from purser.adapters.nodes import published_inventory
from purser.agent.allocation.pods import LivePods
from purser.agent.host.latest import Latest
from purser.agent.host.sysfs import pcie_switches
from purser.agent.kubelet.pod_resources import KubeletBooks
from purser.agent.kubelet.refusals import RefusalReason
from purser.agent.metrics import AgentMetrics
from purser.agent.reasons import AgentReason
from purser.agent.sriov import GpuNeighbours, SriovPlugins
from purser.agent.sriov.neighbours import build_node_pools, truncate_to_limits
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceShare,
    Grant,
    NodeInventory,
    PoolPlace,
    PoolShare,
)
from purser.core.names import INVENTORY_ANNOTATION
from purser.core.sriov.pcie import NodePcie, with_pcie
from purser.core.sriov.pools import make_pools
from purser.kube.failures import ObjectFailures
from purser.kube.objects import Node as NodeObject
from purser.kube.objects import ObjectMeta
from purser.lab.kubelet.admission import AdmissionError

FIRST, LAST = "aa.com/net", "zz.com/net"
"""kubelet's twin asks for resources by name: for these before and after GPUs."""

SWITCHES = {number: (f"0000:{bus}:00.0", f"0000:{bus}:1f.0") for number, bus in enumerate(("3a", "5d"))}
PFS = ("0000:18:00.0", "0000:6a:00.0")
GPUS = {"GPU-a": ("0000:3b:00.0", 0), "GPU-b": ("0000:5e:00.0", 1)}


def bridge(number, port):
    root, upstream = SWITCHES[number]
    return f"{root.removeprefix('0000:')}/{upstream}/{upstream[:8]}{port:02x}.0"


def vf(number, index):
    return HostTree.vf_address(PFS[number], index)


class World:
    """A node with two switches, each with a GPU and a PF of two VFs; on it kubelet and the agent's pools."""

    def __init__(self, folder, node, resource):
        self.pools, self.node, self.resource = Pools(folder, node), node, resource
        prefix, _, name = resource.partition("/")
        self.pools.configure(
            [{"resourceName": name, "resourcePrefix": prefix, "selectors": {"pfNames": ["ens0", "ens1"]}}]
        )
        host = self.pools.host
        for number, pf in enumerate(PFS):
            host.pf(pf, f"ens{number}", 2, numa=number, bridge=bridge(number, 2))
        for address, number in GPUS.values():
            host.function(address, vendor="10de", kind="030200", driver="", numa=number, bridge=bridge(number, 3))
        devices = tuple(Device(uuid, n, "T4", 1000, pci_bus_id=f"0000{at}") for uuid, (at, n) in GPUS.items())
        self.inventory = Latest(NodeInventory("node-1", devices))
        self.grants, self.seen, self.apart = {}, {}, []

    def get(self, key):
        return self.seen.get(key)

    def view(self, fetched=None):
        return LivePods(
            {key: grant for key, grant in self.grants.items() if {**self.seen, **(fetched or {})}.get(key)}, {}
        )

    async def fetch(self, keys):
        """The informer is behind kubelet; it has what was fetched the next time."""
        found = {key: SimpleNamespace() for key in keys if key in self.grants}
        self.seen |= found
        return found

    def grant(self, uid, gpu, *places, required=False):
        parts = (ContainerGrant("c", ContainerKind.APP, (DeviceShare(gpu, 1, 100),)),)
        shares = tuple(PoolShare("c", self.resource, SWITCHES[number][-1], count) for number, count in places)
        self.grants[f"default/pod-{uid}"] = Grant(
            uid, "default", f"pod-{uid}", "node-1", parts, False, shares, required
        )

    def asking(self, count, gpus=1):
        return container("c", gpus, **{self.resource: str(count)})

    async def held(self, uid):
        listed = (await self.node.list())[f"pod-{uid}"]["c"]
        return [id_ for id_ in listed if id_.startswith("0000:")]

    @asynccontextmanager
    async def running(self, capacity=4):
        async with KubeletBooks(self.node.folder / "pod-resources/kubelet.sock") as books:
            neighbours = GpuNeighbours(books, self, self.inventory, lambda pod, message: self.apart.append(message))
            self.plugins = SriovPlugins(
                self.pools.settings, books, AgentMetrics(), ObjectFailures(),
                lambda *told: self.pools.told.append(told), self.pools.refused.append, neighbours,
            )  # fmt: skip
            task = asyncio.create_task(self.plugins.run())
            try:
                await self.node.until_capacity(capacity, resource=self.resource)
                yield self.plugins
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def until_published(self, *counts):
        async with asyncio.timeout(60):
            while True:
                found = self.plugins.pcie.value
                if found is not None and [place.count for pool in found.pools for place in pool.places] == list(counts):
                    return found
                await asyncio.sleep(0.02)


@pytest.fixture(params=[FIRST, LAST], ids=["the VF first", "the GPU first"])
async def world(folder, request):
    async with running(Node(folder)) as node:
        world = World(folder, node, request.param)
        world.gpus = Plugin([f"{uuid}::{slot}" for uuid in GPUS for slot in range(4)])
        async with serving(node, world.gpus):
            await register(node)
            await node.until_capacity(8)
            yield world


async def test_the_vf_is_near_the_gpu_whichever_kubelet_asks_for_first(world):
    async with world.running():
        for uid, gpu, number in (("u1", "GPU-b", 1), ("u2", "GPU-b", 1), ("u3", "GPU-a", 0)):
            world.grant(uid, gpu, (number, 1))
            await world.node.admit(uid, world.asking(1))
            assert await world.held(uid) in ([vf(number, 0)], [vf(number, 1)])
        found = await world.until_published(2, 2)
        assert found.gpus == {uuid: SWITCHES[number] for uuid, (_, number) in GPUS.items()}
        assert [place.switches for place in found.pools[0].places] == list(SWITCHES.values())
        assert not world.apart


async def test_an_agent_that_restarts_between_the_two_calls_goes_by_the_same_grant(world):
    """kubelet would fail the pod while no plugin answers: a new one is there by the second call."""
    world.grant("u1", "GPU-b", (1, 2), required=True)
    agents = world.running()
    await agents.__aenter__()
    again = world.running()

    async def restart():
        await agents.__aexit__(None, None, None)
        await again.__aenter__()

    world.gpus.during_allocate = restart
    await world.node.admit("u1", world.asking(2))
    assert await world.held("u1") == [vf(1, 0), vf(1, 1)]
    await world.until_published(2, 2)
    await again.__aexit__(None, None, None)


@pytest.mark.parametrize("required", [True, False], ids=["required", "preferred"])
async def test_a_pod_whose_vfs_others_took_is_refused_or_told(world, required):
    async with world.running():
        world.seen["default/pod-other"] = SimpleNamespace()
        await world.node.admit("other", world.asking(3, gpus=0))  # without a grant: what is left is elsewhere
        [left] = {vf(number, index) for number in (0, 1) for index in (0, 1)} - set(await world.held("other"))
        number = 0 if left.startswith(PFS[1][:7]) else 1
        world.grant("u1", "GPU-a" if number == 0 else "GPU-b", (number, 1), required=required)
        world.seen["default/pod-u1"] = SimpleNamespace()
        if required:
            with pytest.raises(AdmissionError, match="0 of 1 GPU has its network device under the same PCIe switch"):
                await world.node.admit("u1", world.asking(1))
            (refusal,) = world.pools.refused
            assert (refusal.reason, refusal.pods) == (RefusalReason.NIC_APART, ("default/pod-u1",))
        else:
            await world.node.admit("u1", world.asking(1))
            [said] = world.apart
            assert said.startswith(
                "container c: 0 of 1 GPU has its network device under the same PCIe switch, but the grant"
            )
            await world.until_published(*((1, 0) if number == 0 else (0, 1)))


async def test_what_takes_no_pods_or_is_held_without_a_grant_is_not_offered(world):
    async with world.running():
        world.pools.host.carrier("ens0", 0)
        await world.until_published(0, 2)
        await world.node.until_capacity(2, 4, world.resource)
        await world.node.admit("other", world.asking(1, gpus=0))
        await world.until_published(0, 1)
        world.pools.host.carrier("ens0", 1)
        await world.until_published(2, 1)


@pytest.mark.parametrize(("numa_nodes", "told"), [((0, None), None), ((0, 1), None), ((0, 0), 0)])
def test_devices_below_one_switch_are_one_place_whatever_their_numa_nodes(numa_nodes, told):
    switches = SWITCHES[0]
    devices = [msgspec.structs.replace(a_vf(n, switches=switches), numa_node=each) for n, each in enumerate(numa_nodes)]
    [found] = build_node_pools(make_pools(config(entry()), node_of(*devices), {}), [], {})
    assert found.places == (PoolPlace(switches, 2, told),)
    text = msgspec.json.encode(NodeInventory("n", pools=(found,))).decode()
    assert published_inventory(
        NodeObject(metadata=ObjectMeta(name="n", annotations={INVENTORY_ANNOTATION: text}))
    ).pools == (found,)


def test_an_inventory_has_room_for_what_is_published():
    """However a node looks: the scheduler takes no larger one."""
    devices = [a_vf(n, switches=(f"0000:{n:02x}:1f.0",)) for n in range(100)]
    pools = [
        msgspec.structs.replace(pool, config=msgspec.structs.replace(pool.config, name=f"p{n}"))
        for pool in make_pools(config(entry()), node_of(*devices), {})
        for n in range(40)
    ]
    found, left_out = truncate_to_limits(build_node_pools(pools, [], {}))
    assert left_out == (
        "The scheduler cannot pair GPUs with devices from intel.com/p16, intel.com/p17, intel.com/p18, "
        "intel.com/p19 (and 20 more), because the node has 40 pools with devices, but only 16 can be published; "
        "or from parts of intel.com/p0, intel.com/p1, intel.com/p2, intel.com/p3 (and 12 more), "
        "because they span more than 32 PCIe switches or NUMA nodes"
    )
    assert (len(found), {len(pool.places) for pool in found}) == (16, {32})
    inventory = with_pcie(NodeInventory("n"), NodePcie(pools=found))
    assert msgspec.json.decode(msgspec.json.encode(inventory), type=NodeInventory) == inventory
    assert with_pcie(NodeInventory("n"), NodePcie({"a": ("b",)})) == NodeInventory("n")


@pytest.mark.parametrize("world", [FIRST], indirect=True)
async def test_pools_that_the_scheduler_does_not_learn_of_are_told_once(world):
    prefix = world.resource.partition("/")[0]
    world.pools.host.set_vfs(PFS[0], "ens0", 18)
    selectors = {"net": ["ens0#0", "ens1"], **{f"more{number}": [f"ens0#{number}"] for number in range(1, 18)}}
    world.pools.configure([entry(name, {"pfNames": each}, resourcePrefix=prefix) for name, each in selectors.items()])
    async with world.running(capacity=3):
        message = await world.pools.until_told(AgentReason.SRIOV_UNPUBLISHED)
        assert "devices from aa.com/more16, aa.com/more17, because the node has 18 pools" in message
        world.pools.host.carrier("ens1", 0)
        await world.until_published(1, 0, *[1] * 15)
        assert [reason for reason, _ in world.pools.told].count(AgentReason.SRIOV_UNPUBLISHED) == 1
        assert "aa.com/more17" not in {pool.resource for pool in world.plugins.pcie.value.pools}


def test_switches_are_the_bridges_above_a_device(tmp_path):
    host = HostTree(tmp_path)
    nested = host.function("0000:90:00.0", bridge="16:00.0/0000:17:00.0/0000:18:04.0/0000:19:00.0/0000:1a:02.0")
    assert pcie_switches(nested) == ("0000:16:00.0", "0000:17:00.0", "0000:18:04.0", "0000:19:00.0")
    assert pcie_switches(host.function("0000:91:00.0", bridge="16:00.0")) == ()
    assert pcie_switches(host.pci / "0000:99:00.0") == ()
    behind = "0e:00.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0/10000:e2:00.0"
    assert pcie_switches(host.function("10000:e3:00.0", bridge=behind)) == ("10000:e0:01.0", "10000:e1:00.0")
    deep = "/".join(f"0000:{bus:02x}:00.0" for bus in range(40)).removeprefix("0000:")
    assert len(pcie_switches(host.function("0000:92:00.0", bridge=deep))) == 8
    loop = host.pci / "0000:93:00.0"
    loop.symlink_to(loop)
    assert pcie_switches(loop) == ()


def test_places_without_switches_are_told_apart_by_numa_node():
    assert [PoolPlace((), 1, node).id for node in (None, 0, 3)] == ["", "numa-0", "numa-3"]
