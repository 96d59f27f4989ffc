"""GPUs and network devices that a container leaves to those of its pod that are placed after it.

For pods of which several containers have GPUs, where these do not get all their pairs without it.
"""

from collections import Counter
from collections.abc import Sequence

from purser.core.placement.choice import Pick
from purser.core.placement.granted import Positions
from purser.core.sriov.reserves import Reserve


class Sparing:
    """What is left to others, while the containers of a pod are placed."""

    def __init__(self, reserves: Sequence[Reserve] = (), roots: Sequence[str] = (), uses: Sequence[int] = ()) -> None:
        """``reserves``: of each row of containers; ``roots``: by candidate, its root port; ``uses``: by candidate, how
        many containers can have it."""
        self._to_come = list(reserves)
        self._roots = roots
        self._uses = list(uses)
        self.places = Counter[tuple[str, str]]()
        """By pool and place, how many network devices are for those to come."""
        self._gpus = Counter[str]()
        for each in reserves:
            self.places.update(each.places)
            self._gpus.update(each.gpus)

    def next_row(self) -> None:
        """The next row's turn comes: what it is to find is no longer for others."""
        if self._to_come:
            found = self._to_come.pop(0)
            self.places.subtract(found.places)
            self._gpus.subtract(found.gpus)

    def pick(self, pick: Pick) -> Pick:
        """The same pick among the candidates that need not be left; among all where these are too few."""
        spare = self._spare()
        if not spare:
            return pick

        def sparing(candidates: Sequence[int], count: int, taken: Sequence[int]) -> tuple[int, ...]:
            left = spare.copy()
            left.subtract(self._roots[place] for place in taken if self._roots[place] in spare)
            free = set(taken)
            for place in candidates:
                root = self._roots[place]
                if place not in free and left.get(root, 1) > 0:
                    free.add(place)
                    if root in left:
                        left[root] -= 1
            order = [place for place in candidates if place in free]
            return pick(order if len(free) >= count else candidates, count, taken)

        return sparing

    def hold(self, positions: Positions) -> None:
        """A container has these over the pod's whole life."""
        if self._uses:
            for place in positions:
                self._uses[place] -= 1

    def _spare(self) -> "Counter[str]":
        """By root port below which GPUs are to be left, how many need not be."""
        there = Counter[str]()
        for root, uses in zip(self._roots, self._uses, strict=True):
            there[root] += max(0, uses)
        return Counter({root: there[root] - count for root, count in self._gpus.items() if count})
