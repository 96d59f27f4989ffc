"""What a round says of itself: events on the policy and on nodes, and gauges."""

from collections.abc import Iterator, Sequence

from purser.operator.kernel.conditions import READY, find
from purser.operator.kernel.facts import has_nfd
from purser.operator.kernel.failing import sentence
from purser.operator.model import Say, Snapshot, Standing
from purser.operator.policy import ClusterPolicy, ClusterPolicyStatus

OK = 1.0
NOT_READY = 0.0
NO_POLICY = -1.0
"""Values of ``reconciliation_status``."""


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
            warning=before is not None and now.status != "True",
        )
    known = {(each.name, each.reason) for each in policy.status.failing_nodes}
    uids = {standing.node.name: standing.node.uid for standing in standings}
    for failing in status.failing_nodes:
        if (failing.name, failing.reason) not in known:
            yield Say("Node", failing.name, uids[failing.name], failing.reason, sentence(failing), warning=True)


def gauges_of(snapshot: Snapshot, standings: Sequence[Standing], status: ClusterPolicyStatus) -> dict[str, float]:
    """Under the names that users of NVIDIA's operator know."""
    return {
        "gpu_nodes_total": float(len(standings)),
        "reconciliation_has_nfd_labels": float(any(has_nfd(node) for node in snapshot.nodes)),
        "reconciliation_status": OK if status.state == "ready" else NOT_READY,
    }
