"""gRPC on unix sockets: services as kubelet serves them, and how long it dials others."""

from collections.abc import Callable
from pathlib import Path

import grpc

SOCKET_NAME = "kubelet.sock"
"""Of both services, each in a folder of its own: Registration and PodResources."""

DIAL_TIMEOUT_S = 10.0
"""How long kubelet dials a plugin before it gives up."""


class SocketServer:
    """One service on its socket. ``add`` adds it to a server."""

    def __init__(self, socket: Path, add: Callable[[grpc.aio.Server], None]) -> None:
        self.socket = socket
        self._add = add
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve, on a socket that is new: one that was left over is removed."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        self._add(self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        """End as kubelet's process ends: calls and streams break."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
