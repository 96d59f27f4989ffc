"""`ApiServer`: the interface of this package. Starts and stops the server and has its address and credentials for
clients."""

import asyncio
import base64
import secrets
from collections.abc import Mapping
from pathlib import Path

import aiohttp
from aiohttp import web

from purser.connections import Connections, Limits, stop_accepting
from purser.lab.ports import free_ports
from purser.yaml_text import yaml_text

from . import bootstrap, definitions, quotakeeping
from .cluster import ADMIN, Cluster, PodLogs, User, Webhooks
from .errors import Obj
from .garbage import Collector
from .http import Frontend, Intercept
from .tls import Identity, make_identity

_UNLIMITED = Limits(connections=1_000_000, request_s=120.0)
"""Its clients are the lab's own parts, many on one machine: `Connections` is there so that all of them end with it."""


class ApiServer:
    """A Kubernetes API server in this process, on 127.0.0.1, with its own CA and bearer tokens.

    Parameters: host, port: where to listen; port 0 takes a free one. users: further bearer tokens and who they
    belong to; `admin_token` always works. history: events kept per resource; watches and pages older than these get
    410. bookmark_seconds: how often a watch that asked for bookmarks gets one. service_urls: base URL of the
    Services that admission webhooks name, by (namespace, name); may be changed later. pod_logs: serves `kubectl
    logs`; may be set later by the emulated kubelets. intercept: sees each request first and may answer it: for
    faults in tests and in the lab. tls: False serves plain HTTP, as `kubectl proxy` does, at half the CPU: for tests of
    clients that make many connections.

    Use it as an async context manager, or with `start` and `stop`. Any number may run in one process.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        users: Mapping[str, User] | None = None,
        history: int = 4096,
        bookmark_seconds: float = 60.0,
        service_urls: Mapping[tuple[str, str], str] | None = None,
        pod_logs: PodLogs | None = None,
        intercept: Intercept | None = None,
        tls: bool = True,
    ) -> None:
        self._host, self._port, self._tls = host, port, tls
        self.admin_token = secrets.token_urlsafe(24)
        self.service_urls: dict[tuple[str, str], str] = dict(service_urls or {})
        self._identity: Identity = make_identity(host)
        self._cluster = Cluster(history)
        self._frontend = Frontend(self._cluster, {**(users or {}), self.admin_token: ADMIN}, bookmark_seconds)
        self._frontend.pod_logs, self._frontend.intercept = pod_logs, intercept
        self._collector = Collector(self._cluster)
        self._runner: web.AppRunner | None = None
        self._connections: Connections | None = None
        self._server: asyncio.Server | None = None
        self._collecting: asyncio.Task[None] | None = None
        definitions.watch_definitions(self._cluster)
        quotakeeping.follow(self._cluster)
        bootstrap.fill(self._cluster)

    async def start(self) -> None:
        """Listen. The port is known afterwards. Raises OSError for a port that is taken, and leaves nothing behind."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._cluster.webhooks = Webhooks(aiohttp.ClientSession(), self.service_urls)
        self._collecting = asyncio.create_task(self._collector.run())
        app = self._frontend.application()
        runner = self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)

        def http() -> asyncio.Protocol:
            assert runner.server is not None
            return runner.server()

        context = self._identity.server_context() if self._tls else None
        self._connections = Connections(http, _UNLIMITED, context)
        app.middlewares.insert(0, self._connections.middleware())
        await runner.setup()
        if not self._port:
            # It is to be had again after a stop: clients that dial it meanwhile must not be given it for themselves.
            [self._port] = free_ports(1)
        self._server = await asyncio.get_running_loop().create_server(
            self._connections, self._host, self._port, start_serving=False
        )
        await self._server.start_serving()
        self._frontend.address = f"{self._host}:{self._port}"

    async def stop(self) -> None:
        """End all watches and close the port. The objects stay: a later `start` serves them again, at the same
        port."""
        if self._collecting:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)
        for watch in tuple(self._frontend.watches):
            watch.close()
        if self._server:
            await stop_accepting(self._server)
        if self._runner:
            await self._runner.cleanup()
        if self._connections:
            self._connections.close()
        if self._cluster.webhooks:
            await self._cluster.webhooks.session.close()
        self._runner = self._collecting = self._cluster.webhooks = self._server = self._connections = None

    async def __aenter__(self) -> "ApiServer":
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """`https://127.0.0.1:<port>`, or `http:`."""
        return f"{'https' if self._tls else 'http'}://{self._host}:{self._port}"

    @property
    def ca(self) -> str:
        """The CA certificate, PEM."""
        return self._identity.ca

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig (YAML) for the admin."""
        return self.kubeconfig_for(self.admin_token)

    def kubeconfig_for(self, token: str, namespace: str = "default") -> str:
        """A kubeconfig (YAML) for any known token."""
        cluster: Obj = {"server": self.url, "certificate-authority-data": base64.b64encode(self.ca.encode()).decode()}
        config: Obj = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "lab", "user": {"token": token}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": namespace}}],
            "current-context": "lab",
        }
        return yaml_text(config)

    def write_kubeconfig(self, path: Path) -> Path:
        """Write the admin's kubeconfig, readable by its owner only."""
        path.touch(mode=0o600)
        path.write_text(self.kubeconfig)
        return path

    def add_user(self, token: str, user: User) -> None:
        """Accept another bearer token from now on."""
        self._frontend.tokens = {**self._frontend.tokens, token: user}

    def remove_token(self, token: str) -> None:
        """Accept a bearer token no more, as after it has expired."""
        self._frontend.tokens = {known: user for known, user in self._frontend.tokens.items() if known != token}

    def serve_logs(self, pod_logs: PodLogs | None) -> None:
        """Set who serves pod logs."""
        self._frontend.pod_logs = pod_logs

    def intercept(self, intercept: Intercept | None) -> None:
        """Set who sees each request first: returns a response to answer it, None to let it pass."""
        self._frontend.intercept = intercept

    def drop_history(self) -> None:
        """Compact: every resource version handed out so far is now too old to watch or page from."""
        self._cluster.store.drop_history()

    @property
    def resource_version(self) -> int:
        """The latest version that was handed out."""
        return self._cluster.store.revision
