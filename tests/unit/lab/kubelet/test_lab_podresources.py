"""What PodResources says of devices, CPUs and memory, by kubelet's version."""

import asyncio

import grpc
import pytest
from tests.unit.lab.kubelet.rig import GPU, Node, Plugin, container, devices, register, running, serving

from purser.agent.kubeletapi.podresources.v1 import api_pb2

GIB = 2**30
STATIC = {
    "topologyManagerPolicy": "single-numa-node",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
}


def guaranteed(name, gpus=0, cpus=2, memory="1Gi"):
    return container(name, gpus, cpu=str(cpus), memory=memory)


@pytest.fixture
async def static_node(folder):
    async with running(Node(folder, **STATIC)) as node, serving(node, Plugin({0: "ab", 1: "cd"})):
        await register(node)
        await node.until_capacity(4)
        yield node


async def only_container(node):
    (pod,) = (await node.list_raw()).pod_resources
    (found,) = pod.containers
    return found


def by_node(found):
    return {tuple(n.ID for n in each.topology.nodes): sorted(each.device_ids) for each in found.devices}


async def test_devices_cpus_and_memory_are_on_the_numa_node_that_was_chosen(static_node):
    await static_node.admit("u1", guaranteed("c", gpus=2))
    found = await only_container(static_node)
    assert by_node(found) == {(0,): ["a", "b"]}
    assert list(found.cpu_ids) == [1, 9]
    assert [(m.memory_type, m.size, [n.ID for n in m.topology.nodes]) for m in found.memory] == [("memory", GIB, [0])]


async def test_devices_are_listed_for_each_numa_node(folder):
    async with running(Node(folder)) as node, serving(node, Plugin({0: "ab", 1: "cd"})):
        await register(node)
        await node.until_capacity(4)
        await node.admit("u1", container("c", 3))
        assert by_node(await only_container(node)) == {(0,): ["b"], (1,): ["c", "d"]}


async def test_a_device_without_a_place_has_no_topology(node, plugin):
    await node.admit("u1", container("c", 1))
    (found,) = (await only_container(node)).devices
    assert not found.HasField("topology")


@pytest.mark.parametrize(
    ("version", "shared"), [("v1.36.2", []), ("v1.20.2", list(range(16)))], ids=["1.36 none", "1.20 the shared pool"]
)
async def test_cpus_of_a_container_without_its_own(folder, version, shared):
    async with running(Node(folder, version, cpuManagerPolicy="static")) as node:
        await node.admit("u1", container("c"))
        assert list((await only_container(node)).cpu_ids) == shared


async def test_what_can_be_given_out_is_reported_with_its_place(static_node):
    async with static_node.pod_resources() as stub:
        found = await stub.GetAllocatableResources(api_pb2.AllocatableResourcesRequest())
    assert [(d.resource_name, *d.device_ids, d.topology.nodes[0].ID) for d in found.devices] == [
        (GPU, "a", 0),
        (GPU, "b", 0),
        (GPU, "c", 1),
        (GPU, "d", 1),
    ]
    assert list(found.cpu_ids) == [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15]
    assert [m.size for m in found.memory] == [8 * GIB - 100 * 2**20, 8 * GIB]


async def test_without_static_policies_only_devices_can_be_given_out(node, plugin):
    async with node.pod_resources() as stub:
        found = await stub.GetAllocatableResources(api_pb2.AllocatableResourcesRequest())
    assert (len(found.devices), list(found.cpu_ids), list(found.memory)) == (3, [], [])


async def test_one_pod_is_reported_by_name(static_node):
    await static_node.admit("u1", guaranteed("c", gpus=1))
    async with static_node.pod_resources() as stub:
        found = await stub.Get(api_pb2.GetPodResourcesRequest(pod_name="pod-u1", pod_namespace="default"))
        assert found.pod_resources.containers[0].devices[0].resource_name == GPU
        with pytest.raises(grpc.aio.AioRpcError, match="pod none in namespace default not found"):
            await stub.Get(api_pb2.GetPodResourcesRequest(pod_name="none", pod_namespace="default"))


@pytest.mark.parametrize(
    ("version", "get", "allocatable"),
    [
        ("v1.36.2", "pod p in namespace default not found", ""),
        ("v1.33.0", "PodResources API Get method disabled", ""),
        ("v1.26.0", "unknown method Get for service v1.PodResourcesLister", ""),
        ("v1.22.0", "unknown method Get", "Pod Resources API GetAllocatableResources disabled"),
        ("v1.20.2", "unknown method Get", "unknown method GetAllocatableResources"),
    ],
)
async def test_older_kubelets_know_fewer_methods(folder, version, get, allocatable):
    async with running(Node(folder, version)) as node, node.pod_resources() as stub:
        for expected, call in (
            (get, stub.Get(api_pb2.GetPodResourcesRequest(pod_name="p", pod_namespace="default"))),
            (allocatable, stub.GetAllocatableResources(api_pb2.AllocatableResourcesRequest())),
        ):
            said = ""
            try:
                await call
            except grpc.aio.AioRpcError as error:
                said = error.details()
            assert said.startswith(expected)
            assert bool(said) is bool(expected)


async def test_a_list_of_devices_that_comes_in_the_midst_of_an_admission_counts_for_the_next_container(folder):
    plugin = Plugin({0: "ab", 1: "cd"})
    async with running(Node(folder)) as node, serving(node, plugin):
        await register(node)
        await node.until_capacity(4)

        async def lose_a_card():
            plugin.devices.put_nowait(devices({0: "ab", 1: "d"}))
            await node.until_capacity(3)

        plugin.during_allocate = lose_a_card
        async with asyncio.timeout(60):
            await node.admit("u1", container("one", 1), container("two", 1))
        assert node.books.forget_expired(0.0).allocatable == {GPU: 3}
        assert await node.list() == {"pod-u1": {"one": ["d"], "two": ["b"]}}


async def test_a_pod_that_is_over_has_no_devices(node, plugin):
    for uid in ("u1", "u2"):
        await node.admit(uid, container("c", 1))
    node.over.add("u1")
    assert await node.list() == {"pod-u1": {"c": []}, "pod-u2": {"c": ["b"]}}


async def test_nobody_who_asks_writes(static_node):
    await static_node.admit("u1", guaranteed("c", gpus=1))
    static_node.over.add("u1")
    before = static_node.books.state
    await static_node.list()
    async with static_node.pod_resources() as stub:
        await stub.GetAllocatableResources(api_pb2.AllocatableResourcesRequest())
    assert static_node.books.state is before
