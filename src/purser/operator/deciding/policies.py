"""ClusterPolicies by which nothing is decided: younger ones, ones that leave, and an active one that cannot be read or
has another operator beside it. What their status says, and when they may go."""

from collections.abc import Iterable, Iterator

import msgspec

from purser.operator.deciding.status import DEGRADED, PROGRESSING, READY, condition
from purser.operator.maintenance import is_cordoned_by_purser
from purser.operator.mig import is_under_way as mig_is_under_way
from purser.operator.model import ObjectKey, Raw, SetFinalizer, Snapshot, WriteStatus
from purser.operator.names import FINALIZER
from purser.operator.policy import ClusterPolicyStatus
from purser.operator.policy.active import (
    Chosen,
    finalizers_of,
    generation_of,
    has_finalizer,
    name_of,
    old_status,
    uid_of,
)
from purser.operator.reasons import OperatorReason
from purser.operator.upgrade import is_under_way as upgrade_is_under_way
from purser.operator.wording import natural, some

# --- writes


def write_status(raw: Raw, status: ClusterPolicyStatus) -> Iterator[WriteStatus]:
    """Only if it differs from what is there."""
    if not raw.get("status") or status != old_status(raw):
        yield WriteStatus(name_of(raw), status)


def claim(raw: Raw, namespace: str) -> WriteStatus:
    """The policy is this operator's: of two that meet a new one at once, in two namespaces, one gets a conflict."""
    return WriteStatus(name_of(raw), msgspec.structs.replace(old_status(raw), namespace=namespace), _version(raw))


def with_finalizer(raw: Raw) -> SetFinalizer:
    """The active policy does not go before the operator has cleaned up."""
    return SetFinalizer(name_of(raw), _version(raw), (*finalizers_of(raw), FINALIZER))


def without_finalizer(raw: Raw) -> SetFinalizer:
    """The operator needs this policy no longer."""
    rest = tuple(each for each in finalizers_of(raw) if each != FINALIZER)
    return SetFinalizer(name_of(raw), _version(raw), rest)


def _version(raw: Raw) -> str:
    return str(raw["metadata"].get("resourceVersion", ""))


# --- policies that are not active


def ignored_status(snapshot: Snapshot, raw: Raw, active: str) -> ClusterPolicyStatus:
    """Of a policy that is not the active one."""
    message = f"ClusterPolicy {active} is older and active: delete one of them"
    old, generation = old_status(raw), generation_of(raw)
    ready = condition(READY, False, OperatorReason.IGNORED, message, old=old, generation=generation, now=snapshot.now)
    return ClusterPolicyStatus(
        state="ignored", namespace=snapshot.namespace, observed_generation=generation, conditions=(ready,)
    )


def leaving_status(snapshot: Snapshot, raw: Raw, message: str) -> ClusterPolicyStatus:
    """Of a policy that was asked to go: what it waits for."""
    old, generation = old_status(raw), generation_of(raw)
    ready = condition(READY, False, OperatorReason.LEAVING, message, old=old, generation=generation, now=snapshot.now)
    return ClusterPolicyStatus(
        state="notReady", namespace=snapshot.namespace, observed_generation=generation, conditions=(ready,)
    )


def released(snapshot: Snapshot, chosen: Chosen) -> Iterator[SetFinalizer]:
    """Policies that are not the active one may go once nothing belongs to them: with its owner, an object would go."""
    owners = owners_of(snapshot.objects)
    for raw in (*chosen.leaving, *chosen.ignored):
        if has_finalizer(raw) and uid_of(raw) not in owners:
            yield without_finalizer(raw)


def owners_of(objects: dict[ObjectKey, Raw]) -> frozenset[str]:
    """Uids of all owners."""
    references: Iterable[Raw] = (
        owner for obj in objects.values() for owner in obj["metadata"].get("ownerReferences") or ()
    )
    return frozenset(str(owner.get("uid", "")) for owner in references)


# --- a blocked active policy


def invalid_status(snapshot: Snapshot, raw: Raw, problem: str) -> ClusterPolicyStatus:
    """Of an active policy that cannot be read: everything stays as it was, and the rest of the status, too."""
    message = f"{problem}. Nothing changes until this is fixed{_interrupted_nodes(snapshot)}"
    return _stopped(snapshot, raw, OperatorReason.INVALID_SPEC, message)


def rivals_status(snapshot: Snapshot, raw: Raw) -> ClusterPolicyStatus:
    """Of an active policy while NVIDIA's operator is at work: two that write the same labels would undo each other."""
    names = " ".join(snapshot.rivals)
    message = (
        f"another operator manages these nodes: nothing is written while there is {names}"
        f" (kubectl delete clusterpolicies.nvidia.com {names}){_interrupted_nodes(snapshot)}"
    )
    return _stopped(snapshot, raw, OperatorReason.ANOTHER_OPERATOR, message)


def other_namespace(snapshot: Snapshot) -> str:
    """That the policies are another operator's, in one sentence with what to do."""
    there = snapshot.other_namespace
    return (
        f"the ClusterPolicy belongs to the operator in namespace {there},"
        f" and the one in {snapshot.namespace} does nothing:"
        f" give --namespace {there}, or remove that one (purser operator uninstall --namespace {there})"
    )


def _interrupted_nodes(snapshot: Snapshot) -> str:
    """Nodes that stay where they are in a change, as the end of a sentence."""
    names = [
        node.name
        for node in snapshot.nodes
        if is_cordoned_by_purser(node) or upgrade_is_under_way(node) or mig_is_under_way(node)
    ]
    if not names:
        return ""
    return f"; nodes left cordoned or paused in the middle of a change: {some(sorted(names, key=natural))}"


def _stopped(snapshot: Snapshot, raw: Raw, reason: OperatorReason, message: str) -> ClusterPolicyStatus:
    """Nothing is decided for now; what is known of operands and nodes stays as it was found last."""
    old, generation = old_status(raw), generation_of(raw)
    states = ((READY, False), (PROGRESSING, False), (DEGRADED, True))
    conditions = tuple(
        condition(kind, holds, reason, message, old=old, generation=generation, now=snapshot.now)
        for kind, holds in states
    )
    return msgspec.structs.replace(
        old, state="notReady", namespace=snapshot.namespace, observed_generation=generation, conditions=conditions
    )
