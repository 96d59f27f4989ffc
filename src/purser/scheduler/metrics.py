"""The scheduler's metrics; one registry per part of the process, so that several run in one process."""

from contextlib import AbstractContextManager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import generate_latest

from purser import __version__
from purser.core.consistency import Invariant
from purser.scheduler.reasons import BindFailure

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
    """The scheduler's metrics."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, buckets=_LATENCY_BUCKETS_S, registry=registry)
        self._latency = histogram(
            "purser_scheduler_request_seconds",
            "Time to answer kube-scheduler or the API server, including decoding and encoding.",
            ["verb", "outcome"],
        )
        self._stages = histogram(
            "purser_scheduler_stage_seconds", "Duration of each stage of answering kube-scheduler.", ["verb", "stage"]
        )
        self._admissions = counter(
            "purser_scheduler_webhook_decisions",
            "Webhook decisions (mutate, validate, warn for workloads) by reason.",
            ["webhook", "decision", "reason"],
        )
        self._reads = counter("purser_scheduler_read_api_requests", "Read API responses by HTTP status.", ["code"])
        self._refusals = counter(
            "purser_scheduler_filter_refusals", "Nodes that a pod did not fit on, by reason.", ["reason"]
        )
        self._bind_failures = counter(
            "purser_scheduler_bind_failures",
            "Failed attempts to bind a pod, and pods bound without a valid grant, by reason (docs/reasons.md).",
            ["reason"],
        )
        self._nominations = counter(
            "purser_scheduler_nominations",
            "Nominations of pods to nodes before kube-scheduler asked about the pods, by outcome: written or failed.",
            ["outcome"],
        )
        self._grants = gauge("purser_scheduler_grants", "Grants in the ledger by state.", ["state"])
        self._disputed = gauge(
            "purser_scheduler_disputed_gpus",
            "GPUs closed to new grants until the records agree on which pods hold them.",
        )
        self._rejected = counter("purser_scheduler_rejected_grants", "Granted pods that kubelet rejected.")
        self._doubles = counter(
            "purser_scheduler_granted_twice",
            "Pods that were granted devices that another pod already uses, which can happen when the leader changes.",
        )
        self._configurations = gauge(
            "purser_scheduler_webhook_configuration",
            "1 for the current state of a webhook configuration: right, different or missing.",
            ["configuration", "state"],
        )
        self._invariants = counter(
            "purser_scheduler_invariant_violations",
            "Violated invariants of the scheduler's state, found while it runs. Should be 0.",
            ["invariant"],
        )
        self._logged = counter(
            "purser_scheduler_logged_decisions",
            "Decisions for the decision log, by outcome: written, or lost because writing failed or fell behind.",
            ["outcome"],
        )
        for outcome in ("written", "lost"):
            self._logged.labels(outcome)
        self._log_bytes = counter(
            "purser_scheduler_decision_log_bytes", "Bytes written to the decision log, including node state."
        )
        for each in Invariant:
            self._invariants.labels(each.value)
        Info("purser_scheduler_build", "Version of Purser.", registry=registry).info({"version": __version__})

    def answered(self, verb: str, outcome: str, seconds: float) -> None:
        """A request was answered: ``ok``, with an ``error`` inside, as ``bad-request``, not at all (``failed``), or not
        even read, for its size or for that of all (``turned-away``)."""
        self._latency.labels(verb, outcome).observe(seconds)

    def stage(self, verb: str, stage: str) -> AbstractContextManager[object]:
        """Measures one stage, one that fails too: ``decode``, ``parse``, ``evaluate``, ``rank``, ``encode``."""
        return self._stages.labels(verb, stage).time()

    def admitted(self, webhook: str, decision: str, reason: str) -> None:
        """The webhook decided; decision is ``allowed``, ``patched`` or ``denied``."""
        self._admissions.labels(webhook, decision, reason).inc()

    def read(self, code: int) -> None:
        """The read API answered with this HTTP status."""
        self._reads.labels(code).inc()

    def refused(self, reason: str, nodes: int = 1) -> None:
        """Nodes were filtered out for one reason."""
        self._refusals.labels(reason).inc(nodes)

    def bind_failed(self, reason: BindFailure) -> None:
        """A pod could not be bound, or is bound without a valid grant."""
        self._bind_failures.labels(reason).inc()

    def nominated(self, outcome: str) -> None:
        """A pod was to be nominated to a node: that is ``written``, or it ``failed``."""
        self._nominations.labels(outcome).inc()

    def grants(self, counts: dict[str, int]) -> None:
        """Set the number of grants in each state."""
        for state, count in counts.items():
            self._grants.labels(state).set(count)

    def disputed_gpus(self, count: int) -> None:
        """Set the number of GPUs that are closed to new grants."""
        self._disputed.set(count)

    def granted_twice(self) -> None:
        """A pod was granted what another one runs with."""
        self._doubles.inc()

    def count_violation(self, invariant: str) -> None:
        """An invariant of the scheduler's state was found violated."""
        self._invariants.labels(invariant).inc()

    def decisions_logged(self, count: int) -> None:
        """Decisions are in the decision log."""
        self._logged.labels("written").inc(count)

    def decisions_lost(self, count: int) -> None:
        """Decisions should be in the decision log, and are not."""
        self._logged.labels("lost").inc(count)

    def decision_log_grew(self, count: int) -> None:
        """So many bytes were written to the decision log."""
        self._log_bytes.inc(count)

    def rejected_by_node(self) -> None:
        """kubelet rejected a granted pod."""
        self._rejected.inc()

    def webhook_configuration(self, name: str, state: str) -> None:
        """A webhook configuration was looked at: it is ``right``, ``different`` or ``missing``."""
        for each in ("right", "different", "missing"):
            self._configurations.labels(name, each).set(each == state)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
