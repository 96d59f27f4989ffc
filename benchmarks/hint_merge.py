"""What the merge of topology hints costs: the fold over resources, against its budget and against every combination.

    python benchmarks/hint_merge.py [--repeats 20]

First the size of the budget: 8 NUMA nodes, 4 resources, all 255 hints each, where kubelet has 4 billion combinations.
"dense" resources need so many nodes at least, and any wider set does; "none preferred" takes every preference away;
"scattered" leaves random sets out, so that no set of masks is closed and no shortcut holds. Then sizes that a loop over
every combination can do, with that loop beside it in the same run: the ratio is what the fold saves.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

from purser.core.kubelet.hints import Hint
from purser.core.kubelet.masks import Mask, all_masks, mask_of
from purser.core.kubelet.topologymanager.merge import Factor, max_of_min_counts, merge_equal, merge_narrowest
from purser.core.kubelet.topologymanager.order import closeness, narrowness, nearness

BUDGET_MS = 5.0
Merge = Callable[[Mask, Sequence[Factor]], Hint]


def dense(nodes: int, widths: Sequence[int]) -> list[Factor]:
    """All masks as hints; those of a resource's width are preferred."""
    masks = list(all_masks(range(nodes)))
    return [tuple(Hint(mask, mask.bit_count() == width) for mask in masks) for width in widths]


def none_preferred(factors: Sequence[Factor]) -> list[Factor]:
    return [tuple(Hint(hint.mask, False) for hint in factor) for factor in factors]


def scattered(factors: Sequence[Factor], seed: int = 7) -> list[Factor]:
    draw = random.Random(seed)
    return [tuple(draw.sample(factor, len(factor) * 9 // 10)) for factor in factors]


def wide_only(factors: Sequence[Factor], width: int) -> list[Factor]:
    return [tuple(hint for hint in factor if (hint.mask or 0).bit_count() >= width) for factor in factors]


def every_combination(nodes: Mask, factors: Sequence[Factor]) -> Hint:
    """kubelet's loop (since 1.24), with the order of the fold as its comparison."""
    nearest = nearness(max_of_min_counts(factors), narrowness)
    best: tuple[bool, tuple[float, ...]] | None = None
    found = Hint(nodes, False)
    for combination in product(*factors):
        merged, preferred = nodes, True
        for hint in combination:
            merged &= nodes if hint.mask is None else hint.mask
            preferred &= hint.preferred and hint.mask == combination[0].mask
        if merged:
            key = not preferred, narrowness(merged) if preferred else nearest(merged)
            if best is None or key < best:
                best, found = key, Hint(merged, preferred)
    return found


def milliseconds(merge: Merge, nodes: Mask, factors: Sequence[Factor], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        merge(nodes, factors)
        times.append((time.perf_counter() - started) * 1000)
    return times


def against_the_budget(repeats: int) -> None:
    nodes = mask_of(range(8))
    table = {node: tuple(10 + abs(node - other) for other in range(8)) for node in range(8)}
    mixed = dense(8, (1, 2, 4, 8))
    inputs = {
        "dense, all want one node": dense(8, (1, 1, 1, 1)),
        "dense, of 1, 2, 4 and 8 nodes": mixed,
        "dense, none preferred": none_preferred(mixed),
        "2 nodes or more, none preferred": none_preferred(wide_only(mixed, 2)),
        "scattered, none preferred": scattered(none_preferred(mixed)),
    }
    merges: dict[str, Merge] = {
        "to 1.23": merge_narrowest,
        "from 1.24": partial(merge_equal, fitness=narrowness),
        "closest": partial(merge_equal, fitness=closeness(table)),
    }
    print(f"8 NUMA nodes, 4 resources, {len(mixed[0])} hints each; budget {BUDGET_MS:.0f} ms")
    print(f"{'hints':<34}{'merge':<12}{'p50 ms':>9}{'worst ms':>10}{'of budget':>11}")
    for title, factors in inputs.items():
        for name, merge in merges.items():
            times = milliseconds(merge, nodes, factors, repeats)
            middle = statistics.median(times)
            print(f"{title:<34}{name:<12}{middle:9.3f}{max(times):10.3f}{middle / BUDGET_MS:11.0%}", flush=True)


def against_every_combination(repeats: int) -> None:
    print(f"\n{'nodes':>5}{'resources':>11}{'combinations':>14}{'loop ms':>11}{'fold ms':>10}{'ratio':>9}")
    fold: Merge = partial(merge_equal, fitness=narrowness)
    for nodes, widths in ((4, (1, 2)), (4, (1, 2, 4)), (8, (1, 2)), (4, (1, 1, 2, 4)), (6, (1, 2, 4))):
        every, factors = mask_of(range(nodes)), scattered(none_preferred(dense(nodes, widths)))
        assert fold(every, factors) == every_combination(every, factors)
        combinations = len(factors[0]) ** len(factors)
        loop = min(milliseconds(every_combination, every, factors, 1))
        folded = statistics.median(milliseconds(fold, every, factors, repeats))
        print(f"{nodes:5}{len(widths):11}{combinations:14,}{loop:11.1f}{folded:10.3f}{loop / folded:9,.0f}", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=20)
    options = arguments.parse_args()
    against_the_budget(options.repeats)
    against_every_combination(options.repeats)
