"""What policies' scores of the nodes that fit a pod become: scores for kube-scheduler, or the best node.

Nodes with equal scores are ranked alike for kube-scheduler's own scores to decide between them; where one must be
named, it is the first by name. (HAMi's winner among equals depends on which goroutine ends first.)
"""

import numpy as np

from purser.core.placement.evaluate import Evaluation
from purser.core.policy.settings import DEFAULT_POLICIES, Authority, PolicySettings

MAX_SCORE = 10
"""kube-scheduler's MaxExtenderPriority."""


def rank(evaluation: Evaluation, policy: PolicySettings = DEFAULT_POLICIES) -> list[int]:
    """A score of 0 to 10 for each node that fits, in their order."""
    if policy.authority is Authority.EXCLUSIVE:
        chosen = best(evaluation)
        return [MAX_SCORE if name == chosen else 0 for name in evaluation.fits]
    ascending, place = np.unique(evaluation.scores, return_inverse=True)
    scores: list[int] = _spread_out(len(ascending))[place].tolist()
    return scores


def best(evaluation: Evaluation) -> str | None:
    """The best node, first by name among equals; None when none fits."""
    if not evaluation.fits:
        return None
    places = (evaluation.scores == evaluation.scores.max()).nonzero()[0]
    return min(map(evaluation.fits.__getitem__, map(int, places)))


def _spread_out(levels: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Ranks laid over the whole range: the worst gets 0 and the best 10, however close their scores are."""
    if levels == 1:
        return np.array([MAX_SCORE])
    return MAX_SCORE * np.arange(levels) // (levels - 1)
