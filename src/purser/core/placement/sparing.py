"""GPUs and network devices that a container leaves to those of its pod that are placed after it.

For pods of which several containers have GPUs, where these do not get all their pairs without it.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

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
        for each in reserves:
            self.places.update(each.places)

    def begin_next_row(self) -> None:
        """The next row's turn comes: what it is to find is no longer for others."""
        if self._to_come:
            found = self._to_come.pop(0)
            self.places.subtract(found.places)

    def pick(self, pick: Pick) -> Pick:
        """The same pick among the candidates that need not be left; among all where these are too few."""
        wanted = {root for each in self._to_come for root, count in each.gpus.items() if count}
        if not wanted:
            return pick

        def sparing(candidates: Sequence[int], count: int, taken: Sequence[int]) -> tuple[int, ...]:
            uses = self._uses.copy()
            for place in taken:
                uses[place] -= 1
            free = set(taken)
            for place in candidates:
                if place in free:
                    continue
                uses[place] -= 1
                if self._roots[place] not in wanted or self._is_enough(self._roots[place], uses):
                    free.add(place)
                else:
                    uses[place] += 1
            order = [place for place in candidates if place in free]
            return pick(order if len(free) >= count else candidates, count, taken)

        return sparing

    def hold(self, positions: Positions) -> None:
        """A container has these over the pod's whole life."""
        if self._uses:
            for place in positions:
                self._uses[place] -= 1

    def _is_enough(self, root: str, uses: Sequence[int]) -> bool:
        """Whether each row to come finds as many different GPUs below the root port as are to be left for it there.

        Gale and Ryser's condition: the largest n rows together find at most n uses of each GPU.
        """
        there = [each for each, its_root in zip(uses, self._roots, strict=True) if its_root == root]
        counts = sorted((each.gpus.get(root, 0) for each in self._to_come), reverse=True)
        return all(
            total <= sum(max(0, min(each, rows)) for each in there) for rows, total in enumerate(accumulate(counts), 1)
        )
