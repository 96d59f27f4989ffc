"""go-gpuallocator's best-effort rule, spelled out: every partition in its order, without its slips.

Read from its rule, for small numbers only. A set is a tuple of positions, padding is None.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from purser.core.interconnect import Topology

Set = tuple[int | None, ...]


def partitions(devices: Sequence[int | None], size: int, padding: int) -> Iterator[tuple[Set, ...]]:
    """Every partition in the order of the original; ``devices`` are padded to a multiple of ``size``."""
    if len(devices) == size:
        yield (tuple(devices),)
        return
    for others in combinations(range(1, len(devices)), size - 1):
        chosen = {0, *others}
        first = tuple(devices[place] for place in sorted(chosen))
        if first.count(None) not in (0, padding):
            continue
        rest = [device for place, device in enumerate(devices) if place not in chosen]
        for tail in partitions(rest, size, padding):
            yield (first, *tail)


def padded(available: Sequence[int], size: int) -> list[int | None]:
    return [*available, *([None] * (-len(available) % size))]


def set_score(topology: Topology, members: Set) -> int:
    return topology.score([member for member in members if member is not None])


def best_effort(topology: Topology, available: Sequence[int], size: int, required: Sequence[int] = ()) -> Set:
    """The original's answer with its padding, should it come to that."""
    if not 0 < size <= len(available) or len(required) > size:
        return ()
    if size == 1:
        return next(((device,) for device in available if set(required) <= {device}), ())
    best: tuple[Set, ...] | None = None
    best_score = 0
    devices = padded(available, size)
    for candidate in partitions(devices, size, devices.count(None)):
        if not any(set(required) <= set(each) and None not in each for each in candidate):
            continue
        score = sum(set_score(topology, each) for each in candidate)
        if best is None or score > best_score:
            best, best_score = candidate, score
    suitable = [each for each in best or () if set(required) <= set(each)]
    return max(suitable, key=lambda each: set_score(topology, each), default=())


def best_full_set(topology: Topology, available: Sequence[int], size: int, required: Sequence[int] = ()) -> Set:
    """What it should answer: the short set is not an answer."""
    if size == 1 or not 0 < size <= len(available) or len(required) > size:
        return best_effort(topology, available, size, required)
    devices = padded(available, size)
    chosen: tuple[int, list[Set]] | None = None
    for candidate in partitions(devices, size, devices.count(None)):
        full = [each for each in candidate if None not in each]
        suitable = [each for each in full if set(required) <= set(each)]
        score = sum(set_score(topology, each) for each in candidate)
        if suitable and (chosen is None or score > chosen[0]):
            chosen = score, suitable
    return max(chosen[1], key=lambda each: set_score(topology, each)) if chosen else ()
