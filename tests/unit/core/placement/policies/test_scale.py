"""What the range of scores must leave of their order."""

import numpy as np

from purser.core.placement.policies.scale import in_range


def test_no_two_scores_become_equal_and_those_in_range_stay() -> None:
    scores = np.arange(-500_000.0, 101)
    found = in_range(scores)
    assert (np.diff(found) > 0).all()
    assert found[0] > 0
    assert (found[scores >= 1] == scores[scores >= 1]).all()
