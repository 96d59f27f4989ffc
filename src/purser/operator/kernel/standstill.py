"""The active policy while nothing is decided by it: it cannot be read, or another operator is at work, NVIDIA's or one
of Purser's in another namespace."""

import msgspec

from purser.operator.kernel.active_policy import generation_of, old_status
from purser.operator.kernel.conditions import DEGRADED, PROGRESSING, READY, condition
from purser.operator.mig import is_under_way as mig_is_under_way
from purser.operator.model import Raw, Snapshot
from purser.operator.names import KIND
from purser.operator.nodework.cordons import is_cordoned_by_purser
from purser.operator.policy import ClusterPolicyStatus
from purser.operator.upgrade import is_under_way as upgrade_is_under_way
from purser.operator.wording import natural, some

UNDEFINED = f"the cluster has no definition of {KIND}: purser operator crd --apply makes it"


def invalid_status(snapshot: Snapshot, raw: Raw, problem: str) -> ClusterPolicyStatus:
    """Of an active policy that cannot be read: everything stays as it was, and the rest of the status, too."""
    told = f"{problem}. Until this is mended everything stays as it is{_in_the_middle(snapshot)}"
    return _stopped(snapshot, raw, "InvalidSpec", told)


def rivals_status(snapshot: Snapshot, raw: Raw) -> ClusterPolicyStatus:
    """Of an active policy while NVIDIA's operator is at work: two that write the same labels would undo each other."""
    names = " ".join(snapshot.rivals)
    told = (
        f"another operator is at work on these nodes: nothing is written as long as there is {names}"
        f" (kubectl delete clusterpolicies.nvidia.com {names}){_in_the_middle(snapshot)}"
    )
    return _stopped(snapshot, raw, "AnotherOperator", told)


def elsewhere(snapshot: Snapshot) -> str:
    """That the policies are another operator's, in one sentence with what to do."""
    there = snapshot.elsewhere
    return (
        f"the ClusterPolicy is that of the operator in namespace {there},"
        f" and nothing is done from {snapshot.namespace}:"
        f" give --namespace {there}, or remove that one (purser operator uninstall --namespace {there})"
    )


def _in_the_middle(snapshot: Snapshot) -> str:
    """Nodes that stay where they are in a change, as the end of a sentence."""
    names = [
        node.name
        for node in snapshot.nodes
        if is_cordoned_by_purser(node) or upgrade_is_under_way(node) or mig_is_under_way(node)
    ]
    if not names:
        return ""
    return f"; in the middle of a change, and cordoned or paused, stay nodes: {some(sorted(names, key=natural))}"


def _stopped(snapshot: Snapshot, raw: Raw, reason: str, told: str) -> ClusterPolicyStatus:
    """Nothing is decided for now; what is known of operands and nodes stays as it was found last."""
    old, generation = old_status(raw), generation_of(raw)
    states = ((READY, False), (PROGRESSING, False), (DEGRADED, True))
    conditions = tuple(
        condition(kind, holds, reason, told, old=old, generation=generation, now=snapshot.now) for kind, holds in states
    )
    return msgspec.structs.replace(
        old, state="notReady", namespace=snapshot.namespace, observed_generation=generation, conditions=conditions
    )
