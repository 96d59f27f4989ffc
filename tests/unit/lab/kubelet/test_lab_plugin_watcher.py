"""Plugins that register by a socket in plugins_registry."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from tests.unit.lab.kubelet.rig import GPU, Node, Plugin, container, register, running, serving

from purser.agent.kubeletapi.pluginregistration.v1 import api_pb2, api_pb2_grpc
from purser.lab.kubelet.pluginwatcher import PluginWatcher


class Registrar(api_pb2_grpc.RegistrationServicer):
    def __init__(self, **info):
        self.info = {"type": "DevicePlugin", "name": GPU, "supported_versions": ["v1beta1"]} | info
        self.told = asyncio.Queue()

    async def GetInfo(self, request, context):
        return api_pb2.PluginInfo(**self.info)

    async def NotifyRegistrationStatus(self, request, context):
        self.told.put_nowait((request.plugin_registered, request.error))
        return api_pb2.RegistrationStatusResponse()

    def add(self, server):
        api_pb2_grpc.add_RegistrationServicer_to_server(self, server)

    async def outcome(self):
        async with asyncio.timeout(60):
            return await self.told.get()


@asynccontextmanager
async def watching(node):
    registry = node.folder / "plugins_registry"
    registry.mkdir(exist_ok=True)
    task = asyncio.create_task(PluginWatcher(registry, node.endpoints).run())
    try:
        yield registry
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(params=["v1.36.2", "v1.20.2"])
async def watched(folder, request):
    async with running(Node(folder, request.param)) as node, watching(node):
        yield node


async def test_a_plugin_whose_socket_appears_is_asked_registered_and_notified(watched):
    registrar, plugin = Registrar(), Plugin()
    async with serving(watched, plugin, watched.folder / "plugins_registry/gpu.sock", registrar.add):
        assert await registrar.outcome() == (True, "")
        await watched.until_capacity(3)
        assert plugin.calls == [("options",)]
        await watched.admit("u1", container("c", 1))
        assert plugin.calls[-1] == ("allocate", ["c"])


async def test_the_plugin_may_serve_its_devices_on_another_socket(watched):
    service = watched.folder / "service.sock"
    registrar = Registrar(endpoint=str(service))
    async with serving(watched, Plugin(), service):
        server = grpc.aio.server()
        registrar.add(server)
        server.add_insecure_port(f"unix:{watched.folder / 'plugins_registry/gpu.sock'}")
        await server.start()
        try:
            assert await registrar.outcome() == (True, "")
            await watched.until_capacity(3)
        finally:
            await server.stop(None)


@pytest.mark.parametrize(
    ("info", "error"),
    [
        (
            {"supported_versions": ["v1alpha", "v2"]},
            "RegisterPlugin error -- plugin validation failed with err: "
            "manager version, v1beta1, is not among plugin supported versions [v1alpha v2]",
        ),
        (
            {"name": "gpu"},
            "RegisterPlugin error -- plugin validation failed with err: "
            'invalid name of device plugin socket: the ResourceName "gpu" is invalid',
        ),
        ({"type": "CSIPlugin"}, "RegisterPlugin error -- no handler registered for plugin type: CSIPlugin at socket "),
    ],
)
async def test_a_plugin_that_is_refused_gets_the_reason(folder, info, error):
    async with running(Node(folder)) as node, watching(node) as registry:
        registrar = Registrar(**info)
        async with serving(node, Plugin(), registry / "gpu.sock", registrar.add):
            registered, told = await registrar.outcome()
    assert not registered
    assert told.startswith(error)


async def test_a_plugin_that_is_taken_at_the_second_try(folder):
    async with running(Node(folder)) as node, watching(node) as registry:
        registrar = Registrar(name="gpu")
        async with serving(node, Plugin(), registry / "gpu.sock", registrar.add):
            assert not (await registrar.outcome())[0]
            registrar.info["name"] = GPU
            assert await registrar.outcome() == (True, "")
            await node.until_capacity(3)


async def test_a_socket_that_goes_away_ends_the_plugin(watched):
    registrar = Registrar()
    socket = watched.folder / "plugins_registry/gpu.sock"
    async with serving(watched, Plugin(), socket, registrar.add):
        await registrar.outcome()
        await watched.until_capacity(3)
        socket.unlink()
        await watched.until_capacity(0, listed=3)


async def test_a_socket_that_goes_away_ends_the_plugin_that_registered_since(watched):
    registrar, newer = Registrar(), Plugin(("n",))
    socket = watched.folder / "plugins_registry/gpu.sock"
    async with serving(watched, Plugin(), socket, registrar.add), serving(watched, newer):
        await registrar.outcome()
        await watched.until_capacity(3)
        await register(watched)
        await watched.until_capacity(1)
        socket.unlink()
        await watched.until_capacity(0, listed=1)


async def test_a_plugin_that_was_there_before_kubelet_is_found(folder):
    registrar = Registrar()
    (folder / "plugins_registry").mkdir()
    node = Node(folder)
    socket = folder / "plugins_registry/gpu.sock"
    async with serving(node, Plugin(), socket, registrar.add), running(node), watching(node):
        assert await registrar.outcome() == (True, "")
        await node.until_capacity(3)
