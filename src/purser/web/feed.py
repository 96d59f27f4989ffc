"""The newest fleet, and its last changes as events, for all who watch: each is made and encoded once."""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from purser.core.state import ClusterState, NodeDetails, Rollout, StateEvent, StateStep
from purser.kube import Clock
from purser.kube.racing import until
from purser.top.source import StateSource
from purser.web.faults import with_faults
from purser.web.fleet import Fleet, FleetChange, Summary, TileNode, difference, fleet_of, summary_of

LEAST_PAUSE_S = 1.0
"""Between two updates."""
PAUSE_FACTOR = 1.5
"""The pause lasts at least this many times as long as the update took: other requests are answered meanwhile."""
MAX_KEPT_BYTES = 8 << 20
"""Of recent changes. A client that is further behind gets the whole fleet."""
_NODES_PER_EVENT = 100

_NOTHING = ClusterState("", 0, None, (), (), ())

_encoder = msgspec.json.Encoder()


class _Status(Summary, frozen=True):
    problem: str


@dataclass(frozen=True)
class _Change:
    version: int
    events: bytes


class Feed:
    """Follows a source. `run` keeps it up to date."""

    def __init__(self, source: StateSource, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self.state: ClusterState | None = None
        """The state that the newest version shows, as `with_faults` has it."""
        self._read: ClusterState | None = None
        """The same, as it was read."""
        self.version = 0
        """Greater after each change; 0: nothing is known yet."""
        self.watchers = 0
        """Streams of it that are open."""
        self.is_over = False
        """Whether nothing new will come."""
        self._problem = ""
        self._fleet: Fleet = {}
        self._kept: deque[_Change] = deque()
        self._kept_bytes = 0
        self._whole: tuple[int, Sequence[bytes]] = (-1, ())
        """A version, and the events that build it from nothing."""
        self._changed = asyncio.Event()
        self._next_version = asyncio.Event()
        """Set when it is reached; then another one takes its place."""

    @property
    def where(self) -> str:
        """What is read, for people."""
        return self._source.where

    @property
    def problem(self) -> str:
        """Why the state is not up to date; empty: it is."""
        return self._source.problem

    async def details(self, namespace: str, pod: str) -> list[str]:
        """Why a pod waits, or was placed where it is, as lines."""
        return await self._source.details(namespace, pod)

    async def rollout(self) -> Rollout:
        """What the operator rolls out, as `StateSource` has it."""
        return await self._source.rollout()

    async def steps(self, namespace: str, pod: str, uid: str) -> Sequence[StateStep]:
        """When a pod came to each step of its way, as `StateSource` has it."""
        return await self._source.steps(namespace, pod, uid)

    async def events(self, namespace: str, about: Mapping[str, str]) -> Sequence[StateEvent] | None:
        """Those about an object, as `StateSource` has them."""
        return await self._source.events(namespace, about)

    async def node_details(self, name: str) -> NodeDetails | None:
        """How a node's GPUs are connected, and what its kubelet reports, as `StateSource` has it."""
        return await self._source.node_details(name)

    async def run(self) -> None:
        """Follow until cancelled. Raises what the source raises."""
        following = asyncio.ensure_future(self._source.run(self._changed.set))
        following.add_done_callback(lambda _: self._changed.set())
        try:
            while not following.done():
                await self._changed.wait()
                self._changed.clear()
                began = self._clock.monotonic()
                await self._update()
                took_s = self._clock.monotonic() - began
                await until(self._clock.sleep(max(LEAST_PAUSE_S, PAUSE_FACTOR * took_s)), asyncio.wait({following}))
            following.result()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def wait_for_newer(self, version: int) -> None:
        """Return once there is a newer version, or once there will be none."""
        while self.version <= version and not self.is_over:
            await self._next_version.wait()

    def end(self) -> None:
        """Wake everyone who waits for a newer version: there will be none."""
        self.is_over = True
        self._next_version.set()

    def events_after(self, version: int) -> Sequence[bytes]:
        """The events that bring a client from a version to the newest one. Version 0: it has nothing yet."""
        if version == 0 or not self._has_all_since(version):
            return self._all_events()
        return self._changes_after(version)

    def news_after(self, version: int) -> Sequence[bytes]:
        """An event that something has changed, and the newest numbers; the same for each version."""
        return [_event(b"changed", b'{"version":%d}' % self.version), self._status_event()]

    def _status_event(self) -> bytes:
        return _event(b"status", _encoder.encode(self._status()))

    def _status(self) -> _Status:
        return _Status(**msgspec.structs.asdict(summary_of(self.state or _NOTHING)), problem=self._problem)

    async def _update(self) -> None:
        state, problem = self._source.state, self._source.problem
        if state is None or (state is self._read and problem == self._problem):
            return
        if state is not self._read:
            self.state, self._fleet, events = await asyncio.to_thread(_advance, self._fleet, state)
        else:
            events = b""
        self._read, self._problem = state, problem
        self.version += 1
        self._keep(_Change(self.version, events + self._status_event()))
        reached, self._next_version = self._next_version, asyncio.Event()
        reached.set()

    def _keep(self, change: _Change) -> None:
        self._kept.append(change)
        self._kept_bytes += len(change.events)
        while self._kept_bytes > MAX_KEPT_BYTES and self._kept:
            self._kept_bytes -= len(self._kept.popleft().events)

    def _has_all_since(self, version: int) -> bool:
        oldest = self._kept[0].version if self._kept else self.version + 1
        return version >= oldest - 1

    def _changes_after(self, version: int) -> Sequence[bytes]:
        return [change.events for change in self._kept if change.version > version]

    def _all_events(self) -> Sequence[bytes]:
        """The fleet is encoded again only when the changes since are longer than it: slow readers hold on to what they
        are being sent, and with a fleet per version they would fill the memory."""
        version, events = self._whole
        changes = self._changes_after(version)
        if not self._has_all_since(version) or _length(changes) > _length(events):
            # The numbers come first, so that a page shows them while its tiles are on their way.
            status, nodes = self._status_event(), _node_events(list(self._fleet.values()), ())
            events = [_event(b"reset", b"{}"), status, *nodes, status]
            self._whole, changes = (self.version, events), ()
        return [*events, *changes]


def _advance(before: Fleet, read: ClusterState) -> tuple[ClusterState, Fleet, bytes]:
    state = with_faults(read)
    fleet = fleet_of(state)
    return state, fleet, b"".join(_change_events(difference(before, fleet)))


def _change_events(change: FleetChange) -> Iterator[bytes]:
    if change.nodes or change.gone:
        yield from _node_events(change.nodes, change.gone)
    if change.gpus:
        yield _event(b"gpus", _encoder.encode({"gpus": change.gpus}))


def _node_events(nodes: Sequence[TileNode], gone: Sequence[str]) -> Iterator[bytes]:
    """A browser shows the first nodes of a large fleet while the others are on their way."""
    for start in range(0, max(len(nodes), 1), _NODES_PER_EVENT):
        some = nodes[start : start + _NODES_PER_EVENT]
        yield _event(b"nodes", _encoder.encode({"nodes": some, "gone": () if start else gone}))


def _length(events: Sequence[bytes]) -> int:
    return sum(map(len, events))


def _event(name: bytes, data: bytes) -> bytes:
    """As https://html.spec.whatwg.org/multipage/server-sent-events.html has it. JSON has no line breaks."""
    return b"event: %s\ndata: %s\n\n" % (name, data)
