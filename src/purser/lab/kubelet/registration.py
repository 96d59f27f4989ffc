"""The Registration service on kubelet.sock: one of the two ways in which a device plugin registers.

Kubelets from 1.25 on dial the plugin and ask for its options before they answer Register, older ones answer first.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import structlog

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from purser.core.kubelet.devicemanager.registration import register_refusal
from purser.core.kubelet.versions import Behaviour
from purser.lab.kubelet.endpoints import Endpoints, PluginError
from purser.lab.kubelet.serving import SOCKET_NAME, SocketServer

log = structlog.get_logger("purser.lab.kubelet")


class RegistrationServer(api_pb2_grpc.RegistrationServicer):
    """The service on its socket. ``kept`` are the files that every kubelet leaves in the folder."""

    def __init__(self, folder: Path, kept: frozenset[str], behaviour: Behaviour, endpoints: Endpoints) -> None:
        self._folder = folder
        self._kept = kept
        self._behaviour = behaviour
        self._endpoints = endpoints
        self._dials: set[asyncio.Task[None]] = set()
        self._server = SocketServer(
            folder / SOCKET_NAME, partial(api_pb2_grpc.add_RegistrationServicer_to_server, self)
        )

    async def start(self) -> None:
        """Empty the folder as kubelet does at every start, and serve."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            if path.is_socket() or not (
                self._behaviour.keeps_unknown_files or path.is_dir() or self._is_kept_file(path)
            ):
                path.unlink()
        await self._server.start()

    async def stop(self) -> None:
        """As when kubelet's process ends."""
        for task in self._dials:
            task.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        await self._server.stop()

    async def Register(
        self, request: api_pb2.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> api_pb2.Empty:
        """One plugin introduces itself."""
        refusal = register_refusal(request.version, request.resource_name)
        if refusal is not None:
            await context.abort(grpc.StatusCode.UNKNOWN, refusal)
        path = self._folder / request.endpoint
        if self._behaviour.registers_synchronously:
            try:
                await self._endpoints.connect(request.resource_name, path, None)
            except PluginError as error:
                await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        else:
            task = asyncio.create_task(self._connect_in_background(request.resource_name, path, request.options))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)
        return api_pb2.Empty()

    async def _connect_in_background(self, resource: str, path: Path, options: api_pb2.DevicePluginOptions) -> None:
        try:
            await self._endpoints.connect(resource, path, options)
        except PluginError as error:
            log.error("Failed to dial the device plugin", resource=resource, error=str(error))

    def _is_kept_file(self, path: Path) -> bool:
        return path.name in self._kept
