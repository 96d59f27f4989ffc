"""What several containers of one pod leave to one another, so that all of them together have as many pairs of a GPU and
a network device as there can be (`pairs` has those of one container).

GPUs and network devices are a pair below the same root port, so it is enough to know how many of each a container is to
find below which. That is a maximum flow: from the containers by pools and root ports to GPUs.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise

import msgspec

from purser.core.model import PcieSwitches
from purser.core.sriov.pairs import PoolAsk

_SOURCE, _SINK = "source", "sink"


class PairSeeker(msgspec.Struct, frozen=True):
    """A container that is to have pairs, beside others of its pod."""

    count: int
    """Of its GPUs."""
    gpus: Mapping[str, int]
    """By root port, how many it may have."""
    asked: Sequence[PoolAsk]

    @property
    def most(self) -> int:
        """As many pairs as it could have."""
        return min(self.count, sum(each.count for each in self.asked))


class Reserve(msgspec.Struct, frozen=True):
    """What one container is to find when its turn comes."""

    gpus: Mapping[str, int] = {}
    """By root port."""
    places: Mapping[tuple[str, str], int] = {}
    """By pool and place, how many network devices."""


def root_port(switches: PcieSwitches) -> str:
    """The first of the bridges above a device; empty: none is known, and it has no pairs."""
    return switches[0] if switches else ""


def reserves(seekers: Sequence[PairSeeker], gpus: Mapping[str, int]) -> list[Reserve]:
    """Of each container; their GPUs are the pairs. ``gpus``: by root port, how many containers can have one there.

    It is a maximum where all may have the same GPUs, each for one container. Where they may not, a container with
    several pools may find fewer pairs than this says.
    """
    flow = _Flow()
    there = Counter[tuple[str, str]]()
    for (pool, _), (root, free) in _places(seekers).items():
        there[pool, root] += free
    for (pool, root), free in there.items():
        flow.join((pool, root), root, free)
        flow.join(root, _SINK, gpus.get(root, 0))
    for number, seeker in enumerate(seekers):
        flow.join(_SOURCE, number, seeker.most)
        for ask in seeker.asked:
            flow.join(number, (number, ask.resource), ask.count)
            near = Counter[str]()
            for place in ask.places:
                near[root_port(place.switches)] += place.free
            for root, free in near.items():
                if root and free:
                    flow.join((number, ask.resource), (ask.resource, root), min(free, seeker.gpus.get(root, 0)))
    flow.fill()
    left = {place: free for place, (_, free) in _places(seekers).items()}
    return [_reserve(flow, number, seeker, left) for number, seeker in enumerate(seekers)]


def _places(seekers: Sequence[PairSeeker]) -> dict[tuple[str, str], tuple[str, int]]:
    """By pool and place, its root port and how many devices are free."""
    return {
        (ask.resource, place.place): (root, place.free)
        for seeker in seekers
        for ask in seeker.asked
        for place in ask.places
        if (root := root_port(place.switches)) and place.free
    }


def _reserve(flow: "_Flow", number: int, seeker: PairSeeker, left: dict[tuple[str, str], int]) -> Reserve:
    """``left``: by pool and place, what is not yet in any reserve; what this one takes is taken off."""
    gpus, places = Counter[str](), Counter[tuple[str, str]]()
    for ask in seeker.asked:
        missing: dict[str, int] = {}
        for place in ask.places:
            root, there = root_port(place.switches), (ask.resource, place.place)
            wanted = missing.setdefault(root, flow.through((number, ask.resource), (ask.resource, root)))
            if took := min(wanted, left.get(there, 0)):
                gpus[root] += took
                places[there] += took
                left[there] -= took
                missing[root] -= took
    return Reserve(gpus, places)


class _Flow:
    """A maximum flow by blocking flows (Dinitz): the pod's creator chooses how many containers and pools there are."""

    def __init__(self) -> None:
        self._left: dict[Hashable, dict[Hashable, int]] = {_SOURCE: {}, _SINK: {}}

    def join(self, start: Hashable, end: Hashable, most: int) -> None:
        """Once more is the same."""
        self._left.setdefault(start, {})[end] = most
        self._left.setdefault(end, {}).setdefault(start, 0)

    def through(self, start: Hashable, end: Hashable) -> int:
        """How much goes from one to the other."""
        return self._left.get(end, {}).get(start, 0)

    def fill(self) -> None:
        """Let through as much as there can be."""
        while _SINK in (levels := self._distances()):
            ends = {
                node: [end for end in self._left[node] if levels.get(end) == level + 1]
                for node, level in levels.items()
            }
            while path := self._path(ends):
                steps = list(pairwise(path))
                more = min(self._left[start][end] for start, end in steps)
                for start, end in steps:
                    self._left[start][end] -= more
                    self._left[end][start] += more

    def _distances(self) -> dict[Hashable, int]:
        """How far each node is from the source, on ways that have something left."""
        found: dict[Hashable, int] = {_SOURCE: 0}
        reached: list[Hashable] = [_SOURCE]
        for node in reached:
            for end, left in self._left[node].items():
                if left and end not in found:
                    found[end] = found[node] + 1
                    reached.append(end)
        return found

    def _path(self, ends: Mapping[Hashable, list[Hashable]]) -> list[Hashable]:
        """A way to the sink, level by level; ends that lead nowhere are taken out. Empty: there is none."""
        path: list[Hashable] = [_SOURCE]
        while path and path[-1] != _SINK:
            node, further = path[-1], ends[path[-1]]
            while further and not self._left[node][further[-1]]:
                further.pop()
            if further:
                path.append(further[-1])
            else:
                path.pop()
                if path:
                    ends[path[-1]].pop()
        return path
