"""Placement: which node and which devices a pod gets, or why none.

All nodes at once, on the fleet as arrays, for the live scheduler and the simulator alike: `shape` (a pod's size),
`verdicts` (which nodes it fits, why not the others), `policies` (which node and GPUs are best), `table` (scores by
shape, renewed where rows changed), `mix` and `fragments` (what pods are typical, and what is of no use to them),
`kernels` (the loops, in numpy and in numba), `warmup` (has these compiled).

One node by all rules: `feasibility` (may this device take this container), `scores` (how full it is, as HAMi counts),
`order` and `preference` (which is preferred), `choice` (which set is taken), `topology` (sets by their links), `place`
(a pod on a node), `grants` (what goes on the book), `mig` (profiles of partitioned cards). What the node's kubelet
makes of a choice: `foresight` (what becomes of pods it is about to take), `kubelet` (a choice that it takes),
`nearness` (shares near their CPUs).

Both together: `policy` (the operator's choices), `evaluate` (a pod on many nodes), `by_class` (one verdict for nodes in
equal state), `rank` (which node is best), `reasons` and `explain` (why none), `preemption` (who would have to go).

Not here: the book itself (`purser.core.ledger`), what pods' resource names mean (`purser.core.dialects`), and kubelet's
rules (`purser.core.kubelet`). Nothing here changes the fleet or the book. What is kept from one decision to the next
follows from them, but for the mix, which is learnt from arrivals.
"""

from purser.core.placement.evaluate import Evaluator
from purser.core.placement.explain import explain
from purser.core.placement.place import DeviceAssignment, Placement, decide, place, placement_of, to_grant
from purser.core.placement.policy import MAX_SCORE, Authority, Evaluation, Policy, best, foremost, rank
from purser.core.placement.reasons import PROMISED, UNREGISTERED, Reason, Refusal, tally

__all__ = [
    "MAX_SCORE",
    "PROMISED",
    "UNREGISTERED",
    "Authority",
    "DeviceAssignment",
    "Evaluation",
    "Evaluator",
    "Placement",
    "Policy",
    "Reason",
    "Refusal",
    "best",
    "decide",
    "explain",
    "foremost",
    "place",
    "placement_of",
    "rank",
    "tally",
    "to_grant",
]
