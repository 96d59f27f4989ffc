"""The kubelet's sockets, with a real plugin on the other end."""

import asyncio
import json
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import grpc
import pytest

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.agent.kubeletapi.podresources.v1 import api_pb2 as pod_pb2
from purser.agent.kubeletapi.podresources.v1 import api_pb2_grpc as pod_grpc
from purser.kube.clock import SystemClock
from purser.lab.kubelet import checkpoint
from purser.lab.kubelet.admission import Admission, AdmissionError, run_options
from purser.lab.kubelet.devicemanager import DeviceManager
from purser.lab.kubelet.plugins import CHANNEL_OPTIONS, PluginServer, is_extended_resource
from purser.lab.kubelet.podresources import ListedPod, PodResourcesServer
from purser.lab.kubelet.pods import containers_of

GPU = "nvidia.com/gpu"


class Plugin(api_pb2_grpc.DevicePluginServicer):
    """Prefers the last ids, and answers with an environment that names them."""

    def __init__(self, node, ids=("a", "b", "c")):
        self.node = node
        self.devices = asyncio.Queue()
        self.devices.put_nowait([api_pb2.Device(ID=id_, health="Healthy") for id_ in ids])
        self.calls = []
        self.during_allocate = None
        self.failure = None

    async def GetDevicePluginOptions(self, request, context):
        self.calls.append(("options",))
        return api_pb2.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    async def ListAndWatch(self, request, context):
        while (devices := await self.devices.get()) is not None:
            yield api_pb2.ListAndWatchResponse(devices=devices)

    async def GetPreferredAllocation(self, request, context):
        asked = request.container_requests[0]
        self.calls.append(("preferred", sorted(asked.available_deviceIDs), asked.allocation_size))
        ids = sorted(asked.available_deviceIDs)[-asked.allocation_size :]
        return api_pb2.PreferredAllocationResponse(
            container_responses=[api_pb2.ContainerPreferredAllocationResponse(deviceIDs=ids)]
        )

    async def Allocate(self, request, context):
        ids = list(request.container_requests[0].devices_ids)
        self.calls.append(("allocate", ids))
        if self.failure:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.failure)
        if self.during_allocate:
            await self.during_allocate()
        env = {"VISIBLE": ",".join(ids)}
        return api_pb2.AllocateResponse(container_responses=[api_pb2.ContainerAllocateResponse(envs=env)])

    async def PreStartContainer(self, request, context):
        self.calls.append(("pre-start", list(request.devices_ids)))
        return api_pb2.PreStartContainerResponse()


class Node:
    """The parts of a kubelet that need no API server."""

    def __init__(self, folder, version=(1, 36)):
        self.folder = folder
        self.manager = DeviceManager(version, Random(1))
        self.changed = asyncio.Event()
        self.plugins = PluginServer(folder / "device-plugins", self.manager, SystemClock(), self.changed.set)
        self.pods = {}
        self.checkpoint = folder / "device-plugins" / checkpoint.FILE_NAME
        self.admission = Admission(self.manager, self.plugins, self.checkpoint, self.free_unused)
        self.resources = PodResourcesServer(folder / "pod-resources", self.manager, self.listed)

    def free_unused(self):
        self.manager.free_all_but(set(self.pods))

    def listed(self):
        return [
            ListedPod(uid, "default", pod["metadata"]["name"], tuple(c.name for c in containers_of(pod)))
            for uid, pod in self.pods.items()
        ]

    async def admit(self, uid, *containers, init=()):
        pod = {
            "metadata": {"uid": uid, "name": f"pod-{uid}", "namespace": "default"},
            "spec": {"containers": list(containers), "initContainers": list(init)},
        }
        self.pods[uid] = pod
        await self.admission.admit(pod)
        return pod

    async def list(self):
        target = f"unix:{self.folder / 'pod-resources' / 'kubelet.sock'}"
        async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
            answer = await pod_grpc.PodResourcesListerStub(channel).List(pod_pb2.ListPodResourcesRequest())
        return {
            pod.name: {c.name: sorted(id_ for d in c.devices for id_ in d.device_ids) for c in pod.containers}
            for pod in answer.pod_resources
        }

    async def until_capacity(self, healthy, listed=None):
        async with asyncio.timeout(10):
            while True:
                now = self.manager.capacity(0.0)
                if now.allocatable.get(GPU) == healthy and now.capacity.get(GPU) == (listed or healthy):
                    return
                await self.changed.wait()
                self.changed.clear()


def container(name, gpus=0):
    return {"name": name, "resources": {"limits": {GPU: str(gpus)} if gpus else {}}}


@asynccontextmanager
async def running(node):
    await node.plugins.start()
    await node.resources.start()
    try:
        yield node
    finally:
        await node.plugins.stop()
        await node.resources.stop()


@asynccontextmanager
async def serving(node, plugin, name="fake.sock"):
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix:{node.folder / 'device-plugins' / name}")
    await server.start()
    try:
        yield plugin
    finally:
        await server.stop(None)


async def register(node, version="v1beta1", endpoint="fake.sock", resource=GPU):
    target = f"unix:{node.folder / 'device-plugins' / 'kubelet.sock'}"
    async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(
            api_pb2.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)
        )


@pytest.fixture
def folder():
    # Paths of sockets have at most 107 characters, pytest's own folders are longer.
    with tempfile.TemporaryDirectory(prefix="pk-") as name:
        yield Path(name)


@pytest.fixture
async def node(folder):
    async with running(Node(folder)) as node:
        yield node


@pytest.fixture
async def plugin(node):
    async with serving(node, Plugin(node)) as plugin:
        await register(node)
        await node.until_capacity(3)
        yield plugin


async def test_kubelet_asks_for_options_before_it_answers_register(node):
    async with serving(node, Plugin(node)) as plugin:
        await register(node)
        assert plugin.calls == [("options",)]


async def test_an_old_kubelet_answers_first_and_takes_the_options_from_the_request(folder):
    async with running(Node(folder, (1, 20))) as node, serving(node, Plugin(node)) as plugin:
        await register(node)
        await node.until_capacity(3)
        assert plugin.calls == []
        await node.admit("u1", container("c", 1))
        assert [call[0] for call in plugin.calls] == ["allocate"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            {"version": "v1"},
            'requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]',
        ),
        ({"resource": "gpu"}, 'the ResourceName "gpu" is invalid'),
        ({"resource": "kubernetes.io/gpu"}, 'the ResourceName "kubernetes.io/gpu" is invalid'),
    ],
)
async def test_bad_registrations_are_refused_in_kubelets_words(node, request_, message):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await register(node, **request_)
    assert caught.value.details() == message


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("nvidia.com/gpu", True),
        ("a/b", True),
        ("gpu", False),
        ("requests.nvidia.com/gpu", False),
        ("x.kubernetes.io/gpu", False),
        ("nvidia.com/-gpu", False),
        ("NVIDIA.com/gpu", False),
        ("nvidia.com/" + "g" * 64, False),
    ],
)
def test_extended_resource_names(name, is_valid):
    assert is_extended_resource(name) is is_valid


async def test_the_pod_under_admission_is_listed_without_devices_and_later_with_them(node, plugin):
    seen = []

    async def look():
        seen.append(await node.list())

    plugin.during_allocate = look
    await node.admit("u1", container("one", 1), container("two", 2))
    assert seen == [
        {"pod-u1": {"one": [], "two": []}},
        {"pod-u1": {"one": ["c"], "two": []}},
    ]
    assert await node.list() == {"pod-u1": {"one": ["c"], "two": ["a", "b"]}}


async def test_an_app_container_gets_the_init_containers_devices_without_a_question(node, plugin):
    await node.admit("u1", container("main", 1), init=[container("prepare", 1)])
    assert plugin.calls == [
        ("options",),
        ("preferred", ["a", "b", "c"], 1),
        ("allocate", ["c"]),
        ("allocate", ["c"]),
    ]


async def test_a_refused_allocate_is_an_unexpected_admission_error(node, plugin):
    plugin.failure = "no grant for this pod"
    with pytest.raises(AdmissionError) as caught:
        await node.admit("u1", container("c", 1))
    assert caught.value.reason == "UnexpectedAdmissionError"
    assert caught.value.message == (
        "Allocate failed due to rpc error: code = FailedPrecondition desc = no grant for this pod, which is unexpected"
    )


async def test_too_many_devices_are_refused_by_kubelet_itself(node, plugin):
    with pytest.raises(AdmissionError) as caught:
        await node.admit("u1", container("c", 4))
    assert "Requested: 4, Available: 3" in caught.value.message


async def test_run_options_come_after_pre_start_and_carry_the_plugins_environment(node, plugin):
    pod = await node.admit("u1", container("c", 2))
    options = await run_options(node.manager, node.plugins, "u1", next(iter(containers_of(pod))))
    assert options.env == {"VISIBLE": "b,c"}
    assert plugin.calls[-1] == ("pre-start", ["b", "c"])


async def test_a_plugin_that_ends_leaves_unhealthy_devices(node):
    async with serving(node, Plugin(node)) as plugin:
        await register(node)
        await node.until_capacity(3)
        plugin.devices.put_nowait(None)
        await node.until_capacity(0, listed=3)


async def test_a_restarted_kubelet_empties_sockets_and_remembers_who_holds_what(folder):
    async with running(Node(folder)) as before, serving(before, Plugin(before)):
        await register(before)
        await before.until_capacity(3)
        await before.admit("u1", container("c", 1))
    stray = folder / "device-plugins" / "note.txt"
    stray.write_text("kept")
    after = Node(folder)
    allocations, registered = checkpoint.decode(after.checkpoint.read_bytes())
    after.manager.restore(allocations, registered, 0.0)
    async with running(after):
        names = {path.name for path in (folder / "device-plugins").iterdir()}
        assert names == {"kubelet.sock", checkpoint.FILE_NAME, "note.txt"}
        assert json.loads(after.checkpoint.read_text())["Data"]["PodDeviceEntries"][0]["PodUID"] == "u1"
        async with serving(after, Plugin(after)) as plugin:
            await register(after)
            await after.until_capacity(3)
            after.pods["u1"] = {"metadata": {"name": "pod-u1"}, "spec": {}}
            await after.admit("u2", container("c", 2))
            assert plugin.calls[-1] == ("allocate", ["a", "b"])


async def test_an_allocation_under_way_fails_when_the_plugin_registers_anew(node, plugin):
    async def register_anew():
        plugin.devices = asyncio.Queue()
        plugin.devices.put_nowait([api_pb2.Device(ID="a", health="Healthy")])
        await register(node)
        await asyncio.Event().wait()

    plugin.during_allocate = register_anew
    with pytest.raises(AdmissionError, match="code = Canceled"):
        await node.admit("u1", container("c", 1))
    plugin.during_allocate = None
    await node.until_capacity(1)
    await node.admit("u2", container("c", 1))


async def test_a_pod_for_a_forgotten_resource_is_out_of_it(node, plugin):
    node.manager.stop(GPU, 0.0)
    node.manager.capacity(301.0)
    with pytest.raises(AdmissionError) as caught:
        await node.admit("u1", container("c", 1))
    assert caught.value.reason == "OutOfnvidia.com/gpu"
    assert caught.value.message == (
        "Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 0, capacity: 0"
    )
