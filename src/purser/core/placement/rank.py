"""Which of the nodes that fit is best, and the scores that tell kube-scheduler so.

Nodes with equal scores are ranked alike for kube-scheduler's own scores to decide between them; where one must be
named, it is the first by name. (HAMi's winner among equals depends on which goroutine ends first.)
"""

from operator import attrgetter

from purser.core.model import NodePolicy
from purser.core.placement.evaluate import Evaluation
from purser.core.placement.policy import DEFAULT_POLICY, Authority, Policy

_score_of = attrgetter("score")

MAX_SCORE = 10
"""kube-scheduler's MaxExtenderPriority."""


def rank(evaluation: Evaluation, policy: Policy = DEFAULT_POLICY) -> dict[str, int]:
    """A score of 0 to 10 for every node that fits."""
    if policy.authority is Authority.EXCLUSIVE:
        chosen = best(evaluation)
        return {name: MAX_SCORE if name == chosen else 0 for name in evaluation.fits}
    scores = _spread_out(_ascending(evaluation))
    found = map(_score_of, evaluation.fits.values())
    return dict(zip(evaluation.fits, map(scores.__getitem__, found), strict=True))


def best(evaluation: Evaluation) -> str | None:
    """The best node, first by name among equals; None when none fits."""
    order = _ascending(evaluation)
    if not order:
        return None
    return min(name for name, fit in evaluation.fits.items() if fit.score == order[-1])


def _ascending(evaluation: Evaluation) -> list[float]:
    """The distinct scores from worst to best."""
    # A score says how full a node is. Where the policy is not spread, the fullest is the best.
    emptiest_last = evaluation.node_policy == NodePolicy.SPREAD
    return sorted(set(map(_score_of, evaluation.fits.values())), reverse=emptiest_last)


def _spread_out(ascending: list[float]) -> dict[float, int]:
    """Ranks laid over the whole range: the worst gets 0 and the best 10, however close their scores are."""
    steps = max(len(ascending) - 1, 1)
    lowest = MAX_SCORE if len(ascending) == 1 else 0
    return {score: lowest or MAX_SCORE * place // steps for place, score in enumerate(ascending)}
