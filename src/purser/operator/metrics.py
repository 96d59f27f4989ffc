"""The operator's metrics: the gauges that users of NVIDIA's GPU operator know, and counters of its own work.

The registry belongs to one operator, so that several can live in one process. Only the leader exports gauges, so that a
sum or a maximum over replicas is the leader's value.
"""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from purser.operator.acting import RoundResult, describe
from purser.operator.model import (
    GAUGE_HELP,
    GAUGE_PREFIX,
    Action,
    Gauge,
    Reconciliation,
    RoundOutcome,
    Snapshot,
    WriteStatus,
)
from purser.operator.policy import ClusterPolicyStatus
from purser.operator.policy.decoding import old_status


class _LeaderGauges(Collector):
    """Gauges that are there once they have a value, and until it is forgotten."""

    def __init__(self) -> None:
        self.values: dict[Gauge, float] = {}
        self.operands: dict[tuple[str, str], float] = {}
        """By operand and state."""

    def collect(self) -> Iterator[Metric]:
        for gauge in Gauge:
            if gauge in self.values:
                yield GaugeMetricFamily(GAUGE_PREFIX + gauge, GAUGE_HELP[gauge], self.values[gauge])
        if self.operands:
            name, labels = "purser_operator_node_operands", ("operand", "state")
            family = GaugeMetricFamily(
                name, "Nodes by operand and state: desired, ready, updated or waiting.", labels=labels
            )
            for key, count in self.operands.items():
                family.add_metric(key, count)
            yield family


class OperatorMetrics:
    """The registry and all its metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges = _LeaderGauges()
        self.registry.register(self._gauges)
        self._rounds = Counter(GAUGE_PREFIX + "reconciliation", "Reconciliations.", registry=self.registry)
        self._failed = Counter(
            GAUGE_PREFIX + "reconciliation_failed", "Failed reconciliations.", registry=self.registry
        )
        self._seconds = Histogram(
            "purser_operator_round_seconds", "Duration of a reconciliation.", registry=self.registry
        )
        self._writes = Counter(
            "purser_operator_writes",
            "Successful writes to the API server, by verb and kind.",
            ["verb", "kind"],
            registry=self.registry,
        )

    def forget(self) -> None:
        """This process does not lead any more: what is so now, another one knows."""
        self._gauges.values.clear()
        self._gauges.operands.clear()

    def round_ended(self, snapshot: Snapshot, outcome: RoundOutcome, result: RoundResult, seconds: float) -> None:
        """A round came to its end, though not all of its writes may have gone well."""
        self._rounds.inc()
        self._seconds.observe(seconds)
        for action in result.done:
            words = describe(action)
            self._writes.labels(words["verb"], words["kind"]).inc()
        if outcome.blocked:
            self.forget()
        self._gauges.values.update(outcome.gauges)
        if outcome.gauges.get(Gauge.RECONCILIATION) == Reconciliation.READY:
            self._gauges.values[Gauge.LAST_SUCCESS] = snapshot.now
        if not outcome.blocked:
            self._gauges.operands = _operands_of(_active_status(snapshot, outcome.actions))
        if any(not failure.expected for failure in result.failures):
            self.round_failed()

    def round_failed(self) -> None:
        """A round failed: nothing is known, or not everything was written."""
        self._failed.inc()
        self._gauges.values[Gauge.RECONCILIATION] = Reconciliation.FAILED


def _operands_of(status: ClusterPolicyStatus) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for operand in status.operands:
        counts: Mapping[str, int] = {
            "desired": operand.desired,
            "ready": operand.ready,
            "updated": operand.updated,
            "waiting": operand.waiting,
        }
        found |= {(operand.name, state): count for state, count in counts.items()}
    return found


def _active_status(snapshot: Snapshot, actions: tuple[Action, ...]) -> ClusterPolicyStatus:
    """The active policy's status: as this round writes it, else as it stands there; an empty one without a policy."""
    written = [action.status for action in actions if isinstance(action, WriteStatus)]
    statuses = written + [old_status(policy) for policy in snapshot.policies]
    return next((status for status in statuses if status.state not in ("", "ignored")), ClusterPolicyStatus())
