"""As much of a kubelet as a device plugin meets: Registration, PodResources, and the calls into the plugin.

Over real gRPC on real unix sockets. Two generations: ``modern`` kubelets dial the plugin and ask for its options before
they answer Register, 1.20 answers at once and dials in the background. Admission is one pod at a time; a rejected pod
stays in the PodResources list, as in 1.20, until it is removed.
"""

import asyncio
import contextlib

import grpc
import grpc.aio

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.agent.kubeletapi.podresources.v1 import api_pb2 as resources_pb2
from purser.agent.kubeletapi.podresources.v1 import api_pb2_grpc as resources_grpc

RESOURCE = "nvidia.com/gpu"
AUTHORITY = (("grpc.default_authority", "localhost"),)


class Rejected(Exception):
    """The pod fails admission with the plugin's message."""


class Kubelet(api_pb2_grpc.RegistrationServicer, resources_grpc.PodResourcesListerServicer):
    def __init__(self, folder, modern=True):
        self.plugin_dir = folder / "device-plugins"
        self.resources_socket = folder / "pod-resources" / "kubelet.sock"
        self.modern = modern
        self.registrations = []
        self.rejects = 0  # how many lists it rejects, as one that is asked too often does
        self.taken_sockets = set()  # refused, as by kubelets since 1.37
        self.lists_of = {}  # by resource, the devices by id
        self.plugins = {}  # by resource
        self.resource_of = {}  # "ns/name" -> what it asks for
        self.pods = {}  # "ns/name" -> {container: ids}; only app containers
        self.held = {}  # "ns/name" -> ids, of init containers too
        self.namesakes = []  # ("ns/name", containers) of pods whose names others have
        self.lists = 0
        self._tasks = set()
        self._admitting = asyncio.Lock()
        self._told = asyncio.Event()  # a list of a plugin has come

    async def start(self):
        for path in (self.plugin_dir, self.resources_socket.parent):
            path.mkdir(parents=True, exist_ok=True)
        for path in self.plugin_dir.iterdir():
            path.unlink()
        self._server = grpc.aio.server()
        api_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.plugin_dir}/kubelet.sock")
        self._resources = grpc.aio.server()
        resources_grpc.add_PodResourcesListerServicer_to_server(self, self._resources)
        self._resources.add_insecure_port(f"unix:{self.resources_socket}")
        await self._server.start()
        await self._resources.start()

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await asyncio.gather(self._server.stop(0), self._resources.stop(0))

    async def restart(self):
        """What it allocated is in its checkpoint; devices are unknown until the plugin comes again."""
        await self.stop()
        self.lists_of = {}
        await self.start()

    @property
    def devices(self):
        return {id_: device for listed in self.lists_of.values() for id_, device in listed.items()}

    @property
    def plugin(self):
        return self.plugins[RESOURCE]

    def drop_streams(self):
        """The ListAndWatch stream breaks, and kubelet does nothing about it."""
        for task in self._tasks:
            task.cancel()

    async def Register(self, request, context):
        if request.version != "v1beta1":
            await context.abort(grpc.StatusCode.UNKNOWN, "requested API version is not supported by kubelet")
        if request.endpoint in self.taken_sockets:
            await context.abort(grpc.StatusCode.UNKNOWN, f"device plugin already connected: {request.endpoint}")
        if self.modern:
            await self._connect(request)
        else:
            self._spawn(self._connect(request))
        return api_pb2.Empty()

    async def List(self, request, context):
        self.lists += 1
        if self.rejects > 0:
            self.rejects -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return resources_pb2.ListPodResourcesResponse(
            pod_resources=[
                resources_pb2.PodResources(
                    namespace=key.partition("/")[0],
                    name=key.partition("/")[2],
                    containers=[
                        resources_pb2.ContainerResources(
                            name=name,
                            devices=[
                                resources_pb2.ContainerDevices(
                                    resource_name=self.resource_of.get(key, RESOURCE), device_ids=ids
                                )
                            ]
                            if ids
                            else [],
                        )
                        for name, ids in containers.items()
                    ],
                )
                for key, containers in (*self.namesakes, *self.pods.items())
            ]
        )

    async def _connect(self, request):
        channel = grpc.aio.insecure_channel(f"unix:{self.plugin_dir}/{request.endpoint}", options=AUTHORITY)
        plugin = api_pb2_grpc.DevicePluginStub(channel)
        options = request.options
        if self.modern:
            options = await plugin.GetDevicePluginOptions(api_pb2.Empty(), timeout=10, wait_for_ready=True)
        self.registrations.append((request, options))
        self.plugins[request.resource_name] = plugin
        self._spawn(self._watch(channel, plugin, request.resource_name))

    async def _watch(self, channel, plugin, resource):
        try:
            async for response in plugin.ListAndWatch(api_pb2.Empty()):
                self.lists_of[resource] = {device.ID: device for device in response.devices}
                self._told.set()
        except grpc.aio.AioRpcError:
            pass
        finally:
            if self.plugins[resource] is plugin:
                self.lists_of.pop(resource, None)
            await channel.close()

    def _spawn(self, work):
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def free(self):
        return self.free_of(RESOURCE)

    def free_of(self, resource):
        taken = {held for ids in self.held.values() for held in ids}
        listed = self.lists_of.get(resource, {})
        return sorted(name for name, device in listed.items() if device.health == "Healthy" and name not in taken)

    async def admit(self, key, containers, init=(), prefer=True, resource=RESOURCE):
        """Admit a pod: (container, count) in order, init containers first. Returns the responses by container.

        Raises `Rejected`; the pod stays listed then. Before the first list of a resource's plugin no pod that asks for
        it would be bound to the node.
        """
        async with self._admitting, asyncio.timeout(60):
            while resource not in self.lists_of:
                self._told.clear()
                await self._told.wait()
            self.resource_of[key] = resource
            self.pods[key] = {name: [] for name, _ in containers}
            self.held[key] = set()
            responses, reusable = {}, []
            for name, count in (*init, *containers):
                ids, responses[name] = await self._allocate(key, count, reusable, prefer)
                self.held[key] |= set(ids)
                if name in self.pods[key]:
                    self.pods[key][name] = ids
                    reusable = [held for held in reusable if held not in ids]
                else:
                    reusable += [held for held in ids if held not in reusable]
            return responses

    async def _allocate(self, key, count, reusable, prefer):
        if not count:
            return [], None
        resource = self.resource_of[key]
        ids, plugin, free = reusable[:count], self.plugins[resource], self.free_of(resource)
        try:
            if len(ids) < count:
                ids = await self._preferred(plugin, free, ids, count) if prefer else [*ids, *free][:count]
            response = await plugin.Allocate(api_pb2.AllocateRequest(container_requests=[{"devices_ids": ids}]))
        except grpc.aio.AioRpcError as error:
            self.held[key] = set()
            raise Rejected(error.details()) from error
        return ids, response.container_responses[0]

    async def _preferred(self, plugin, free, taken, count):
        request = api_pb2.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=[*free, *taken], must_include_deviceIDs=taken, allocation_size=count
        )
        response = await plugin.GetPreferredAllocation(request)
        preferred = [name for name in response.container_responses[0].deviceIDs if name not in taken]
        return [*taken, *preferred, *free][:count]

    async def pre_start(self, ids):
        try:
            await self.plugin.PreStartContainer(api_pb2.PreStartContainerRequest(devices_ids=ids))
        except grpc.aio.AioRpcError as error:
            raise Rejected(error.details()) from error

    def remove(self, key):
        self.pods.pop(key, None)
        self.held.pop(key, None)


@contextlib.asynccontextmanager
async def kubelet_in(folder, modern=True):
    kubelet = Kubelet(folder, modern)
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()
