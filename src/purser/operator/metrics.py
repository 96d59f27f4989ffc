"""What the operator tells Prometheus: the gauges that users of the GPU operator know, and counters of its own work.

The registry belongs to one operator, so that several can live in one process.
"""

from collections.abc import Mapping

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from purser.operator.acting import Result
from purser.operator.acting.writer import describe
from purser.operator.model import Action, Outcome, Raw, Snapshot, WriteStatus
from purser.operator.policy import ClusterPolicyStatus

PREFIX = "gpu_operator_"

GAUGES = {
    "gpu_nodes_total": "Nodes with a GPU.",
    "reconciliation_status": "1: everything is ready; 0: not yet; -1: no ClusterPolicy to act on; -2: a round failed.",
    "reconciliation_has_nfd_labels": "Whether a node carries labels of node-feature-discovery.",
    "driver_auto_upgrade_enabled": "Whether drivers are upgraded without being asked.",
    "nodes_upgrades_in_progress": "Nodes whose driver is being upgraded.",
    "nodes_upgrades_done": "Nodes with the driver that they should have.",
    "nodes_upgrades_failed": "Nodes whose driver upgrade failed.",
    "nodes_upgrades_available": "Nodes whose driver upgrade could begin now.",
    "nodes_upgrades_pending": "Nodes that wait for their driver upgrade.",
}
"""What a round's `Outcome.gauges` may name, and its help."""

_FAILED = -2.0


class OperatorMetrics:
    """The registry and all its metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges = {name: Gauge(PREFIX + name, text, registry=self.registry) for name, text in GAUGES.items()}
        self._rounds = Counter(PREFIX + "reconciliation", "Rounds so far.", registry=self.registry)
        self._failed = Counter(PREFIX + "reconciliation_failed", "Rounds that failed.", registry=self.registry)
        self._last_success = Gauge(
            PREFIX + "reconciliation_last_success_ts_seconds",
            "When a round last found everything ready.",
            registry=self.registry,
        )
        self._seconds = Histogram(
            "purser_operator_round_seconds", "How long a round takes, writes included.", registry=self.registry
        )
        self._writes = Counter(
            "purser_operator_writes", "Writes to the API server.", ["verb", "kind"], registry=self.registry
        )
        self._operands = Gauge(
            "purser_operator_node_operands", "Nodes by operand and state.", ["operand", "state"], registry=self.registry
        )

    def round_ended(self, snapshot: Snapshot, outcome: Outcome, result: Result, seconds: float) -> None:
        """A round came to its end, though not all of its writes may have gone well."""
        self._rounds.inc()
        self._seconds.observe(seconds)
        for action in result.done:
            words = describe(action)
            self._writes.labels(words["verb"], words["kind"]).inc()
        for name, value in outcome.gauges.items():
            if name in self._gauges:
                self._gauges[name].set(value)
        if outcome.gauges.get("reconciliation_status") == 1.0:
            self._last_success.set(snapshot.now)
        self._show_operands(_active_status(snapshot, outcome.actions))
        if any(not failure.expected for failure in result.failures):
            self.round_failed()

    def round_failed(self) -> None:
        """A round failed: nothing is known, or not everything was written."""
        self._failed.inc()
        self._gauges["reconciliation_status"].set(_FAILED)

    def _show_operands(self, status: ClusterPolicyStatus) -> None:
        self._operands.clear()
        for operand in status.operands:
            counts: Mapping[str, int] = {
                "desired": operand.desired,
                "ready": operand.ready,
                "updated": operand.updated,
                "waiting": operand.waiting,
            }
            for state, count in counts.items():
                self._operands.labels(operand.name, state).set(count)


def _active_status(snapshot: Snapshot, actions: tuple[Action, ...]) -> ClusterPolicyStatus:
    """The active policy's status: as this round writes it, else as it stands there; an empty one without a policy."""
    written = [action.status for action in actions if isinstance(action, WriteStatus)]
    statuses = written + [_status_of(policy) for policy in snapshot.policies]
    return next((status for status in statuses if status.state not in ("", "ignored")), ClusterPolicyStatus())


def _status_of(policy: Raw) -> ClusterPolicyStatus:
    """An unreadable one is as none: the round writes it anew."""
    try:
        return msgspec.convert(policy.get("status") or {}, ClusterPolicyStatus)
    except msgspec.ValidationError:
        return ClusterPolicyStatus()
