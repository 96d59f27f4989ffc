"""The agent's own metrics: what it did, as counters that its rooms move.

One registry per agent, so that several can live in one process. Units are Prometheus' base units (bytes, ratio).
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class AgentMetrics:
    """The registry, and the counters that other modules move."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.calls = Histogram(
            "purser_agent_call_seconds",
            "Time taken to answer a call from kubelet.",
            ["method"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.refusals = Counter(
            "purser_agent_refusals",
            "Calls from kubelet that were rejected.",
            ["method", "reason"],
            registry=self.registry,
        )
        self.registrations = Counter(
            "purser_agent_registrations", "Successful registrations with kubelet.", registry=self.registry
        )
        self.mps_daemons_lost = Counter(
            "purser_agent_mps_daemons_lost",
            "MPS daemons on the node that exited unexpectedly or stopped answering, which also ended all their "
            "clients.",
            registry=self.registry,
        )
        self.mps_servers_lost = Counter(
            "purser_agent_mps_servers_lost",
            "MPS servers that crashed or had a fatal fault, which also ended all their clients, while their daemon "
            "kept running.",
            registry=self.registry,
        )
        self.kubelet_restarts = Counter(
            "purser_agent_kubelet_restarts",
            "Kubelet restarts that the agent has observed.",
            registry=self.registry,
        )

        self._invariants = Counter(
            "purser_agent_invariant_violations",
            "Violated invariants of the agent's records, found while the agent runs. Should be 0.",
            ["invariant"],
            registry=self.registry,
        )

    def declare_invariants(self, invariants: Iterable[str]) -> None:
        """Export 0 for each of these until it is found violated."""
        for each in invariants:
            self._invariants.labels(each)

    def count_violation(self, invariant: str) -> None:
        """An invariant of the agent's records was found violated."""
        self._invariants.labels(invariant).inc()
