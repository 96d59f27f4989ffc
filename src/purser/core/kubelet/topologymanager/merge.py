"""The merge of hints, in both of its generations: a fold over resources (facts: reference kubelet.md 1.4 to 1.9).

kubelet goes through every combination of one hint of each resource. The mask of a combination is the AND of its masks,
and it is preferred when all its hints are and, since 1.24, all its masks are equal. Which combination a mask came from
changes nothing, so the masks themselves are folded: there are no more of them than subsets of the NUMA nodes that hold
anything.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from purser.core.kubelet.hints import Hint, ProviderHints
from purser.core.kubelet.masks import Mask, nodes_of
from purser.core.kubelet.topologymanager.order import Fitness, narrowness, nearness

Factor = tuple[Hint, ...]
"""The hints of one resource, of which a combination has one."""

_NO_PREFERENCE: Factor = (Hint(None, True),)
_IMPOSSIBLE: Factor = (Hint(None, False),)


def factors_of(providers_hints: Iterable[ProviderHints]) -> tuple[Factor, ...]:
    """What managers say, as factors: each resource is one, and so is a manager without an opinion."""
    factors = []
    for resources in providers_hints:
        factors += [_factor(hints) for hints in resources.values()] if resources else [_NO_PREFERENCE]
    return tuple(factors)


def _factor(hints: Factor | None) -> Factor:
    if hints is None:
        return _NO_PREFERENCE
    return hints or _IMPOSSIBLE


def merge_narrowest(nodes: Mask, factors: Sequence[Factor]) -> Hint:
    """The merge of kubelets before 1.24: preferred hints first, then the narrowest mask."""
    preferred = intersections(nodes, [tuple(hint for hint in factor if hint.preferred) for factor in factors])
    if preferred:
        return Hint(min(preferred, key=narrowness), True)
    return Hint(min({nodes} | intersections(nodes, factors), key=narrowness), False)


def merge_equal(nodes: Mask, factors: Sequence[Factor], fitness: Fitness) -> Hint:
    """The merge of kubelets since 1.24: preferred only where all resources agree on the very same nodes.

    Of what is not preferred, the mask as wide as the resource that needs the most nodes is best.
    """
    preferred = agreed_masks(nodes, factors)
    if preferred:
        return Hint(min(preferred, key=fitness), True)
    possible = intersections(nodes, factors)
    if not possible:
        return Hint(nodes, False)
    return Hint(min(possible, key=nearness(max_of_min_counts(factors), fitness)), False)


def agreed_masks(nodes: Mask, factors: Sequence[Factor]) -> set[Mask]:
    """The masks that every resource prefers; a preferred hint without a mask agrees to any."""
    wanted = [{hint.mask for hint in factor if hint.preferred} for factor in factors]
    candidates = {None, *chain.from_iterable(wanted)}
    agreed = {mask for mask in candidates if all(mask in masks or None in masks for masks in wanted)}
    return {nodes if mask is None else mask & nodes for mask in agreed} - {0}


def max_of_min_counts(factors: Iterable[Factor]) -> int:
    """How many nodes the resource that needs the most of them needs at least (maxOfMinAffinityCounts)."""
    counts = ([hint.mask.bit_count() for hint in factor if hint.mask is not None] for factor in factors)
    return max((min(of_one) for of_one in counts if of_one), default=0)


def intersections(nodes: Mask, factors: Iterable[Factor]) -> set[Mask]:
    """Every AND of one mask of each factor that leaves a node. A hint without a mask stands for all nodes."""
    masks = [{nodes if hint.mask is None else hint.mask for hint in factor} for factor in factors]
    reached, is_closed = {nodes} - {0}, False
    for of_one in sorted(masks, key=len, reverse=True):  # the largest is the likeliest to reach every mask at once
        is_closed = is_closed or _contains_all_subsets(reached)
        reached = _masks_within(reached, of_one) if is_closed else {a & b for a in reached for b in of_one} - {0}
    return reached


def _contains_all_subsets(masks: set[Mask]) -> bool:
    """Whether with each mask every part of it is there: what dense hints soon come to."""
    several = [mask for mask in masks if mask & (mask - 1)]
    return all(mask ^ (1 << node) in masks for mask in several for node in nodes_of(mask))


def _masks_within(closed: set[Mask], masks: set[Mask]) -> set[Mask]:
    """The ANDs of a set that holds all subsets of its members: of these, those within another mask. It is closed again,
    and found without the product of the two sets."""
    by_width = sorted(masks, key=int.bit_count, reverse=True)
    return {mask for mask in closed if any(mask & wide == mask for wide in by_width)}
