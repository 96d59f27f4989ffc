"""The ways in which shares fill one GPU."""

from collections.abc import Sequence

from purser.core.model import WHOLE_MILLI

MAX_PATTERNS = 20_000
"""Of one kind of GPU. Beyond, sizes are rounded down, which leaves the bound a bound and makes it a looser one."""

GRAINS = (1, 5, 10, 25, 50, 100, 200)
"""To multiples of these."""

Pattern = tuple[int, ...]
"""How many shares of each size."""


def patterns(sizes: Sequence[int]) -> tuple[list[Pattern], tuple[int, ...]]:
    """The fullest ways to fill a GPU with shares, to which none can be added; and the sizes they were made for.

    All other ways are part of one of them. Sizes are in thousandths of a GPU.
    """
    for grain in GRAINS:
        rounded = tuple(max(size // grain * grain, 1) for size in sizes)
        found = _fullest_patterns(rounded)
        if found is not None:
            return found, rounded
    return [_max_counts(sizes)], tuple(sizes)


def _fullest_patterns(sizes: tuple[int, ...]) -> list[Pattern] | None:
    """None where there are too many."""
    if not sizes:
        return []
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    smallest = min(sizes)
    found: list[Pattern] = []
    stack: list[tuple[int, int, tuple[int, ...]]] = [(0, WHOLE_MILLI, ())]
    steps = 0
    while stack:
        steps += 1
        at, left, counts = stack.pop()
        if at == len(order):
            if left < smallest:
                found.append(_by_place(counts, order))
            if len(found) > MAX_PATTERNS or steps > 50 * MAX_PATTERNS:
                return None
            continue
        for count in range(left // sizes[order[at]] + 1):
            stack.append((at + 1, left - count * sizes[order[at]], (*counts, count)))
    return found


def _by_place(counts: tuple[int, ...], order: list[int]) -> Pattern:
    pattern = [0] * len(order)
    for count, place in zip(counts, order, strict=True):
        pattern[place] = count
    return tuple(pattern)


def _max_counts(sizes: Sequence[int]) -> Pattern:
    return tuple(WHOLE_MILLI // size for size in sizes)
