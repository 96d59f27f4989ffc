"""Nodes where a pod fits, but not beside those pods nominated to them that it has to yield to."""

from collections.abc import Mapping
from itertools import compress

import numpy as np

from purser.core.fleet import Fleet, NominatedUsage
from purser.core.grant.quota import QuotaLimits
from purser.core.model import PodRequest
from purser.core.placement.evaluate import PAIR_SCORE, Evaluation
from purser.core.placement.place import decide
from purser.core.placement.reasons import PROMISED_REFUSAL, Refusal
from purser.core.policy.settings import PolicySettings


def without_kept_nodes(
    found: Evaluation,
    fleet: Fleet,
    request: PodRequest,
    policy: PolicySettings,
    left: QuotaLimits,
    held: Mapping[str, NominatedUsage],
) -> Evaluation:
    """The evaluation without these nodes, and without pairs that others will have. ``held``: what is kept of nodes for
    nominated pods."""

    def pairs_on(node: str) -> int | None:
        """None: the pod does not fit."""
        state = fleet.without(node, {request.uid})
        fit = None if state is None else decide(state.plus(held[node]), request, policy, left)
        return None if fit is None or isinstance(fit, Refusal) else fit.pairs

    beside = {node: pairs_on(node) for node in held.keys() & set(found.fits) if held[node]}
    reserved_nodes = {node for node, pairs in beside.items() if pairs is None}
    lost = {node: found.pairs[node] - (pairs or 0) for node, pairs in beside.items() if node in found.pairs}
    if not reserved_nodes and not any(lost.values()):
        return found
    scores = found.scores - PAIR_SCORE * np.array([lost.get(name, 0) for name in found.fits])
    kept = [name not in reserved_nodes for name in found.fits]
    refusals = {**found.refusals, **dict.fromkeys(reserved_nodes, PROMISED_REFUSAL)}
    rows = found.rows[kept] if len(found.rows) else found.rows
    return Evaluation(list(compress(found.fits, kept)), scores[kept], refusals, rows, found.asked)
