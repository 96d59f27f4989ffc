"""Kubernetes Events: what Purser says to people beside the objects they look at."""

import asyncio
import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType, TracebackType
from typing import Any, Never

import msgspec
import structlog

from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock, micro_timestamp, timestamp
from purser.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from purser.kube.objects import ObjectReference
from purser.kube.resources import EVENTS
from purser.recent import Recent

log = structlog.get_logger("purser.kube")

# These are client-go's: 25 events on an object at once, then one in five minutes. Here they count for each reason
# apart: success is reported however often a failure was reported before.
_BURST = 25.0
_REFILL_PER_S = 1 / 300
# A burst of pods is bound first and its events follow: an event costs the API server what a Binding costs.
# kube-scheduler's client has 50 requests a second for its own events.
_EVENT_BURST = 100.0
_EVENTS_PER_S = 10.0
_MAX_MESSAGE = 1024
_MAX_OBJECT_NAME = 230  # so that the event's own name, with its suffix, stays within 253
_MAX_REMEMBERED_EVENTS = 4096
_MAX_QUEUED = 4096
_MAX_QUEUED_WARNINGS = 2 * _MAX_QUEUED  # a queue full of other events has room for as many Warnings
_DRAIN_TIMEOUT_S = 5.0
_NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Event:
    """What makes two events the same."""

    about: ObjectReference
    type: str
    reason: str
    message: str
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _PostedEvent:
    name: str
    count: int


@dataclass(slots=True)
class _TokenBucket:
    """Tokens; each event takes one."""

    filled_at: float
    most: float
    per_s: float
    tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.most

    def take(self, now: float) -> bool:
        self.tokens = min(self.most, self.tokens + (now - self.filled_at) * self.per_s)
        self.filled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class EventRecorder:
    """Posts Events in the background, Warnings first; an async context manager that drains on leaving.

    The same event again only raises the count of the first. What is said of an object too often for one reason is cut
    off for a while, and so is everything when the API server cannot keep up: events are advice, the caller never waits
    for them.
    """

    def __init__(
        self, client: Client, component: str, instance: str, *, clock: Clock | None = None, exact_times: bool = False
    ):
        """``component`` is who speaks (``purser-scheduler``), ``instance`` which one (a pod's or node's name).

        ``exact_times``: say the microsecond as well (``eventTime``), as kube-scheduler does.
        """
        self._client = client
        self._component = component
        self._instance = instance
        self._clock = clock or SystemClock()
        self._exact_times = exact_times
        self._queue: asyncio.PriorityQueue[tuple[bool, int, _Event, datetime]] = asyncio.PriorityQueue(
            _MAX_QUEUED_WARNINGS
        )
        """Warnings first, then as they were said; with when that was: in a burst they are posted minutes later."""
        self._order = itertools.count()
        self._posted: Recent[_Event, _PostedEvent] = Recent(_MAX_REMEMBERED_EVENTS)
        self._buckets: Recent[tuple[ObjectReference, str], _TokenBucket] = Recent(_MAX_REMEMBERED_EVENTS)
        self._task: asyncio.Task[Never] | None = None
        self.dropped = 0
        """How many events were not posted: rate limits, a full queue, or a refusal."""

    async def __aenter__(self) -> "EventRecorder":
        self._task = asyncio.create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.drain()
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait({self._task})

    def event(
        self,
        about: ObjectReference,
        reason: str,
        message: str,
        type: str = "Normal",
        annotations: Mapping[str, str] = _NO_ANNOTATIONS,
    ) -> None:
        """Say something about an object: a reason in one CamelCase word, a message in one sentence.

        ``type`` is ``Normal`` or ``Warning``; ``annotations`` are the event's own. Returns at once and never raises.
        """
        about = msgspec.structs.replace(about, resource_version="")  # the same object, in whatever version
        event = _Event(about, type, reason, message[:_MAX_MESSAGE], tuple(annotations.items()))
        if not self._is_within_rate(about, reason):
            self._discard(event, "too many events on this object for this reason")
            return
        is_warning = type == "Warning"
        if self._queue.qsize() >= (_MAX_QUEUED_WARNINGS if is_warning else _MAX_QUEUED):
            self._discard(event, "too many events in a short time")
            return
        self._queue.put_nowait((not is_warning, next(self._order), event, self._clock.now()))

    async def run(self) -> Never:
        """Post what was said, until cancelled."""
        pace = _TokenBucket(self._clock.monotonic(), _EVENT_BURST, _EVENTS_PER_S)
        while True:
            *_, event, at = await self._queue.get()
            while not pace.take(self._clock.monotonic()):
                await self._clock.sleep(1 / _EVENTS_PER_S)
            try:
                await self._post(event, at)
            except KubeError as error:
                self._discard(event, str(error))
            except Exception:
                log.exception("Failed to post an event", reason=event.reason)
                self.dropped += 1
            finally:
                self._queue.task_done()

    async def drain(self, timeout: float = _DRAIN_TIMEOUT_S) -> None:
        """Return once everything said so far is posted, or after this many seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._queue.join()
        except TimeoutError:
            log.warning("Events were not posted before shutdown", count=self._queue.qsize())

    def _is_within_rate(self, about: ObjectReference, reason: str) -> bool:
        now, key = self._clock.monotonic(), (about, reason)
        bucket = self._buckets.get(key) or self._buckets.put(key, _TokenBucket(now, _BURST, _REFILL_PER_S))
        return bucket.take(now)

    async def _post(self, event: _Event, at: datetime) -> None:
        posted = self._posted.get(event)
        if posted is not None and await self._increment_count(event, posted, timestamp(at)):
            return
        while True:
            body = self._body(event, at)
            try:
                await self._client.create(EVENTS, body)
            except AlreadyExistsError:
                continue  # something else was said of the object at this very moment: another name
            break
        self._posted.put(event, _PostedEvent(body["metadata"]["name"], 1))

    async def _increment_count(self, event: _Event, posted: _PostedEvent, at: str) -> bool:
        """Whether the event is still there to be counted up: the API server forgets events after an hour."""
        patch = {"count": posted.count + 1, "lastTimestamp": at}
        try:
            await self._client.patch_merge(EVENTS, posted.name, patch, _namespace(event.about))
        except NotFoundError:
            return False
        posted.count += 1
        return True

    def _body(self, event: _Event, at: datetime) -> dict[str, Any]:
        about = event.about
        return {
            "metadata": {
                "name": f"{about.name[:_MAX_OBJECT_NAME]}.{_nanoseconds(at):016x}",
                "namespace": _namespace(about),
                **({"annotations": dict(event.annotations)} if event.annotations else {}),
            },
            "involvedObject": {key: value for key, value in msgspec.to_builtins(about).items() if value},
            "reason": event.reason,
            "message": event.message,
            "type": event.type,
            "count": 1,
            "firstTimestamp": timestamp(at),
            "lastTimestamp": timestamp(at),
            **({"eventTime": micro_timestamp(at), "action": event.reason} if self._exact_times else {}),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }

    def _discard(self, event: _Event, why: str) -> None:
        self.dropped += 1
        log.warning("Dropped an event", object=event.about.name, reason=event.reason, why=why)


def _nanoseconds(at: datetime) -> int:
    """Of an event's time, in its name as in the names of client-go's events: times beside them are whole seconds. The
    clock has microseconds; what is below is at random, for names are given once."""
    return (int(at.timestamp()) * 1_000_000 + at.microsecond) * 1000 + secrets.randbelow(1000)


def _namespace(about: ObjectReference) -> str:
    return about.namespace or "default"  # where Kubernetes keeps the events of cluster-scoped objects
