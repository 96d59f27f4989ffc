"""What the scheduler counts and measures; one registry per process part, so that several run in one process."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import generate_latest

from purser import __version__

_LATENCY_BUCKETS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)


class SchedulerMetrics:
    """The scheduler's metrics; whoever decides something counts it here."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._latency = Histogram(
            "purser_scheduler_request_seconds",
            "Time to answer a request, decoding and encoding included.",
            ["verb", "outcome"],
            buckets=_LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._stages = Histogram(
            "purser_scheduler_stage_seconds",
            "Time of each stage of an answer to kube-scheduler.",
            ["verb", "stage"],
            buckets=_LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._admissions = Counter(
            "purser_scheduler_webhook_decisions",
            "Decisions of the webhook by why they were made.",
            ["webhook", "decision", "reason"],
            registry=registry,
        )
        self._refusals = Counter(
            "purser_scheduler_filter_refusals",
            "Nodes that a pod did not fit on, by reason.",
            ["reason"],
            registry=registry,
        )
        self._bind_failures = Counter(
            "purser_scheduler_bind_failures",
            "Pods that could not be bound, by cause.",
            ["cause"],
            registry=registry,
        )
        self._grants = Gauge(
            "purser_scheduler_grants",
            "Grants on the book by how far they have come.",
            ["state"],
            registry=registry,
        )
        Info("purser_scheduler_build", "Which Purser this is.", registry=registry).info({"version": __version__})

    def answered(self, verb: str, outcome: str, seconds: float) -> None:
        """A request was answered: ``ok``, with an ``error`` inside, as ``bad-request``, or not at all (``failed``)."""
        self._latency.labels(verb, outcome).observe(seconds)

    @contextmanager
    def stage(self, verb: str, stage: str) -> Iterator[None]:
        """Measures one stage: ``decode``, ``parse``, ``evaluate``, ``rank``, ``encode``."""
        started = perf_counter()
        yield
        self._stages.labels(verb, stage).observe(perf_counter() - started)

    def admitted(self, webhook: str, decision: str, reason: str) -> None:
        """The webhook decided; decision is ``allowed``, ``patched`` or ``denied``."""
        self._admissions.labels(webhook, decision, reason).inc()

    def refused(self, reason: str, nodes: int = 1) -> None:
        """So many nodes were filtered out for one reason."""
        self._refusals.labels(reason).inc(nodes)

    def bind_failed(self, cause: str) -> None:
        """A pod could not be bound."""
        self._bind_failures.labels(cause).inc()

    def grants(self, counts: dict[str, int]) -> None:
        """So many grants are in each state now."""
        for state, count in counts.items():
            self._grants.labels(state).set(count)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
