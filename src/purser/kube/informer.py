"""A local copy of one resource, kept up to date, with handlers for every change.

The rules, each of which some client library gets wrong:

- the first list comes in pages, and the watch starts from the first page's version;
- a watch that the server ends, or that breaks, continues from the last version seen, bookmarks included;
- a version that is too old (410, as a status or inside the stream) means a new list, and objects missing from it are
  reported as deletions; an object of the same name with another uid is a deletion and an addition;
- watches are ended after a random 5 to 10 minutes, so that they spread over the API servers, and given up after 70 s of
  silence, because bookmarks come every minute;
- failures are followed by jittered exponential back-off; a failure of a handler is reported (`ObjectFailures`) and has
  no other effect; an object that exists and cannot be read stays as last known.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Generic, Never, TypeVar

import structlog

from purser.kube.backoff import Backoff
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import ApiUnavailableError, GoneError, KubeError
from purser.kube.racing import until
from purser.kube.resources import Resource, key_of, key_of_ref, meta_of
from purser.kube.store import Store
from purser.kube.watching import Bookmark, ChangeType, WatchEvent

T = TypeVar("T")

log = structlog.get_logger("purser.kube")

WATCH_SECONDS = (300, 600)
"""A watch is asked to end after a random time in this range."""

WATCH_INACTIVITY_TIMEOUT_S = 70.0
"""A watch without a byte for this long counts as broken."""

_SHORT_WATCH_S = 1.0  # a watch that ends sooner, without an event, counts as a failure: no hot loop


@dataclass(frozen=True, slots=True)
class InformerHealth:
    """The state of an informer."""

    synced: bool
    """The store has been filled once."""
    connected: bool
    """A list has succeeded and a watch is open."""


@dataclass(frozen=True, slots=True)
class _Handler(Generic[T]):
    on_add: Callable[[T], None] | None
    on_update: Callable[[T, T], None] | None
    on_delete: Callable[[T], None] | None


class Informer(Generic[T]):
    """Keeps ``store`` equal to the server's objects while `run` runs."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        clock: Clock | None = None,
        backoff: Backoff | None = None,
        inactivity_seconds: float = WATCH_INACTIVITY_TIMEOUT_S,
    ):
        self.store: Store[T] = Store()
        self.resource = resource
        self.failures = client.failures
        """Where failures of single objects are reported."""
        self._client = client
        self._namespace = namespace
        self._selectors = {"label_selector": label_selector, "field_selector": field_selector}
        self._clock = clock or SystemClock()
        self._backoff = backoff or Backoff(initial_s=0.5, cap_s=30.0)
        self._inactivity_s = inactivity_seconds
        self._handlers: list[_Handler[T]] = []
        self._version: str | None = None  # where the next watch starts; None: list first
        self._synced = asyncio.Event()
        self._connected = False
        self._last_event: float | None = None
        self._error: KubeError | None = None
        self._relist_wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def health(self) -> InformerHealth:
        """For readiness checks and metrics."""
        return InformerHealth(self._synced.is_set(), self._connected)

    @property
    def error(self) -> KubeError | None:
        """Why the last list or watch failed; None once one went well."""
        return self._error

    def add_handler(
        self,
        on_add: Callable[[T], None] | None = None,
        on_update: Callable[[T, T], None] | None = None,
        on_delete: Callable[[T], None] | None = None,
    ) -> None:
        """Register plain functions that are called with every change, in order, after the store has taken it.

        ``on_add(new)``, ``on_update(old, new)``, ``on_delete(last known state)``. Objects already in the store are
        reported at once as additions. Handlers run on the event loop: they note what changed and leave the work to a
        queue.
        """
        handler = _Handler(on_add, on_update, on_delete)
        self._handlers.append(handler)
        for obj in list(self.store.values()):
            self._call(handler.on_add, obj)

    async def synced(self) -> None:
        """Return once the store has been filled and its handlers were called."""
        await self._synced.wait()

    async def wait_for_relist(self) -> None:
        """Return once the store is at least as fresh as a consistent list made now.

        Needs `run` to be running, and waits as long as the API server is away: set a timeout around it.
        """
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._relist_wanted.set()
        await done

    async def run(self) -> Never:
        """List and watch until cancelled."""
        try:
            while True:
                try:
                    await self._advance()
                except GoneError as error:
                    self._error, self._version = error, None
                    await self._pause("The watch's resource version has expired; listing again", error)
                except KubeError as error:
                    self._error = error
                    await self._pause("Listing or watching failed", error)
                except Exception as error:  # unexpected: the store may be incomplete, so it is listed again
                    self._version, pause = None, self._backoff.next()
                    self.failures.report_loop_failure(f"informer of {self.resource.plural}", error, pause)
                    await until(self._clock.sleep(pause), self._relist_wanted.wait())
        finally:
            self._connected = False
            for waiter in self._take_waiters():
                waiter.set_exception(ApiUnavailableError(f"the informer of {self.resource.plural} has stopped"))

    async def _advance(self) -> None:
        """List if need be, then watch until the watch ends or a list is wanted."""
        if self._version is None or self._waiting:
            await self._list()
        try:
            await until(self._watch(), self._relist_wanted.wait())
        finally:
            self._connected = False

    async def _list(self) -> None:
        self._relist_wanted.clear()
        served = len(self._waiting)  # requests from now on want a newer list than this one
        listing = await self._client.list(self.resource, self._namespace, **self._selectors)
        self._take(listing.items, {key_of_ref(about) for about in listing.left_out})
        self._version = listing.resource_version
        self._note_activity()
        self._synced.set()
        for waiter in self._take_waiters(served):
            waiter.set_result(None)

    async def _watch(self) -> None:
        started = self._clock.monotonic()
        seen_before = self._last_event
        async with self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self._version or "",
            timeout_seconds=random.randint(*WATCH_SECONDS),
            inactivity_seconds=self._inactivity_s,
            **self._selectors,
        ) as events:
            self._connected, self._error = True, None  # of objects that do not change, no event comes for a minute
            async for event in events:
                self._apply(event)
        if self._last_event == seen_before and self._clock.monotonic() - started < _SHORT_WATCH_S:
            raise ApiUnavailableError(f"the server closed the watch on {self.resource.plural} immediately")
        self._backoff.reset()

    async def _pause(self, what: str, error: Exception) -> None:
        delay = self._backoff.next()
        log.warning(what, resource=self.resource.plural, error=str(error), retry_in_s=round(delay, 2))
        await until(self._clock.sleep(delay), self._relist_wanted.wait())

    def _note_activity(self) -> None:
        self._last_event, self._error = self._clock.monotonic(), None

    def _apply(self, event: WatchEvent[T]) -> None:
        self._note_activity()
        self._backoff.reset()
        if isinstance(event, Bookmark):
            self._version = event.resource_version
            return
        if event.type is ChangeType.DELETED:
            self._forget(key_of(event.object), event.object)
        else:
            self._upsert(event.object)
        self._version = meta_of(event.object).resource_version

    def _take(self, items: Iterable[T], unreadable: Collection[str]) -> None:
        """Make the store equal to a list. Deletions come first: what they free is there for what is added."""
        fresh = {key_of(obj): obj for obj in items}
        for key in [key for key in self.store if key not in fresh and key not in unreadable]:
            self._forget(key, self.store[key])
        for obj in fresh.values():
            self._upsert(obj)

    def _upsert(self, obj: T) -> None:
        key, metadata = key_of(obj), meta_of(obj)
        old = self.store.get(key)
        if old is not None and meta_of(old).uid != metadata.uid:
            self._forget(key, old)
            old = None
        if old is None:
            self.store.put(obj)
            for handler in self._handlers:
                self._call(handler.on_add, obj)
        elif meta_of(old).resource_version != metadata.resource_version:
            self.store.put(obj)
            for handler in self._handlers:
                self._call(handler.on_update, old, obj)

    def _forget(self, key: str, last: T) -> None:
        if key in self.store:
            self.store.remove(key)
            for handler in self._handlers:
                self._call(handler.on_delete, last)

    def _call(self, function: Callable[..., None] | None, *arguments: T) -> None:
        if function is None:
            return
        with self.failures.guard(self.resource, arguments[-1]):
            function(*arguments)

    def _take_waiters(self, first: int | None = None) -> list[asyncio.Future[None]]:
        """Take out the first so many waiters; those that gave up are left out."""
        taken, self._waiting = self._waiting[:first], self._waiting[first:] if first is not None else []
        return [waiter for waiter in taken if not waiter.done()]
