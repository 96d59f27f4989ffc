"""Servers for these tests: one that is scripted request by request, and one that behaves, until it is set not to."""

import asyncio
import json
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from purser.kube import Client, ClusterConfig, SystemClock
from purser.lab.apiserver import ApiServer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
    """The URL of a server on a real socket that has one handler for everything."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@contextmanager
def port_of_nobody() -> Iterator[int]:
    """A port where nobody listens, and that nobody else can have: a server of this test can, all the same."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@asynccontextmanager
async def client_of(handler: Handler, **options) -> AsyncIterator[Client]:
    async with serving(handler) as url, Client(ClusterConfig.insecure(url), **options) as client:
        yield client


@asynccontextmanager
async def api_server(kubeconfig: Path, **options: Any) -> AsyncIterator[tuple[ApiServer, Client]]:
    """The lab's API server, a kubeconfig for it, and a client that has read it."""
    async with ApiServer(**options) as api, Client(ClusterConfig.load(api.write_kubeconfig(kubeconfig))) as client:
        yield api, client


def status(code: int, reason: str, message: str = "told by the test", **details) -> dict:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def refuse(code: int, reason: str, message: str = "told by the test", headers=None, **details) -> web.Response:
    return web.json_response(status(code, reason, message, **details), status=code, headers=headers)


def pod(name: str, version: int | str = 1, uid: str = "", **annotations: str) -> dict:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "annotations": annotations,
        }
    }


def listing(items: list[dict], version: int | str, token: str = "") -> web.Response:
    return web.json_response(
        {"kind": "PodList", "metadata": {"resourceVersion": str(version), "continue": token}, "items": items}
    )


def line(kind: str, body: dict) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


async def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Poll until it holds; a deadline, not a time that anything is expected to take."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  what it waits for has no event
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running(*coroutines) -> AsyncIterator[list[asyncio.Task]]:
    """Run components beside the test, and see that none of them ended by itself."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


class HastyClock(SystemClock):
    """Sleeps no time at all, and remembers how long it should have."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class StandingClock(SystemClock):
    """Moves when a test says so: however slow the machine is, nothing is forgotten meanwhile."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return self.ahead_s


class ManualClock:
    """Time that moves when the test says so."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._now

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._now)

    @property
    def sleepers(self) -> int:
        """How many wait for it."""
        return len(self._sleepers)

    async def sleep(self, seconds: float) -> None:
        wake = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + seconds, wake))
        self._wake()
        await wake

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._wake()

    def _wake(self) -> None:
        for due, wake in self._sleepers:
            if due <= self._now and not wake.done():
                wake.set_result(None)
        self._sleepers = [entry for entry in self._sleepers if not entry[1].done()]


class ModelServer:
    """Pods of one namespace, with versions, pages, watches and a history that can be compacted."""

    def __init__(self, seed: int = 0, page: int = 2) -> None:
        self.pods: dict[str, dict] = {}
        self.version = 10
        self.failures = 0  # so many of the next requests get a 403
        self.requests: list[str] = []
        self._history: list[tuple[int, str, dict]] = []
        self._compacted = 0
        self._page = page
        self._pages: dict[str, tuple[int, list[dict]]] = {}
        self._watches: dict[int, asyncio.Queue[bytes | None]] = {}
        self._random = random.Random(seed)

    def put(self, name: str) -> None:
        kind = "MODIFIED" if name in self.pods else "ADDED"
        uid = self.pods[name]["metadata"]["uid"] if name in self.pods else f"uid-{name}-{self.version}"
        self.version += 1
        self.pods[name] = pod(name, self.version, uid)
        self._record(kind, self.pods[name])

    def delete(self, name: str) -> None:
        if name in self.pods:
            self.version += 1
            last = self.pods.pop(name)
            self._record("DELETED", {"metadata": last["metadata"] | {"resourceVersion": str(self.version)}})

    def compact(self) -> None:
        """Forget the history: who resumes from before now gets 410, and so does who is in the middle of a list."""
        self._compacted = self.version
        self._history.clear()
        self._pages.clear()

    def drop(self) -> None:
        """Break every watch in the middle of a line."""
        self._send(b'{"type":"ADD', None)

    def end(self) -> None:
        """End every watch as a server does when its time is up."""
        self._send(None)

    def expire(self) -> None:
        """Tell every watch from inside the stream that its version is gone."""
        self._send(line("ERROR", status(410, "Expired")), None)
        self.compact()
        self.version += 1  # somewhere else in the cluster: what was seen here is now before the compaction
        self._compacted = self.version

    def bookmark(self) -> None:
        self.version += 1
        self._send(line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}}))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path_qs)
        if self.failures:
            self.failures -= 1
            return refuse(403, "Forbidden")
        if "watch" in request.query:
            return await self._watch(request)
        return self._list(request)

    def _list(self, request: web.Request) -> web.Response:
        token = request.query.get("continue")
        if token is None:
            version, rest = self.version, list(self.pods.values())
        elif token in self._pages:
            version, rest = self._pages.pop(token)
        else:
            return refuse(410, "Expired")
        if "limit" not in request.query:
            return listing(rest, version)
        page, rest = rest[: self._page], rest[self._page :]
        token = f"{version}-{len(rest)}" if rest else ""
        if token:
            self._pages[token] = version, rest
        return listing(page, version, token)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        start = int(request.query["resourceVersion"])
        if start < self._compacted:
            return refuse(410, "Expired")
        response = web.StreamResponse()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, kind, body in self._history:
            if version > start:
                queue.put_nowait(line(kind, body))
        self._watches[id(queue)] = queue
        try:
            await response.prepare(request)
            await self._pump(queue, request, response)
        finally:
            del self._watches[id(queue)]
        return response

    async def _pump(self, queue: asyncio.Queue, request: web.Request, response: web.StreamResponse) -> None:
        while (data := await queue.get()) is not None:
            cut = self._random.randrange(len(data))
            await response.write(data[:cut])
            await response.write(data[cut:])
            if not data.endswith(b"\n"):
                request.transport.abort()

    def _record(self, kind: str, body: dict) -> None:
        self._history.append((self.version, kind, body))
        self._send(line(kind, body))

    def _send(self, *data: bytes | None) -> None:
        for queue in self._watches.values():
            for item in data:
                queue.put_nowait(item)
