"""Policies that are not the active one: younger ones, and ones that leave. What they say, and when they may go."""

from collections.abc import Iterable, Iterator

from purser.operator.kernel.active_policy import Chosen, generation_of, has_finalizer, old_status, uid_of
from purser.operator.kernel.conditions import READY, condition
from purser.operator.kernel.policy_writes import without_finalizer
from purser.operator.model import ObjectKey, Raw, SetFinalizer, Snapshot
from purser.operator.policy import ClusterPolicyStatus


def ignored_status(snapshot: Snapshot, raw: Raw, active: str) -> ClusterPolicyStatus:
    """Of a policy that is not the active one."""
    told = f"ClusterPolicy {active} is older and the only one that counts: delete either"
    old, generation = old_status(raw), generation_of(raw)
    ready = condition(READY, False, "Ignored", told, old=old, generation=generation, now=snapshot.now)
    return ClusterPolicyStatus(
        state="ignored", namespace=snapshot.namespace, observed_generation=generation, conditions=(ready,)
    )


def leaving_status(snapshot: Snapshot, raw: Raw, told: str) -> ClusterPolicyStatus:
    """Of a policy that was asked to go: what it waits for."""
    old, generation = old_status(raw), generation_of(raw)
    ready = condition(READY, False, "Leaving", told, old=old, generation=generation, now=snapshot.now)
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
