"""What a round says of itself: events on the policy and on nodes, and gauges."""

from collections.abc import Iterator, Sequence

from purser.operator.gauges import Gauge, Reconciliation
from purser.operator.kernel.conditions import READY, find
from purser.operator.kernel.facts import has_nfd
from purser.operator.kernel.failing import HANDLING_FAILED, sentence
from purser.operator.kernel.status import ROLLING
from purser.operator.model import Say, Snapshot, Standing
from purser.operator.policy import ClusterPolicy, ClusterPolicyStatus


def events_of(policy: ClusterPolicy, status: ClusterPolicyStatus, standings: Sequence[Standing]) -> Iterator[Say]:
    """What became otherwise since the policy's last status: whether it is ready, and which nodes fail."""
    before, now = find(policy.status.conditions, READY), find(status.conditions, READY)
    if now is not None and (before is None or before.status != now.status):
        meta = policy.metadata
        yield Say(
            "ClusterPolicy",
            meta.name,
            meta.uid,
            now.reason,
            now.message,
            warning=before is not None and now.status != "True" and now.reason not in ROLLING,
        )
    known = {(each.name, each.reason) for each in policy.status.failing_nodes}
    uids = {standing.node.name: standing.node.uid for standing in standings}
    for failing in status.failing_nodes:
        # That a node is left out is told by whoever makes the rounds, as of each object that Purser fails on.
        if failing.reason != HANDLING_FAILED and (failing.name, failing.reason) not in known:
            yield Say("Node", failing.name, uids[failing.name], failing.reason, sentence(failing), warning=True)


def gauges_of(snapshot: Snapshot, standings: Sequence[Standing], status: ClusterPolicyStatus) -> dict[Gauge, float]:
    """Under the names that users of NVIDIA's operator know."""
    return {
        Gauge.GPU_NODES: float(status.nodes.total),
        Gauge.HAS_NFD_LABELS: float(any(has_nfd(node) for node in snapshot.nodes)),
        Gauge.RECONCILIATION: Reconciliation.READY if status.state == "ready" else Reconciliation.NOT_READY,
    }
