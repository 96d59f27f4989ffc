"""The full run: `python -m tests.model [STATES [HISTORIES]]`. Prints what was explored, and found.

STATES is the most of one size: what there is no room or time for is said to be "not all".
"""

import logging
import sys
from typing import NamedTuple

import structlog

from tests.model.cluster import ALL, WITHOUT_AWAY, WITHOUT_REPLACE, Size
from tests.model.search import explore, wander
from tests.model.space import Space
from tests.model.variants import VARIANTS
from tests.model.world import World

MOST = 60_000_000
LARGE = Size(nodes=2, gpus=2, pods=3, schedulers=2)


class Exploration(NamedTuple):
    """Of one size, and what is left out of it because it hides nothing."""

    size: Size
    is_eager: bool = True
    is_symmetric: bool = True


EXPLORATIONS = (
    Exploration(Size(pods=3, faults=0), is_eager=False, is_symmetric=False),
    Exploration(Size(), is_eager=False, is_symmetric=False),
    Exploration(LARGE._replace(faults=0), is_eager=False),
    Exploration(LARGE._replace(faults=0)),
    *(Exploration(LARGE._replace(kinds=frozenset({each}))) for each in sorted(ALL - {"lease"})),
    Exploration(Size(faults=2, kinds=WITHOUT_REPLACE)),
    Exploration(Size(gpus=1, schedulers=2, faults=2, kinds=WITHOUT_AWAY)),
    Exploration(Size(gpus=1, schedulers=2, faults=2, kinds=WITHOUT_REPLACE)),
    Exploration(Size(faults=2, kinds=WITHOUT_AWAY)),
    Exploration(LARGE._replace(kinds=frozenset({"lease"}))),
)
BEYOND = LARGE._replace(faults=6, kinds=WITHOUT_AWAY)
"""Of which random histories are tried."""


def main(most: int = MOST, walks: int = 500) -> int:
    """The exit status: 0 where nothing was found, and every variant was."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    is_right = True
    for size, is_eager, is_symmetric in EXPLORATIONS:
        found = explore(Space(World(size), is_eager=is_eager, is_symmetric=is_symmetric), most)
        print(f"{_words(size)}; {_how(is_eager and not size.has_deletions, is_symmetric)}: {found}", flush=True)
        is_right = is_right and not found.problem
    found = wander(World(BEYOND), walks, 150, seed=1)
    print(f"{_words(BEYOND)}, {walks} random histories: {found}", flush=True)
    is_right = is_right and not found.problem
    for variant in VARIANTS:
        with variant.world() as world:
            found = explore(Space(world, is_eager=False), most)
        print(f"\nBroken: {variant.name}. {found}", flush=True)
        is_right = is_right and bool(found.problem)
    return 0 if is_right else 1


def _words(size: Size) -> str:
    kinds = f" of {', '.join(sorted(size.kinds))}" if size.faults else ""
    return (
        f"nodes {size.nodes}, GPUs of each {size.gpus}, pods {size.pods}, schedulers {size.schedulers}, "
        f"faults {size.faults}{kinds}"
    )


def _how(is_eager: bool, is_symmetric: bool) -> str:
    left_out = ["names"] * is_symmetric + ["late news"] * is_eager
    return f"without {' and '.join(left_out)}" if left_out else "in full"


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
