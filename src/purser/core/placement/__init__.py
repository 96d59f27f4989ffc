"""Placement: which node and which devices a pod gets, or why none.

One noun per file: `feasibility` (may this device take this container), `order` (which is preferred), `choice` (which
set is taken), `topology` (sets by their links), `place` (a pod on a node), `evaluate` (a pod on many nodes), `rank`
(which node is best), `explain` (why none), `grants` (what goes on the book), `mig` (profiles of partitioned cards).

Not here: the book itself (`purser.core.ledger`), what pods' resource names mean (`purser.core.dialects`), and kubelet's
own admission. Nothing here changes anything: values in, values out.
"""

from purser.core.placement.evaluate import Evaluation, VerdictCache, evaluate
from purser.core.placement.explain import explain
from purser.core.placement.grants import to_grant
from purser.core.placement.place import ContainerPlacement, Fit, Placement, decide, place, placement_of
from purser.core.placement.policy import Authority, Policy
from purser.core.placement.rank import MAX_SCORE, best, rank
from purser.core.placement.reasons import UNREGISTERED, Reason, Refusal, tally

__all__ = [
    "MAX_SCORE",
    "UNREGISTERED",
    "Authority",
    "ContainerPlacement",
    "Evaluation",
    "Fit",
    "Placement",
    "Policy",
    "Reason",
    "Refusal",
    "VerdictCache",
    "best",
    "decide",
    "evaluate",
    "explain",
    "place",
    "placement_of",
    "rank",
    "tally",
    "to_grant",
]
