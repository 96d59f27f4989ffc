"""One operator process: what is made, in which order it starts, and how it ends; and one round after the other:
observe, decide, write. Rounds are triggered by changes, and by time where a round asks for it.
"""

import asyncio
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

import msgspec
import structlog

from purser.kube import (
    Client,
    Clock,
    ClusterConfig,
    EventRecorder,
    KubeError,
    LeaderElector,
    SystemClock,
    WorkQueue,
    run_workers,
)
from purser.kube.failures import ObjectFailures
from purser.kube.objects import ObjectReference
from purser.kube.racing import until
from purser.kube.resources import NODES
from purser.operator.acting import FailedAction, RoundResult, Writer, perform, subject
from purser.operator.deciding import nodes_to_inspect, reconcile
from purser.operator.metrics import OperatorMetrics
from purser.operator.model import EmitEvent, Evict, ObjectKey, RefusedWrite, RoundOutcome, Snapshot
from purser.operator.names import FIELD_MANAGER, GROUP, LEASE, VERSION
from purser.operator.observing import Observer
from purser.operator.observing.kinds import is_namespace, missing_namespace_text
from purser.operator.observing.observer import NodesToInspect
from purser.operator.settings import OperatorSettings
from purser.operator.writing import KubeWriter
from purser.telemetry import listening, telemetry_app

log = structlog.get_logger("purser.operator")

# --- rounds


CLUSTER = "cluster"
"""The queue's one key: a round looks at the whole cluster."""

_API_VERSIONS = {"ClusterPolicy": f"{GROUP}/{VERSION}", "Node": "v1"}


class RoundError(KubeError):
    """A round whose writes did not all go well; the message says how many."""


class Observing(Protocol):
    """Where snapshots come from."""

    async def snapshot(self, nodes_to_inspect: NodesToInspect) -> Snapshot:
        """What there is now. Raises `KubeError`."""
        ...

    async def refresh(self) -> None:
        """List again, to see what others wrote before. Raises `KubeError`."""
        ...


class Events(Protocol):
    """Where events go."""

    def event(self, about: ObjectReference, reason: str, message: str, type: str = "Normal") -> None:
        """Say something about an object."""
        ...


class Rounds:
    """Works the queue's key off, and asks for the next round in time."""

    def __init__(
        self,
        observer: Observing,
        writer: Writer,
        events: Events,
        metrics: OperatorMetrics,
        *,
        apart_s: float,
        may_write: Callable[[], bool],
        clock: Clock | None = None,
        failures: ObjectFailures | None = None,
    ):
        """``failures`` gets the nodes that rounds fail on."""
        self.queue: WorkQueue[str] = WorkQueue(initial_s=max(apart_s, 0.1), cap_s=30.0, clock=clock)
        self._observer = observer
        self._writer = writer
        self._events = events
        self._metrics = metrics
        self._apart_s = apart_s
        self._may_write = may_write
        self._clock = clock or SystemClock()
        self._next = self._clock.monotonic()
        self._emitted: frozenset[EmitEvent] = frozenset()
        self._refusals: tuple[RefusedWrite, ...] = ()
        self._failures = failures or ObjectFailures()
        self._suspects: tuple[str, ...] = ()
        self._blocked = ""
        self._is_fresh = False
        self._is_busy = False
        self._is_due = False
        """Something changed since the round under way began."""

    @property
    def blocked(self) -> str:
        """Why this process, though it leads, does nothing at all; empty where it works."""
        return self._blocked

    def trigger(self) -> None:
        """Have a round soon; those that are asked for in the meantime are the same one."""
        if self._is_busy:
            self._is_due = True
        elif not len(self.queue):
            self.queue.add_after(CLUSTER, max(0.0, self._next - self._clock.monotonic()))

    def leads(self, is_leader: bool) -> None:
        """This process leads from now on, or no longer. What the last leader wrote at its end has to be seen first."""
        self._is_fresh, self._refusals, self._blocked = False, (), ""
        if is_leader:
            self.trigger()
        else:
            self._metrics.forget()

    async def round(self, key: str = CLUSTER) -> None:
        """One round, where this process leads. Raises `KubeError` when it is to be tried again."""
        if not self._may_write():
            return
        self._is_busy, self._is_due = True, False
        try:
            await self._round()
        finally:
            self._is_busy = False
            self._next = self._clock.monotonic() + self._apart_s
            if not self._may_write():
                self._metrics.forget()
            if self._is_due:
                self.trigger()

    async def _round(self) -> None:
        started = self._clock.monotonic()
        try:
            if not self._is_fresh:
                await self._observer.refresh()
                self._is_fresh = True
            seen = await self._observer.snapshot(nodes_to_inspect)
            snapshot = msgspec.structs.replace(seen, refusals=self._refusals, suspects=self._suspects)
            outcome = reconcile(snapshot)
        except Exception:
            self._metrics.round_failed()
            raise
        self._report_failures(outcome)
        result = await perform(outcome.actions, self._writer, self._may_write)
        self._metrics.round_ended(snapshot, outcome, result, self._clock.monotonic() - started)
        self._emit(outcome)
        if outcome.requeue_after_s is not None:
            self.queue.add_after(CLUSTER, max(self._apart_s, outcome.requeue_after_s))
        self._process_result(result)

    def _report_failures(self, outcome: RoundOutcome) -> None:
        by_suspicion = sorted(outcome.isolated, key=lambda each: each.error is not None)
        self._suspects = tuple(each.node.name for each in by_suspicion)
        for each in outcome.isolated:
            if each.error is not None:
                about = ObjectReference(_API_VERSIONS["Node"], "Node", "", each.node.name, each.node.uid)
                self._failures.failed(NODES, about, each.error)

    def _process_result(self, result: RoundResult) -> None:
        """What the next round has to know of this one's writes, and when it has to come. Raises `RoundError`."""
        known, self._refusals = self._refusals, merge_refusals(result, self._refusals)
        unexpected = [failure for failure in result.failures if not failure.expected]
        if unexpected:
            raise RoundError(f"{len(unexpected)} of {len(result.failures) + len(result.done)} writes failed")
        if known != self._refusals or any(_is_outdated(failure) for failure in result.failures):
            self._is_due = True

    def _emit(self, outcome: RoundOutcome) -> None:
        """A thing is said once, and not in each round in which it is so."""
        if outcome.blocked and outcome.blocked != self._blocked:
            log.warning("The operator is blocked", why=outcome.blocked)
        self._blocked = outcome.blocked
        for event in outcome.events:
            if event not in self._emitted:
                about = ObjectReference(_API_VERSIONS[event.kind], event.kind, "", event.name, event.uid)
                self._events.event(about, event.reason, event.message, "Warning" if event.warning else "Normal")
        self._emitted = frozenset(outcome.events)


def merge_refusals(result: RoundResult, known: tuple[RefusedWrite, ...]) -> tuple[RefusedWrite, ...]:
    """What the server refuses for good. Of a write that failed for another reason this time the last word stands."""
    before = {each.key: each for each in known}
    found: dict[ObjectKey, RefusedWrite] = {}
    for failure in result.failures:
        key = subject(failure.action)
        if failure.permanent:
            found[key] = RefusedWrite(key, failure.error)
        elif key in before:
            found.setdefault(key, before[key])
    return tuple(found[key] for key in sorted(found))


def _is_outdated(failure: FailedAction) -> bool:
    """Decided from what was not so any more. When an eviction is asked for again the round says."""
    return failure.expected and not isinstance(failure.action, Evict)


# --- the process


COMPONENT = "purser-operator"
PROGRESS_LOG_PERIOD_S = 10.0
"""Between two words on what is waited for."""


async def run(
    settings: OperatorSettings,
    config: ClusterConfig,
    stop: asyncio.Event,
    on_ready: Callable[[int], None] = lambda port: None,
) -> None:
    """Roll the GPU stack out until ``stop`` is set; the stack stays.

    ``on_ready`` is called with the port of metrics once the cluster is known. While the API server is away it is waited
    for. Raises `ConfigError`, and OSError for a port that is taken.
    """
    await until(_serve(settings, config, on_ready), stop.wait())


async def _serve(settings: OperatorSettings, config: ClusterConfig, on_ready: Callable[[int], None]) -> None:
    """Start everything, and stay. Rounds end before the lease is given back."""
    metrics, identity = OperatorMetrics(), settings.identity or f"{socket.gethostname()}_{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(Client(config, field_manager=FIELD_MANAGER, user_agent=COMPONENT))
        writing = Client(config, field_manager=FIELD_MANAGER, user_agent=COMPONENT, timeout=settings.lease.write_s)
        writer = await stack.enter_async_context(writing)
        events = await stack.enter_async_context(EventRecorder(reader, COMPONENT, identity))
        reader.failures.report_to(metrics.registry, events)
        observer = Observer(reader, settings.namespace, settings.image_to_run)
        elector = _elector(settings, reader, identity)
        rounds = Rounds(
            observer,
            KubeWriter(writer, observer),
            events,
            metrics,
            apart_s=settings.rounds_apart_s,
            may_write=lambda: elector.is_leader,
            failures=reader.failures,
        )
        observer.on_change(rounds.trigger)
        elector.add_listener(rounds.leads)

        def problems() -> list[str]:
            missing = ", ".join(observer.missing)
            unread = f"waiting to read {missing} from the API server: see the log" if missing else ""
            return [*filter(None, (unread, rounds.blocked))]

        app = telemetry_app(metrics.registry, problems)
        port = await stack.enter_async_context(listening(app, settings.metrics_address, settings.metrics_port))
        async with asyncio.TaskGroup() as group:
            group.create_task(observer.run())
            while observer.missing:
                await until(observer.ready(), asyncio.sleep(PROGRESS_LOG_PERIOD_S))
                if observer.missing:
                    log.warning("Still waiting for initial lists", missing=observer.missing)
            await observer.ready()
            if not await is_namespace(reader, settings.namespace):
                log.warning("The lease's namespace is missing", why=missing_namespace_text(settings.namespace))
            log.info("Caches are synced; acquiring the lease", namespace=settings.namespace, metrics_port=port)
            on_ready(port)
            await _lead(elector, rounds)


async def _lead(elector: LeaderElector, rounds: Rounds) -> None:
    """Compete for the lease, and work while leading. A running round is cancelled before the lease is free for others.
    An unexpected error of the election ends the process, after the lease was released: another replica takes over, and
    Kubernetes restarts this one.
    """
    competing = asyncio.create_task(elector.run())
    try:
        await until(run_workers(rounds.queue, rounds.round), asyncio.wait({competing}))
    finally:
        competing.cancel()
        await asyncio.wait({competing})
    if not competing.cancelled():
        competing.result()


def _elector(settings: OperatorSettings, client: Client, identity: str) -> LeaderElector:
    lease = settings.lease
    return LeaderElector(
        client,
        settings.namespace,
        LEASE,
        identity,
        lease_duration=lease.duration_s,
        renew_deadline=lease.renew_deadline_s,
        retry_period=lease.retry_s,
    )
