"""One operator process, composed: what is made, in which order it starts, and how it ends."""

import asyncio
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from purser.kube import Client, ClusterConfig, EventRecorder, LeaderElector, run_workers
from purser.kube.racing import until
from purser.operator.acting import KubeWriter
from purser.operator.metrics import OperatorMetrics
from purser.operator.names import FIELD_MANAGER, LEASE
from purser.operator.observing import Observer
from purser.operator.observing.kinds import is_namespace, no_namespace
from purser.operator.rounds import Rounds
from purser.operator.settings import OperatorSettings
from purser.telemetry import listening, telemetry_app

log = structlog.get_logger("purser.operator")

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
            missing = [f"not listed yet: {', '.join(observer.missing)}: see the log"] if observer.missing else []
            return [*missing, *filter(None, (rounds.blocked,))]

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
                log.warning("The lease's namespace is missing", why=no_namespace(settings.namespace))
            log.info("Caches are synced, acquiring the lease", namespace=settings.namespace, metrics_port=port)
            on_ready(port)
            await _lead(elector, rounds)


async def _lead(elector: LeaderElector, rounds: Rounds) -> None:
    """Compete for the lease, and work. A round under way is broken off before the lease is free for others.

    What competing fails on unexpectedly ends the process, after the lease was given back: another replica takes over,
    and Kubernetes begins this one anew.
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
