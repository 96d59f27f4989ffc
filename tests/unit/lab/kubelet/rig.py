"""The parts of an emulated kubelet that need no API server, and a plugin that tests can talk to."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import msgspec

from purser.agent.kubeletapi.channels import UNIX_SOCKET_OPTIONS
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.agent.kubeletapi.podresources.v1 import api_pb2 as pod_pb2
from purser.agent.kubeletapi.podresources.v1 import api_pb2_grpc as pod_grpc
from purser.core.kubelet.devicemanager.checkpoint import FILE_NAME as CHECKPOINT
from purser.core.kubelet.state import KubeletNode as TwinNode
from purser.kube.clock import SystemClock
from purser.lab.driver.machine import CpuLayout, NumaLayout, machine_of
from purser.lab.kubelet.admission import admit
from purser.lab.kubelet.books import Books
from purser.lab.kubelet.configuration import KubeletSection, configure
from purser.lab.kubelet.endpoints import Endpoints
from purser.lab.kubelet.podresources import KnownPod, PodResourcesServer
from purser.lab.kubelet.pods import containers_of
from purser.lab.kubelet.registration import RegistrationServer
from purser.lab.kubelet.statefiles import StateFiles

GPU = "nvidia.com/gpu"

MACHINE = machine_of((NumaLayout(0, "0-3,8-11", "8Gi"), NumaLayout(1, "4-7,12-15", "8Gi")), CpuLayout(2))
"""Two NUMA nodes of four cores with two threads."""


class Plugin(api_pb2_grpc.DevicePluginServicer):
    """Prefers the last ids, and answers with an environment that names them. ``ids``: by NUMA node, or anywhere."""

    def __init__(self, ids=("a", "b", "c")):
        self.devices = asyncio.Queue()
        self.devices.put_nowait(devices(ids))
        self.calls = []
        self.during_allocate = None
        self.failure = None
        self.answer = None

    async def GetDevicePluginOptions(self, request, context):
        self.calls.append(("options",))
        return api_pb2.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    async def ListAndWatch(self, request, context):
        while (listed := await self.devices.get()) is not None:
            yield api_pb2.ListAndWatchResponse(devices=listed)

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
        if self.answer is not None:
            return self.answer
        env = {"VISIBLE": ",".join(ids)}
        return api_pb2.AllocateResponse(container_responses=[api_pb2.ContainerAllocateResponse(envs=env)])

    async def PreStartContainer(self, request, context):
        self.calls.append(("pre-start", list(request.devices_ids)))
        return api_pb2.PreStartContainerResponse()


def devices(ids):
    """A list for ListAndWatch: of ids, or of ids by NUMA node."""
    if not isinstance(ids, dict):
        return [api_pb2.Device(ID=id_, health="Healthy") for id_ in ids]
    return [
        api_pb2.Device(ID=id_, health="Healthy", topology={"nodes": [{"ID": node}]})
        for node, of_node in ids.items()
        for id_ in of_node
    ]


class Node:
    """A kubelet without the Node object and without containers."""

    def __init__(self, folder, version="v1.36.2", machine=MACHINE, **section):
        self.folder = folder
        self.changed = asyncio.Event()
        section = msgspec.convert({"version": version, **section}, KubeletSection)
        twin = TwinNode(configure(section, machine).config, machine)
        files = StateFiles(folder, twin)
        self.books = Books(twin, files.load(0.0), files)
        self.endpoints = Endpoints(self.books, SystemClock(), self.changed.set)
        self.plugin_folder = folder / "device-plugins"
        self.checkpoint = self.plugin_folder / CHECKPOINT
        kept = frozenset({CHECKPOINT})
        self.registration = RegistrationServer(self.plugin_folder, kept, self.books.behaviour, self.endpoints)
        self.pods = {}
        self.over = set()
        """Uids of pods that ended and are listed nevertheless, as older kubelets do."""
        self.resources = PodResourcesServer(folder / "pod-resources", self.books, self.listed)

    def listed(self):
        for uid, pod in self.pods.items():
            names = tuple(c.name for c in containers_of(pod))
            yield KnownPod(uid, "default", pod["metadata"]["name"], names, uid not in self.over)

    async def admit(self, uid, *containers, init=()):
        pod = {
            "metadata": {"uid": uid, "name": f"pod-{uid}", "namespace": "default"},
            "spec": {"containers": list(containers), "initContainers": list(init)},
        }
        self.pods[uid] = pod
        await admit(self.books, self.endpoints, pod, set(self.pods))
        return pod

    @asynccontextmanager
    async def pod_resources(self):
        target = f"unix:{self.folder / 'pod-resources' / 'kubelet.sock'}"
        async with grpc.aio.insecure_channel(target, options=UNIX_SOCKET_OPTIONS) as channel:
            yield pod_grpc.PodResourcesListerStub(channel)

    async def list_raw(self):
        async with self.pod_resources() as stub:
            return await stub.List(pod_pb2.ListPodResourcesRequest())

    async def list(self):
        return {
            pod.name: {c.name: sorted(id_ for d in c.devices for id_ in d.device_ids) for c in pod.containers}
            for pod in (await self.list_raw()).pod_resources
        }

    async def until_capacity(self, healthy, listed=None, resource=GPU):
        async with asyncio.timeout(60):
            while True:
                now = self.books.forget_expired(0.0)
                found = now.allocatable.get(resource), now.capacity.get(resource)
                if found == (healthy, healthy if listed is None else listed):
                    return
                await self.changed.wait()
                self.changed.clear()


def container(name, gpus=0, **amounts):
    limits = {**({GPU: str(gpus)} if gpus else {}), **amounts}
    return {"name": name, "resources": {"limits": limits, "requests": dict(limits)}}


@asynccontextmanager
async def running(node):
    node.books.open()
    await node.registration.start()
    await node.resources.start()
    try:
        yield node
    finally:
        await node.registration.stop()
        await node.endpoints.close()
        await node.resources.stop()


@asynccontextmanager
async def serving(node, plugin, path=None, *services):
    server = grpc.aio.server()
    api_pb2_grpc.add_DevicePluginServicer_to_server(plugin, server)
    for add in services:
        add(server)
    server.add_insecure_port(f"unix:{path or node.plugin_folder / 'fake.sock'}")
    await server.start()
    try:
        yield plugin
    finally:
        await server.stop(None)


async def register(node, version="v1beta1", endpoint="fake.sock", resource=GPU, options=None):
    target = f"unix:{node.plugin_folder / 'kubelet.sock'}"
    async with grpc.aio.insecure_channel(target, options=UNIX_SOCKET_OPTIONS) as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(
            api_pb2.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource, options=options)
        )
