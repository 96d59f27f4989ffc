"""What must hold between the things that scheduler and agent keep: each sum, index and array is what a recount gives.
Here what holds within a ledger; of nodes and arrays see `purser.core.fleet.consistency`.

Nothing here is about GPUs that are overcommitted (`purser.core.ledger.Ledger.violations`) or records that differ
between components (`purser.core.grant.reconcile`): those have causes outside of the process. What is found here is a
bug. Nothing is repaired.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec

from purser.core.grant.quota import Demand, grant_demand
from purser.core.ledger import NO_USAGE, Ledger, Usage, pod_usage

GRANTS_AT_ONCE = 256
"""Between two results of `ledger_sweep`: a millisecond or two."""


_Item = TypeVar("_Item")


class Invariant(StrEnum):
    """What holds; stable strings, labels of a metric."""

    NODE_USAGE = "node-usage"
    """What the ledger counts of a node's devices is the sum of the grants there."""
    NAMESPACE_DEMAND = "namespace-demand"
    """What the ledger counts of a namespace is the sum of its grants."""
    GRANT_INDEX = "grant-index"
    """The ledger lists each grant under its node, and under no other."""
    NODE_STATE = "node-state"
    """A node's state is what its inventory, its usage and its disputes give."""
    ARRAY_ROWS = "array-rows"
    """The row of a node in the arrays is what its state gives; what has no state has no row."""


class InvariantViolation(msgspec.Struct, frozen=True):
    """One thing that is not as a recount gives it."""

    invariant: str
    subject: str
    """The node, namespace or pod uid."""
    kept: str
    """What is there."""
    recounted: str
    """What should be."""


def ledger_violations(ledger: Ledger) -> tuple[InvariantViolation, ...]:
    """Everything that does not hold within a ledger, at once."""
    of_grants = (found for some in ledger_sweep(ledger) for found in some)
    return (*of_grants, *(found for name in ledger.nodes() for found in node_usage_violations(ledger, name)))


def ledger_sweep(ledger: Ledger) -> Iterator[list[InvariantViolation]]:
    """Of the index and the sums of namespaces, some grants at a time. Sums are compared as of the first moment."""
    kept, grants = ledger.demands(), tuple(ledger.grants())
    recounted: dict[tuple[str, str], Demand] = defaultdict(Demand)
    for some in slices(grants, GRANTS_AT_ONCE):
        for grant in some:
            recounted[grant.namespace, grant.family] += grant_demand(grant)
        yield [
            InvariantViolation(Invariant.GRANT_INDEX, grant.pod_uid, "not listed", f"listed under {grant.node}")
            for grant in some
            if ledger.grant(grant.pod_uid) is grant and not ledger.is_listed(grant.pod_uid, grant.node)
        ]
    yield [
        InvariantViolation(
            Invariant.NAMESPACE_DEMAND,
            f"{whose[0]} {whose[1]}".rstrip(),
            str(kept.get(whose, Demand())),
            str(recounted.get(whose, Demand())),
        )
        for whose in sorted(kept.keys() | recounted.keys())
        if kept.get(whose, Demand()) != recounted.get(whose, Demand())
    ]


def node_usage_violations(ledger: Ledger, name: str) -> Iterator[InvariantViolation]:
    """Of the sums of one node, and of what is listed under it."""
    recounted: dict[str, Usage] = {}
    for uid in ledger.uids(name):
        grant = ledger.grant(uid)
        if grant is None or grant.node != name:
            there = "no grant" if grant is None else f"granted on {grant.node}"
            yield InvariantViolation(Invariant.GRANT_INDEX, uid, f"listed under {name}", there)
            continue
        for uuid, taken in pod_usage(grant).items():
            recounted[uuid] = recounted.get(uuid, NO_USAGE) + taken
    kept = ledger.usage(name)
    if dict(kept) != recounted:
        yield InvariantViolation(Invariant.NODE_USAGE, name, *differences_text(kept, recounted))


def differences_text(kept: Mapping[str, object], recounted: Mapping[str, object]) -> tuple[str, str]:
    """Two records as texts, without the entries in which they agree."""
    differing_keys = sorted(key for key in kept.keys() | recounted.keys() if kept.get(key) != recounted.get(key))
    return str({key: kept.get(key) for key in differing_keys}), str({key: recounted.get(key) for key in differing_keys})


def slices(items: Sequence[_Item], length: int) -> Iterator[Sequence[_Item]]:
    """So many items at a time."""
    return (items[start : start + length] for start in range(0, len(items), length))
