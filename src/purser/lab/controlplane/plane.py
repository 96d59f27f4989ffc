"""The surface that every control plane of a lab has, and the lab's own API server behind it."""

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from purser.lab.apiserver import ApiServer, PodLogs, User
from purser.lab.controlplane.credentials import write_private

ADMIN = "kubernetes-admin"
"""The user who may do everything."""


class ControlPlane(Protocol):
    """An async context manager: it serves from entry to exit."""

    @property
    def real(self) -> Mapping[str, str]:
        """What is not a stand-in of the lab: the program by the name of the lab's part."""
        ...

    @property
    def url(self) -> str:
        """The API server's address."""
        ...

    def kubeconfig(self, user: str) -> Path:
        """How a user logs in."""
        ...

    async def serve_logs(self, logs: PodLogs) -> int:
        """Answer `kubectl logs`. Returns the port that nodes must name as their kubelet's; 0: none."""
        ...

    async def __aenter__(self) -> Self:
        """Serve."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Serve no more."""
        ...


class EmbeddedControlPlane:
    """An API server in this process. Controllers and schedulers are for the lab to run."""

    real: Mapping[str, str] = {}

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._api = ApiServer(port=port)
        self._kubeconfigs: dict[str, Path] = {}

    @property
    def url(self) -> str:
        """The API server's address."""
        return self._api.url

    async def __aenter__(self) -> Self:
        """Serve."""
        await self._api.start()
        self._kubeconfigs[ADMIN] = self._api.write_kubeconfig(self._folder / "kubeconfig")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Serve no more."""
        await self._api.stop()

    async def cut(self, away_s: float) -> None:
        """Cut every connection and answer no requests for this long. The objects stay."""
        await self._api.stop()
        try:
            await asyncio.sleep(away_s)
        finally:
            await self._api.start()

    def kubeconfig(self, user: str) -> Path:
        """How a user logs in: every user has a token of its own."""
        path = self._kubeconfigs.get(user)
        if path is None:
            token = secrets.token_urlsafe(16)
            self._api.add_user(token, User(user))
            path = self._kubeconfigs[user] = self._folder / f"kubeconfig-{len(self._kubeconfigs)}"
            write_private(path, self._api.kubeconfig_for(token).encode())
        return path

    async def serve_logs(self, logs: PodLogs) -> int:
        """Answer `kubectl logs` here, without asking a node."""
        self._api.serve_logs(logs)
        return 0
