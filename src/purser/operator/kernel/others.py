"""Policies that do not count: younger ones, ones that cannot be read, and ones that leave."""

from collections.abc import Iterable, Iterator

import msgspec

from purser.operator.kernel.active import Chosen, finalizers_of, has_finalizer, name_of, old_status, uid_of
from purser.operator.kernel.conditions import DEGRADED, PROGRESSING, READY, condition
from purser.operator.model import ObjectKey, Raw, SetFinalizer, Snapshot, WriteStatus
from purser.operator.names import FINALIZER
from purser.operator.policy import ClusterPolicyStatus


def write_status(raw: Raw, status: ClusterPolicyStatus) -> Iterator[WriteStatus]:
    """Only if it differs from what is there."""
    if not raw.get("status") or status != old_status(raw):
        yield WriteStatus(name_of(raw), status)


def ignored_status(snapshot: Snapshot, raw: Raw, active: str) -> ClusterPolicyStatus:
    """Of a policy that is not the active one."""
    told = f"ClusterPolicy {active} is older and the only one that counts: delete either"
    old, generation = old_status(raw), _generation(raw)
    ready = condition(READY, False, "Ignored", told, old=old, generation=generation, now=snapshot.now)
    return ClusterPolicyStatus(
        state="ignored", namespace=snapshot.namespace, observed_generation=generation, conditions=(ready,)
    )


def leaving_status(snapshot: Snapshot, raw: Raw, told: str) -> ClusterPolicyStatus:
    """Of a policy that was asked to go: what it waits for."""
    old, generation = old_status(raw), _generation(raw)
    ready = condition(READY, False, "Leaving", told, old=old, generation=generation, now=snapshot.now)
    return ClusterPolicyStatus(
        state="notReady", namespace=snapshot.namespace, observed_generation=generation, conditions=(ready,)
    )


def invalid_status(snapshot: Snapshot, raw: Raw, problem: str) -> ClusterPolicyStatus:
    """Of an active policy that cannot be read: everything stays as it was, and the rest of the status, too."""
    old, generation = old_status(raw), _generation(raw)
    told = f"{problem}. Until this is mended everything stays as it is"
    states = ((READY, False), (PROGRESSING, False), (DEGRADED, True))
    conditions = tuple(
        condition(kind, holds, "InvalidSpec", told, old=old, generation=generation, now=snapshot.now)
        for kind, holds in states
    )
    return msgspec.structs.replace(
        old, state="notReady", namespace=snapshot.namespace, observed_generation=generation, conditions=conditions
    )


def with_finalizer(raw: Raw) -> SetFinalizer:
    """The active policy does not go before the operator has cleaned up."""
    return SetFinalizer(name_of(raw), _version(raw), (*finalizers_of(raw), FINALIZER))


def without_finalizer(raw: Raw) -> SetFinalizer:
    """The operator needs this policy no longer."""
    rest = tuple(each for each in finalizers_of(raw) if each != FINALIZER)
    return SetFinalizer(name_of(raw), _version(raw), rest)


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


def _generation(raw: Raw) -> int:
    return int(raw["metadata"].get("generation") or 0)


def _version(raw: Raw) -> str:
    return str(raw["metadata"].get("resourceVersion", ""))
