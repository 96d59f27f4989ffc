"""Which ClusterPolicy counts: the oldest that is not leaving."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from purser.operator.names import FINALIZER, KIND
from purser.operator.policy import ClusterPolicy, ClusterPolicyStatus, PolicyError, decode

Raw = Mapping[str, Any]
"""A ClusterPolicy as it came from the API."""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of a cluster by what becomes of them."""

    raw: Raw | None = None
    """The active one; None: there is none."""
    policy: ClusterPolicy | None = None
    """The same, decoded; None where that cannot be done."""
    problem: str = ""
    """Why not."""
    ignored: tuple[Raw, ...] = ()
    """Younger ones."""
    leaving: tuple[Raw, ...] = ()
    """Those that were asked to go, and wait for the operator's finalizer."""


def choose(policies: Sequence[Raw]) -> Chosen:
    """The oldest policy is active, of equally old ones the first by name. One that cannot be decoded counts, too: a
    mistake in it must not hand the cluster to another policy."""
    staying = sorted((each for each in policies if not is_leaving(each)), key=_age)
    leaving = tuple(sorted((each for each in policies if is_leaving(each) and has_finalizer(each)), key=_age))
    if not staying:
        return Chosen(leaving=leaving)
    policy, problem = _decoded(staying[0])
    return Chosen(raw=staying[0], policy=policy, problem=problem, ignored=tuple(staying[1:]), leaving=leaving)


def namespace_of_operator(policies: Sequence[Raw]) -> str:
    """Namespace of the operator that acts on these policies, as the one that counts most says; empty: none has yet."""
    chosen = choose(policies)
    namespaces = (
        old_status(each).namespace for each in (chosen.raw, *chosen.leaving, *chosen.ignored) if each is not None
    )
    return next(filter(None, namespaces), "")


def name_of(raw: Raw) -> str:
    """Name of a policy."""
    return str(raw["metadata"]["name"])


def uid_of(raw: Raw) -> str:
    """Its uid."""
    return str(raw["metadata"].get("uid", ""))


def is_leaving(raw: Raw) -> bool:
    """Whether it was asked to go."""
    return bool(raw["metadata"].get("deletionTimestamp"))


def has_finalizer(raw: Raw) -> bool:
    """Whether it waits for the operator when it goes."""
    return FINALIZER in finalizers_of(raw)


def finalizers_of(raw: Raw) -> tuple[str, ...]:
    """All its finalizers."""
    return tuple(raw["metadata"].get("finalizers") or ())


def generation_of(raw: Raw) -> int:
    """Which of its specs it is."""
    generation = raw["metadata"].get("generation")
    return generation if isinstance(generation, int) else 0


def old_status(raw: Raw) -> ClusterPolicyStatus:
    """The status of a policy as it stands; an empty one where it cannot be read: it is written anew."""
    try:
        return msgspec.convert(raw.get("status") or {}, ClusterPolicyStatus)
    except msgspec.ValidationError:
        return ClusterPolicyStatus()


def _age(raw: Raw) -> tuple[str, str]:
    return str(raw["metadata"].get("creationTimestamp") or ""), name_of(raw)


def _decoded(raw: Raw) -> tuple[ClusterPolicy | None, str]:
    try:
        policy = decode({**raw, "status": {}})
        return msgspec.structs.replace(policy, status=old_status(raw)), ""
    except PolicyError as error:
        return None, str(error)


UNDEFINED = f"there is no CustomResourceDefinition of {KIND}: run purser operator crd --apply"
