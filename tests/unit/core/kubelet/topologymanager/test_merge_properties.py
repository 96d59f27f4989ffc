"""The fold gives what going through every combination gives, in both generations."""

from collections.abc import Iterable, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.core.kubelet.hints import Hint
from purser.core.kubelet.masks import Mask, all_masks, mask_of
from purser.core.kubelet.topologymanager.merge import Factor, intersections, merge_equal, merge_narrowest
from purser.core.kubelet.topologymanager.order import Distances, average_distance, closeness, narrowness

NODES = mask_of(range(4))

masks = st.none() | st.integers(0, NODES | 1 << 5)
hints = st.builds(Hint, masks, st.booleans())
factors = st.lists(st.lists(hints, max_size=5).map(tuple), max_size=4)
tables = st.lists(st.lists(st.integers(10, 13), min_size=6, max_size=6), min_size=6, max_size=6)


def is_narrower(mask: Mask, other: Mask) -> bool:
    return (mask.bit_count(), mask) < (other.bit_count(), other)


def combine(nodes: Mask, combination: Iterable[Hint], equal_masks: bool) -> Hint:
    """One combination, as kubelet merges it."""
    merged, preferred, first = nodes, True, None
    for hint in combination:
        preferred &= hint.preferred
        if hint.mask is not None:
            first = hint.mask if first is None else first
            preferred &= not equal_masks or hint.mask == first
            merged &= hint.mask
    return Hint(merged, preferred)


def every_combination(nodes: Mask, of: Sequence[Factor], equal_masks: bool) -> list[Hint]:
    merged = (combine(nodes, combination, equal_masks) for combination in product(*of))
    return [hint for hint in merged if hint.mask]


def narrowest_by_hand(nodes: Mask, of: Sequence[Factor]) -> Hint:
    """kubelet before 1.24, step by step."""
    best = Hint(nodes, False)
    for hint in every_combination(nodes, of, equal_masks=False):
        assert hint.mask is not None and best.mask is not None
        if hint.preferred != best.preferred:
            best = hint if hint.preferred else best
        elif is_narrower(hint.mask, best.mask):
            best = hint
    return best


def is_fitter(mask: Mask, other: Mask, distances: Distances | None) -> bool:
    if distances is None or mask.bit_count() != other.bit_count():
        return is_narrower(mask, other)
    near, far = average_distance(distances, mask), average_distance(distances, other)
    return near < far or (near == far and mask < other)


def equal_by_hand(nodes: Mask, of: Sequence[Factor], distances: Distances | None) -> Hint:
    """kubelet since 1.24, step by step."""
    counts = [[hint.mask.bit_count() for hint in factor if hint.mask is not None] for factor in of]
    wanted = max((min(one) for one in counts if one), default=0)
    best: Hint | None = None
    for hint in every_combination(nodes, of, equal_masks=True):
        if best is None or is_better(hint, best, wanted, distances):
            best = hint
    return best or Hint(nodes, False)


def is_better(hint: Hint, best: Hint, wanted: int, distances: Distances | None) -> bool:
    assert hint.mask is not None and best.mask is not None
    count, best_count = hint.mask.bit_count(), best.mask.bit_count()
    if hint.preferred != best.preferred:
        return hint.preferred
    if hint.preferred or best_count > wanted:
        return is_fitter(hint.mask, best.mask, distances)
    if best_count == wanted:
        return count == wanted and is_fitter(hint.mask, best.mask, distances)
    if count >= wanted or count != best_count:
        return count == wanted or best_count < count < wanted
    return is_fitter(hint.mask, best.mask, distances)


@given(factors)
def test_before_1_24_the_fold_is_the_best_of_every_combination(of: list[Factor]) -> None:
    assert merge_narrowest(NODES, of) == narrowest_by_hand(NODES, of)


@given(factors)
def test_since_1_24_the_fold_is_the_best_of_every_combination(of: list[Factor]) -> None:
    assert merge_equal(NODES, of, narrowness) == equal_by_hand(NODES, of, None)


@given(factors, tables)
def test_so_it_is_with_the_closest_nodes_preferred(of: list[Factor], table: list[list[int]]) -> None:
    distances = {node: tuple(row) for node, row in enumerate(table)}
    assert merge_equal(NODES, of, closeness(distances)) == equal_by_hand(NODES, of, distances)


@given(factors)
def test_the_order_of_resources_changes_nothing(of: list[Factor]) -> None:
    assert merge_equal(NODES, of, narrowness) == merge_equal(NODES, of[::-1], narrowness)
    assert merge_narrowest(NODES, of) == merge_narrowest(NODES, of[::-1])


@given(st.lists(st.sets(st.integers(1, NODES)).map(sorted), max_size=4))
def test_all_intersections_are_found(of: list[list[Mask]]) -> None:
    expected = {combine(NODES, combination, True).mask for combination in product(*map(with_masks, of))} - {0}
    assert intersections(NODES, list(map(with_masks, of))) == expected


def with_masks(of: Iterable[Mask]) -> Factor:
    return tuple(Hint(mask, False) for mask in of)


@pytest.mark.parametrize("resources", [1, 4, 12])
def test_dense_hints_of_many_resources_reach_every_mask(resources: int) -> None:
    """Where kubelet has 255 to the power of the resources to go through."""
    everything = with_masks(all_masks(range(8)))
    assert intersections(255, [everything] * resources) == set(range(1, 256))
    assert merge_equal(255, [everything] * resources, narrowness) == Hint(1, False)


def test_on_34_nodes_only_masks_of_hints_count() -> None:
    """Two nodes with CPUs, 32 that hold the memory of GPUs: no set of all 34 nodes is ever made."""
    cpus = with_masks(all_masks([0, 1]))
    gpus = with_masks(all_masks([2, 3, 18, 19]))
    anywhere = (Hint(None, True),)
    nodes = mask_of(range(34))
    assert merge_equal(nodes, [cpus, anywhere], narrowness) == Hint(1, False)
    assert merge_equal(nodes, [cpus, gpus], narrowness) == Hint(nodes, False)
    assert merge_narrowest(nodes, [gpus, anywhere]) == Hint(1 << 2, False)
