"""Failures on single objects: reported, counted, and isolated, so that other objects are still handled.

There are two kinds. An object may have invalid content: that is an expected error of the object. An unexpected
exception in Purser is a bug: the object is skipped, the rest is handled. Both are logged, counted in the metric
``purser_object_failures_total`` and reported in one event on the object.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol

import structlog
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter

from purser.core.decoding import brief
from purser.kube.backoff import Backoff
from purser.kube.clock import Clock, SystemClock
from purser.kube.objects import ObjectReference
from purser.kube.reasons import FailureReason
from purser.kube.resources import NODES, Resource, key_of_ref, node_ref, ref_of
from purser.recent import Recent

log = structlog.get_logger("purser.kube")

RESTART_S, RESTART_CAP_S = 1.0, 60.0
"""The first and the longest pause before a failed loop is restarted."""

_MAX_REMEMBERED_FAILURES = 4096


class _EventSink(Protocol):
    def event(self, about: ObjectReference, reason: str, message: str, type: str = "Normal") -> None: ...


class ObjectFailures:
    """Of one process part; each `purser.kube.client.Client` has one, which those who use it share."""

    def __init__(self) -> None:
        self._count = Counter(
            "purser_object_failures",
            "Number of times that an object could not be read (stage `read`), or that its handling failed "
            "unexpectedly (stage `handle`).",
            ["resource", "stage"],
            registry=None,
        )
        self._loops = Counter(
            "purser_loop_failures",
            "Number of times that a background loop failed unexpectedly and was restarted.",
            ["loop"],
            registry=None,
        )
        self._events: _EventSink | None = None
        self._is_active: Callable[[], bool] = lambda: True
        self._reported: Recent[tuple[ObjectReference, str], None] = Recent(_MAX_REMEMBERED_FAILURES)

    def report_to(
        self, registry: CollectorRegistry, events: _EventSink, is_active: Callable[[], bool] = lambda: True
    ) -> None:
        """Have the metric exposed and events posted; ``is_active`` says whether this replica is the one that does."""
        registry.register(self._count)
        registry.register(self._loops)
        self._events, self._is_active = events, is_active

    async def keep_going(
        self, name: str, loop: Callable[[], Awaitable[None]], clock: Clock | None = None, *, reset_s: float = 300.0
    ) -> None:
        """Run an endless loop, and restart it after a pause whenever it raises. For loops whose every iteration starts
        from the current state. The pause is short again after ``reset_s`` seconds without an error.
        """
        clock, backoff = clock or SystemClock(), Backoff(RESTART_S, RESTART_CAP_S)
        while True:
            began = clock.monotonic()
            try:
                return await loop()
            except Exception as error:
                if clock.monotonic() - began >= reset_s:
                    backoff.reset()
                pause = backoff.next()
                self.report_loop_failure(name, error, pause)
            await clock.sleep(pause)

    def report_loop_failure(self, name: str, error: Exception, pause_s: float) -> None:
        """A turn of a loop raised this, unexpectedly; the next one begins after a pause."""
        self._loops.labels(name).inc()
        log.error(
            "A background loop failed and will be restarted", loop=name, again_in_s=round(pause_s, 1), exc_info=error
        )

    def guard(self, resource: Resource[Any], obj: Any) -> "_Guard":
        """Whatever is raised inside is the failure of this object alone, or of what this reference is about."""
        return _Guard(self, resource, obj)

    def failed(self, resource: Resource[Any], obj: Any, error: Exception) -> None:
        """A part of Purser raised this, unexpectedly, while it handled the object."""
        self._count.labels(resource.plural, "handle").inc()
        about = obj if isinstance(obj, ObjectReference) else ref_of(resource, obj)
        log.error("Handling an object failed", resource=resource.plural, object=key_of_ref(about), exc_info=error)
        what = brief(f"{type(error).__name__}: {error}")
        self._emit(about, FailureReason.FAILED, f"Purser failed on this object and continues without it: {what}")

    def unreadable(self, resource: Resource[Any], about: ObjectReference | None, problem: str) -> None:
        """An object does not fit its type and is left out; ``about``: what is known of it."""
        self._count.labels(resource.plural, "read").inc()
        log.error("An object cannot be read and is ignored", resource=resource.plural, error=problem)
        if about is not None and about.name:
            self._emit(about, FailureReason.UNREADABLE, f"Purser ignores this object: {brief(problem)}")

    def malformed(
        self, resource: Resource[Any], obj: Any, problem: str, reason: FailureReason = FailureReason.UNREADABLE
    ) -> None:
        """Something that was written into the object makes no sense; the caller has logged it."""
        self._emit(obj if isinstance(obj, ObjectReference) else ref_of(resource, obj), reason, problem)

    def _emit(self, about: ObjectReference, reason: FailureReason, message: str) -> None:
        if self._events is None or not self._is_active():
            return
        about = node_ref(about.name) if about.kind == NODES.kind else replace(about, resource_version="")
        if (about, message) in self._reported:
            return
        self._reported.put((about, message), None)
        self._events.event(about, reason, message, type="Warning")


class _Guard:
    """A context manager that keeps exceptions to one object; what ends a task goes through."""

    def __init__(self, failures: ObjectFailures, resource: Resource[Any], obj: Any) -> None:
        self._failures, self._resource, self._obj = failures, resource, obj

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._failures.failed(self._resource, self._obj, error)
        return True
