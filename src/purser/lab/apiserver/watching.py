"""Watches: a stream of changes from a resource version on, as newline-separated JSON.

A change is put into each watcher's queue by reference; its bytes are made once and shared. An object that a
selector no longer matches is sent as DELETED, one that begins to match as ADDED, as the real watch cache does.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from . import jsonio, routes
from .cluster import Cluster
from .errors import Obj, StatusError
from .resources import ServedResource
from .store import ADDED, DELETED, MODIFIED, Selection, StoredObject, StoreEvent
from .views import ResourceView

_BACKLOG = 20_000
"""Changes a slow reader may fall behind before it is cut off (it lists again then)."""

_DEFAULT_SECONDS = 1800
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How a watch is to begin and end."""

    since: int | None
    """Version from which on changes are wanted."""
    initial: bool
    """Begin with everything that is there."""
    mark_initial: bool
    """Say with a bookmark where the beginning ends."""
    bookmarks: bool
    seconds: float


def read_options(query: Mapping[str, str], revision: int) -> WatchOptions:
    """From a query; `revision` is the store's latest. Raises 400 for what is not a number."""
    since, asked = routes.revision(query), bool(query.get("sendInitialEvents"))
    initial = routes.flag(query, "sendInitialEvents") if asked else not since
    return WatchOptions(
        since=since if since or initial else revision,
        initial=initial,
        mark_initial=asked and initial,
        bookmarks=routes.flag(query, "allowWatchBookmarks"),
        seconds=float(routes.number(query, "timeoutSeconds") or _DEFAULT_SECONDS),
    )


class Watch:
    """One watcher: subscribed from construction to `close`."""

    def __init__(
        self, cluster: Cluster, view: ResourceView, selection: Selection, *, since: int | None, initial: bool
    ) -> None:
        self._view = view
        self._selection = selection
        self._store = cluster.store
        self._collection = cluster.collection(view.resource)
        self._queue: deque[StoreEvent] = deque(self._first_events(since, initial=initial))
        self._wake = asyncio.Event()
        self._ended = False
        self._headers_sent = False
        self._unsubscribe = self._collection.subscribe(self._receive, selection.index_value)

    def _first_events(self, since: int | None, *, initial: bool) -> list[StoreEvent]:
        """Everything that is there (for a watch from 0, or without a version), or what happened since."""
        if initial:
            return [StoreEvent(ADDED, None, record) for record in self._collection.records(self._selection)]
        return self._collection.events_since(since) if since else []

    def _receive(self, event: StoreEvent) -> None:
        if len(self._queue) >= _BACKLOG:
            self._ended = True
        else:
            self._queue.append(event)
        self._wake.set()

    def close(self) -> None:
        """Stop listening and end the stream."""
        self._unsubscribe()
        self._ended = True
        self._wake.set()

    async def lines(self, options: WatchOptions, bookmark_seconds: float) -> AsyncIterator[bytes]:
        """Chunks of whole lines until the time is up; bookmarks at each interval and once at the end, if wanted."""
        loop = asyncio.get_running_loop()
        end = loop.time() + options.seconds
        next_bookmark = loop.time() + bookmark_seconds
        yield self._drain() + (self._bookmark(initial_end=True) if options.mark_initial and options.bookmarks else b"")
        while not self._ended and (remaining := end - loop.time()) > 0:
            until = min(remaining, next_bookmark - loop.time()) if options.bookmarks else remaining
            if await self._wait(until):
                if chunk := self._drain():
                    yield chunk
            elif options.bookmarks and loop.time() >= next_bookmark:
                next_bookmark = loop.time() + bookmark_seconds
                yield self._drain() + self._bookmark()
        if not self._ended:
            yield self._drain() + (self._bookmark() if options.bookmarks else b"")

    async def _wait(self, seconds: float) -> bool:
        self._wake.clear()
        if self._queue:
            return True
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def _drain(self) -> bytes:
        lines = []
        while self._queue:
            lines.append(self._line(self._queue.popleft()))
        return b"".join(lines)

    def _line(self, event: StoreEvent) -> bytes:
        covered = self._selection.covers
        now = event.type != DELETED and covered(event.after)
        before = event.before is not None and covered(event.before)
        if now:
            return self._encoded(MODIFIED if before else ADDED, event.after)
        if before:
            return self._encoded(DELETED, event.after if event.type == DELETED else _last_match(event))
        return b""

    def _encoded(self, kind: str, record: StoredObject) -> bytes:
        body = self._table(record) if self._view.form == "table" else self._view.one(record)
        return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"

    def _table(self, record: StoredObject) -> bytes:
        """Column headers come with the first row only, as the real server sends them."""
        body = self._view.one(record)
        if self._headers_sent:
            row = jsonio.decode(body)
            row["columnDefinitions"] = None
            return jsonio.encode(row)
        self._headers_sent = True
        return body

    def _bookmark(self, *, initial_end: bool = False) -> bytes:
        return bookmark(self._view.resource, self._store.revision, initial_end=initial_end)


def _last_match(event: StoreEvent) -> StoredObject:
    """The object as it last matched, but with the version of the change that made it leave."""
    assert event.before is not None
    obj = event.before.object()
    obj["metadata"]["resourceVersion"] = str(event.revision)
    before = event.before
    return StoredObject(
        before.key, before.uid, event.revision, jsonio.encode(obj), before.labels, before.fields, before.owners
    )


def bookmark(resource: ServedResource, revision: int, *, initial_end: bool = False) -> bytes:
    """A BOOKMARK event: nothing changed up to this version."""
    metadata: Obj = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return jsonio.encode({"type": "BOOKMARK", "object": body}) + b"\n"


def error_line(error: StatusError) -> bytes:
    """An ERROR event: how a watch that cannot start says so."""
    return jsonio.encode({"type": "ERROR", "object": error.status()}) + b"\n"
