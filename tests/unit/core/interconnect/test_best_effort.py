"""best-effort against the rule spelled out (`reference`), and where it differs from the original on purpose."""

from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest
from tests.tiers import IS_LONG, some
from tests.unit.core.interconnect import reference
from tests.unit.core.interconnect.machines import random_topology, scored, tree

from purser.core.interconnect import Ask, GpuSet, Scores, Topology, best_effort, matrix
from purser.core.interconnect.memo import memo_of
from purser.core.interconnect.partitions import PartitionScores, best_set
from purser.core.interconnect.table import table_of

TRIES = 1500 if IS_LONG else 300


def asks(random: Random, most: int) -> tuple[Topology, Ask]:
    """Any topology, any availability in any order, any size, with and without required devices."""
    count = random.randint(2, most)
    available = random.sample(range(count), random.randint(1, count))
    if random.random() < 0.5:
        available.sort()
    size = random.randint(1, len(available))
    required = random.sample(available, random.randint(0, min(size, 3))) if random.random() < 0.6 else []
    return random_topology(random, count), Ask(tuple(available), size, tuple(required))


def expected(node: Topology, asked: Ask) -> tuple[int | None, ...]:
    return reference.best_full_set(node, asked.available, asked.size, asked.required)


@pytest.mark.parametrize("seed", some(range(4), 4))
def test_the_set_is_the_one_that_the_rule_defines(seed: int) -> None:
    random = Random(seed)
    for _ in range(TRIES):
        node, asked = asks(random, most=8)
        assert best_effort(node, asked).devices == expected(node, asked), (node.scores, asked)


@pytest.mark.parametrize("values_of", [memo_of, table_of], ids=["memo", "table"])
def test_both_ways_to_value_subsets_follow_the_rule(values_of: Callable[[Scores, int], PartitionScores]) -> None:
    random = Random(5)
    for _ in range(TRIES):
        node, asked = asks(random, most=8)
        if 1 < asked.size < len(asked.available):
            bits = [1 << place for place in asked.available]
            found = best_set(values_of(node.scores, asked.size), bits, sum(1 << place for place in asked.required))
            assert tuple(p for p in asked.available if found >> p & 1) == expected(node, asked), (node.scores, asked)


@pytest.mark.parametrize(("count", "size"), some([(11, 8), (12, 5), (12, 6), (14, 7), (16, 8)], 4))
def test_it_follows_the_rule_on_larger_machines(count: int, size: int) -> None:
    random = Random(count * size)
    for required in ((), (count - 1,)):
        node = random_topology(random, count)
        asked = Ask(tuple(random.sample(range(count), count)), size, required)
        assert best_effort(node, asked).devices == expected(node, asked), (node.scores, asked)


def test_the_original_s_answer_differs_only_where_it_holds_padding() -> None:
    """The reference follows the original's own choice too: apart from short sets both are one rule."""
    random = Random(7)
    short = 0
    for _ in range(TRIES):
        node, asked = asks(random, most=8)
        original = reference.best_effort(node, asked.available, asked.size, asked.required)
        short += None in original
        assert None in original or original == best_effort(node, asked).devices
    assert short


def test_a_short_set_is_no_answer_however_well_connected() -> None:
    """Three GPUs in a triangle of NVLinks, four on one PCIe switch: the original returns the triangle and a nil."""
    pairs = {(i, j): 100 if j < 3 else (50 if i >= 3 else 10) for i, j in combinations(range(7), 2)}
    node = scored(matrix(7, pairs))
    assert reference.best_effort(node, range(7), 4) == (0, 1, 2, None)
    assert best_effort(node, Ask(tuple(range(7)), 4)) == GpuSet((3, 4, 5, 6))


@pytest.mark.parametrize(
    "available", [tuple(range(16)), tuple(range(15, -1, -1)), tuple(Random(1).sample(range(16), 16))]
)
def test_no_better_partition_is_forgotten_once_there_are_seven_sets(available: tuple[int, ...]) -> None:
    """The original returns [10 15] here: a later partition has overwritten the best one."""
    pairs = {(i, j): 60 if i // 2 == j // 2 else 10 for i, j in combinations(range(16), 2)}
    found = best_effort(scored(matrix(16, pairs)), Ask(available, 2, (15,)))
    assert set(found.devices) == {14, 15}


@pytest.mark.parametrize("size", range(2, 16))
def test_on_sixteen_gpus_it_keeps_to_the_tree(size: int) -> None:
    """Whatever is required, in any order: the best set that has it starts with its own pair, quad and octet."""
    random = Random(size)
    node = tree(16)
    for _ in range(5):
        home = random.randrange(16)
        found = best_effort(node, Ask(tuple(random.sample(range(16), 16)), size, (home,))).devices
        assert home in found
        assert len(set(found)) == size
        if size in (2, 4, 8):
            assert {place // size for place in found} == {home // size}


@pytest.mark.parametrize("size", range(2, 17))
def test_the_answer_does_not_depend_on_what_was_asked_before(size: int) -> None:
    random = Random(size)
    node = random_topology(random, 16)
    some = [Ask(tuple(random.sample(range(16), random.randint(size, 16))), size) for _ in range(6)]
    first = [best_effort(node, asked) for asked in some]
    table_of.cache_clear()
    again = [best_effort(node, asked) for asked in reversed(some)]
    assert first == again[::-1]


def test_among_sixteen_of_more_gpus_the_rule_holds() -> None:
    random = Random(3)
    large = random_topology(random, 24)
    available = tuple(random.sample(range(24), 8))
    for size in range(2, 8):
        asked = Ask(available, size, available[5:6])
        assert best_effort(large, asked) == GpuSet(expected(large, asked))  # type: ignore[arg-type]
