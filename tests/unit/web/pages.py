"""A source that the test fills, the pages on it, and streams read as a browser reads them."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import asynccontextmanager

from aiohttp import ClientSession
from tests.unit.kube.servers import HastyClock
from tests.unit.top.states import NOW, cluster, gpu, grant, node, waiting

from purser.core.state import ROLLOUT_VERSION, ClusterState, NodeDetails, Rollout, StateEvent, StateStep
from purser.telemetry import listening
from purser.web.access import LOCAL_ADDRESS, LocalAccess
from purser.web.feed import Feed
from purser.web.pages import Pages
from purser.web.serving import WEB_LIMITS, web_app

STATE = cluster(
    (node("n", gpu(0, held=100), gpu(1)), node("other", gpu(0, uuid="GPU-X"))),
    (grant("holder"),),
    (waiting("big"), waiting("large")),
)


class Source:
    """A `StateSource`."""

    where = "https://cluster:6443"

    def __init__(self, state: ClusterState | None = STATE) -> None:
        self.state = state
        self.problem = ""
        self.lines = ["the reason"]
        self.way: list[StateStep] | Exception = []
        self.nodes: dict[str, NodeDetails | Exception] = {}
        self.recorded: dict[tuple[str, ...], list[StateEvent] | Exception] = {}
        self.asked: list[tuple[str, str]] = []
        self._on_change = lambda: None
        self.rolled_out: Rollout | Exception = Rollout(ROLLOUT_VERSION, (), ())
        self.ends_with: Exception | None = None
        self._end = asyncio.Event()

    async def run(self, on_change) -> None:
        self._on_change = on_change
        on_change()
        await self._end.wait()
        raise self.ends_with

    def wants(self, uids) -> None:
        pass

    async def details(self, namespace: str, pod: str) -> list[str]:
        self.asked.append((namespace, pod))
        return self.lines

    async def rollout(self) -> Rollout:
        if isinstance(self.rolled_out, Exception):
            raise self.rolled_out
        return self.rolled_out

    async def steps(self, namespace: str, pod: str, uid: str) -> list[StateStep]:
        if isinstance(self.way, Exception):
            raise self.way
        return self.way

    async def events(self, namespace: str, about: Mapping[str, str]) -> list[StateEvent] | None:
        found = self.recorded.get((namespace, *about.values()))
        if isinstance(found, Exception):
            raise found
        return found

    async def node_details(self, name: str) -> NodeDetails | None:
        found = self.nodes.get(name)
        if isinstance(found, Exception):
            raise found
        return found

    def show(self, state: ClusterState | None = None, problem: str = "") -> None:
        self.state = state or self.state
        self.problem = problem
        self._on_change()

    def fail(self, error: Exception) -> None:
        self.ends_with = error
        self._end.set()


class PageClock(HastyClock):
    def now(self):
        return super().now().fromtimestamp(NOW)


@asynccontextmanager
async def following(source: Source):
    feed = Feed(source, PageClock())
    task = asyncio.ensure_future(feed.run())
    try:
        if source.state is not None:
            await feed.wait_for_newer(0)
        yield feed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def served(source: Source | None = None):
    """The pages, as a client of their address and the feed behind them."""
    async with following(source or Source()) as feed:
        app = web_app(Pages(PageClock()), LocalAccess(feed))
        async with (
            listening(app, LOCAL_ADDRESS, 0, limits=WEB_LIMITS) as port,
            ClientSession(f"http://{LOCAL_ADDRESS}:{port}") as client,
        ):
            yield client, feed


@asynccontextmanager
async def unread(port: int, number: int, headers: str = ""):
    """So many streams whose clients do not read."""
    opened = []
    try:
        for _ in range(number):
            _, writer = await asyncio.open_connection(LOCAL_ADDRESS, port)
            opened.append(writer)
            writer.write(f"GET /events HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        yield
    finally:
        for writer in opened:
            writer.transport.abort()


class Browser:
    """What a page knows from the events that it has read."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict] = {}
        self.status: dict = {}
        self.changes = 0

    def read(self, text: str) -> None:
        for block in text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if fields:
                self._take(fields["event"], json.loads(fields["data"]))

    def _take(self, event: str, data: dict) -> None:
        if event == "reset":
            self.nodes.clear()
        elif event == "nodes":
            for name in data["gone"]:
                self.nodes.pop(name, None)
            self.nodes |= {each["name"]: each for each in data["nodes"]}
        elif event == "gpus":
            for name, place, state in data["gpus"]:
                self.nodes[name]["gpus"][place]["state"] = state
        elif event == "status":
            self.status = data
        else:
            assert event == "changed"
            self.changes += 1
