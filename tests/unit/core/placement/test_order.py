"""The order of devices where words are named that go by the fleet as arrays."""

from itertools import permutations

import pytest

from purser.core.model import GpuPolicy
from purser.core.placement.order import Candidate, order_key
from purser.core.policy.words import ARRAY_WORDS

CANDIDATES = [Candidate(place, score, numa, used) for place, (score, numa, used) in enumerate(
    [(10.0, 0, 1), (30.0, 1, 2), (20.0, 0, 0), (30.0, 0, 3)]
)]  # fmt: skip


@pytest.mark.parametrize("numa_bind", [False, True])
@pytest.mark.parametrize("word", sorted(ARRAY_WORDS))
def test_words_of_the_arrays_are_binpack_where_there_are_none(word: GpuPolicy, numa_bind: bool) -> None:
    for chain in ((word,), (word, GpuPolicy.MUTEX), (GpuPolicy.MUTEX, word)):
        packed = tuple(GpuPolicy.BINPACK if each is word else each for each in chain)
        assert ordered(chain, numa_bind) == ordered(packed, numa_bind) != ordered((GpuPolicy.SPREAD,), numa_bind)


@pytest.mark.parametrize("numa_bind", [False, True])
@pytest.mark.parametrize("word", GpuPolicy)
def test_every_word_has_an_order_where_there_are_no_arrays(word: GpuPolicy, numa_bind: bool) -> None:
    assert sorted(ordered((word,), numa_bind)) == [0, 1, 2, 3]


def ordered(chain: tuple[GpuPolicy, ...], numa_bind: bool) -> list[int]:
    key = order_key(chain, numa_bind)
    orders = [[c.position for c in sorted(some, key=key)] for some in permutations(CANDIDATES)]
    assert all(order == orders[0] for order in orders)
    return orders[0]
