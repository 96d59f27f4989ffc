"""The plugin's half of kubelet's plugin watcher: kubelet finds its socket in plugins_registry, asks what it is, and
says whether it took it.

The other way, in which the plugin calls kubelet, is `registration`'s.
"""

import asyncio

import grpc.aio

from purser.agent.kubeletapi.pluginregistration.v1 import api_pb2, api_pb2_grpc
from purser.core.kubelet.devicemanager.registration import API_VERSION

DEVICE_PLUGIN = "DevicePlugin"

FOUND_TIMEOUT_S = 60.0
"""How long kubelet may take: it looks once a second, and is perhaps just starting."""


class NotRegisteredError(Exception):
    """kubelet did not take the plugin; the message says why."""


class WatchedPlugin(api_pb2_grpc.RegistrationServicer):
    """The service, of one resource."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._status: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve it beside the device plugin."""
        api_pb2_grpc.add_RegistrationServicer_to_server(self, server)

    async def registered(self) -> None:
        """Return once kubelet has taken the plugin. Raises `NotRegisteredError`."""
        try:
            async with asyncio.timeout(FOUND_TIMEOUT_S):
                problem = await self._status
        except TimeoutError as error:
            raise NotRegisteredError(f"kubelet did not find the plugin within {FOUND_TIMEOUT_S:g} s") from error
        if problem:
            raise NotRegisteredError(f"kubelet rejected the plugin: {problem}")

    async def GetInfo(self, request: api_pb2.InfoRequest, context: object) -> api_pb2.PluginInfo:
        """What is behind the socket. Without an endpoint kubelet takes the socket that it asked."""
        return api_pb2.PluginInfo(type=DEVICE_PLUGIN, name=self._resource, supported_versions=[API_VERSION])

    async def NotifyRegistrationStatus(
        self, request: api_pb2.RegistrationStatus, context: object
    ) -> api_pb2.RegistrationStatusResponse:
        """How it came out."""
        if not self._status.done():
            self._status.set_result("" if request.plugin_registered else request.error or "no reason given")
        return api_pb2.RegistrationStatusResponse()
