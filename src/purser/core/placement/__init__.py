"""Placement: which node and which devices a pod gets, or why none.

The steps of a decision, in order. All nodes at once, or the one that it is bound to, on the fleet as arrays, for the
live scheduler; the simulator begins at `table`: `evaluate` (a pod on many nodes, and the best of these), `shape` (its
size, and what that finds of the fleet), `verdicts` (which nodes it fits, and why not the others; whether a GPU takes a
container is the rule of `purser.core.fleet.rule`), `table` (scores by shape, renewed where rows changed), `policies`
(which node and GPUs are best), `kernels` (their loops, in numpy and in numba), `reasons` and `explain` (why none fits),
`ranking` (the scores for kube-scheduler). `mix` and `fragments`: which pods are typical, and which free resources they
cannot use.

One node by itself, where the arrays do not suffice: `place` (the same rule of each device, the choice, the grant),
`order` and `preference` (which device is preferred), `choice` (which set is taken), `kubelet` (a choice that the node's
kubelet takes) and `kubelet_prediction` (what becomes of pods it is about to take). `by_class`: one verdict for nodes in
equal state. `preemption`: which pods would have to go. `warmup` compiles the kernels.

Not here: the ledger itself (`purser.core.ledger`), the meaning of pods' resource names (`purser.core.dialects`), and
kubelet's rules (`purser.core.kubelet`). Nothing here changes the fleet or the ledger. State that is kept between
decisions is derived from them, except for the mix, which is learnt from arrivals.
"""

from purser.core.placement.evaluate import Evaluation, Evaluator, best_nodes
from purser.core.placement.explain import Clause, clauses, demand_over_quota, explain
from purser.core.placement.fragments import Causes
from purser.core.placement.granted import DeviceAssignment, Placement, placement_of, to_grant
from purser.core.placement.place import decide, place
from purser.core.placement.ranking import MAX_SCORE, best, rank
from purser.core.placement.reasons import PROMISED_REFUSAL, UNREGISTERED, Reason, Refusal, tally
from purser.core.policy.settings import Authority, PolicySettings

__all__ = [
    "MAX_SCORE",
    "PROMISED_REFUSAL",
    "UNREGISTERED",
    "Authority",
    "Causes",
    "Clause",
    "DeviceAssignment",
    "Evaluation",
    "Evaluator",
    "Placement",
    "PolicySettings",
    "Reason",
    "Refusal",
    "best",
    "best_nodes",
    "clauses",
    "decide",
    "demand_over_quota",
    "explain",
    "place",
    "placement_of",
    "rank",
    "tally",
    "to_grant",
]
