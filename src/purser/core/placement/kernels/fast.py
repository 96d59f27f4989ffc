"""The kernels compiled by numba, with the results of `plain` to the last bit: the same operations in the same order.

Compiled code is kept on disk, in ``NUMBA_CACHE_DIR`` or else beside this file or in the user's cache; where none of
these can be written it is compiled at every start (a second or two).
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from purser.core.fleet import rule
from purser.core.fleet.rule import FleetColumns, GpuDemand
from purser.core.placement.kernels.arguments import (
    Bools,
    Floats,
    Ints,
    MixTables,
    Prices,
)
from purser.core.placement.kernels.plain import MIN_UNCOUNTED_CPU_MILLI, REGRET_MILLI, TIER

_F = TypeVar("_F", bound=Callable[..., Any])


def _compile(function: _F) -> _F:
    try:
        return cast(_F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
    except RuntimeError:  # no directory that can be written
        return cast(_F, numba.njit(nogil=True, error_model="numpy")(function))


# numba looks at the file of a function, and of no other, to see whether what it keeps on disk is outdated; so what is
# compiled stays where it is written, and is bound to the compiled ones.
_look_each = _compile(
    rule.bound(
        rule.judge_one_by_one,
        obstacles=_compile(rule.obstacles),
        partition_obstacles=_compile(rule.partition_obstacles),
        left_milli=_compile(rule.left_milli),
        memory_asked=_compile(rule.memory_asked),
    )
)


def look(columns: FleetColumns, rows: npt.NDArray[np.intp], demand: GpuDemand) -> tuple[Ints, Ints, Bools, Bools]:
    """See `purser.core.fleet.rule.look`."""
    found: tuple[Ints, Ints, Bools, Bools] = _look_each(rows, *columns, *demand)
    return found


@_compile
def _fragment(
    left: Ints,
    cpu: int,
    model: int,
    frequency: Floats,
    cpu_milli: Ints,
    gpus: Ints,
    level_of: npt.NDArray[np.intp],
    levels: Ints,
    case: npt.NDArray[np.int8],
    counts: Ints,
    smalls: Ints,
) -> float:
    """The fragments of one node, whose GPUs have ``left``; the last two arrays are room to work in."""
    idle = 0
    for g in range(len(left)):
        idle += left[g]
    for level in range(len(levels)):
        least = levels[level, model]
        count = small = 0
        for g in range(len(left)):
            if left[g] >= least:
                count += 1
            else:
                small += left[g]
        counts[level], smalls[level] = count, small
    both = gpu_short = cpu_short = without_fits = without_short = no_access = 0.0
    for k in range(len(frequency)):
        of = case[k, model]
        has_cpu = cpu >= cpu_milli[k]
        if of == 8:
            if has_cpu:
                without_fits += frequency[k] * idle
            else:
                without_short += frequency[k] * idle
        elif of == 0:
            no_access += frequency[k] * idle
        elif counts[level_of[k]] >= gpus[k]:
            if has_cpu:
                gpu_short += frequency[k] * smalls[level_of[k]]
            else:
                cpu_short += frequency[k] * idle
        elif has_cpu:
            gpu_short += frequency[k] * idle
        else:
            both += frequency[k] * idle
    return both + gpu_short + cpu_short + without_fits + without_short + no_access


def fragments(left: Ints, cpu: Ints, model: Ints, mix: MixTables) -> Floats:
    """See `plain.fragments`."""
    return _fragments(left, cpu, model, *mix)


@_compile
def _fragments(
    left: Ints,
    cpu: Ints,
    model: Ints,
    frequency: Floats,
    cpu_milli: Ints,
    gpus: Ints,
    level_of: npt.NDArray[np.intp],
    levels: Ints,
    case: npt.NDArray[np.int8],
) -> Floats:
    found = np.empty(len(cpu))
    counts, smalls = np.empty(len(levels), np.int64), np.empty(len(levels), np.int64)
    of_node = np.empty(len(left), np.int64)
    for n in range(len(cpu)):
        of_node[:] = left[:, n]
        found[n] = _fragment(
            of_node, cpu[n], model[n], frequency, cpu_milli, gpus, level_of, levels, case, counts, smalls
        )
    return found


def fragment_scores(
    left: Ints,
    after: Ints,
    takes: npt.NDArray[np.bool_],
    fits: npt.NDArray[np.bool_],
    cpu_after: Ints,
    model: Ints,
    before: Floats,
    gpu_count: int,
    mix: MixTables,
    steps: Floats,
) -> tuple[Floats, npt.NDArray[np.int16]]:
    """See `plain.fragment_scores`."""
    return _fragment_scores(left, after, takes, fits, cpu_after, model, before, gpu_count, *mix, steps)


@_compile
def _score(gained: float, steps: Floats) -> float:
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        if gained >= steps[middle]:
            low = middle + 1
        else:
            high = middle
    return float(low)


@_compile
def _take_smallest(of_node: Ints, after: Ints, takes: npt.NDArray[np.bool_], gpu_count: int) -> None:
    """Give the pod the GPUs with the least left, the first of equals first."""
    free = takes.copy()
    for _ in range(gpu_count):
        chosen = -1
        for g in range(len(of_node)):
            if free[g] and (chosen < 0 or of_node[g] < of_node[chosen]):
                chosen = g
        free[chosen] = False
        of_node[chosen] = after[chosen]


@_compile
def _fragment_scores(
    left: Ints,
    after: Ints,
    takes: npt.NDArray[np.bool_],
    fits: npt.NDArray[np.bool_],
    cpu_after: Ints,
    model: Ints,
    before: Floats,
    gpu_count: int,
    frequency: Floats,
    cpu_milli: Ints,
    gpus: Ints,
    level_of: npt.NDArray[np.intp],
    levels: Ints,
    case: npt.NDArray[np.int8],
    steps: Floats,
) -> tuple[Floats, npt.NDArray[np.int16]]:
    nodes = len(fits)
    scores, best_gpus = np.full(nodes, -1.0), np.full(nodes, -1, np.int16)
    counts, smalls = np.empty(len(levels), np.int64), np.empty(len(levels), np.int64)
    of_node = np.empty(len(left), np.int64)
    for n in range(nodes):
        if not fits[n]:
            continue
        of_node[:] = left[:, n]
        if gpu_count == 1:
            for g in range(len(left)):
                if not takes[g, n]:
                    continue
                seen = False  # a GPU just like an earlier one leaves just the same
                for earlier in range(g):
                    same = left[earlier, n] == left[g, n] and after[earlier, n] == after[g, n]
                    seen = seen or (same and takes[earlier, n])
                if seen:
                    continue
                of_node[g] = after[g, n]
                then = _fragment(
                    of_node, cpu_after[n], model[n], frequency, cpu_milli, gpus, level_of, levels, case, counts, smalls
                )
                of_node[g] = left[g, n]
                score = _score(before[n] - then, steps)
                if score > scores[n]:
                    scores[n], best_gpus[n] = score, g
        else:
            _take_smallest(of_node, after[:, n], takes[:, n], gpu_count)
            then = _fragment(
                of_node, cpu_after[n], model[n], frequency, cpu_milli, gpus, level_of, levels, case, counts, smalls
            )
            scores[n] = _score(before[n] - then, steps)
    return scores, best_gpus


@_compile
def best(scores: Floats, order: Ints) -> int:
    """See `plain.best`."""
    found, highest = -1, -np.inf
    for row in range(len(scores)):
        if scores[row] > highest or (found >= 0 and scores[row] == highest and order[row] < order[found]):
            found, highest = row, scores[row]
    return found


def losses(left: Ints, cpu: Ints, model: Ints, mix: MixTables, prices: Prices) -> Floats:
    """See `plain.losses`."""
    return _losses(left, cpu, model, *_flatten(mix, prices))


def loss_scores(
    left: Ints,
    after: Ints,
    takes: Bools,
    fits: Bools,
    cpu_after: Ints,
    model: Ints,
    before: Floats,
    gpu_count: int,
    mix: MixTables,
    prices: Prices,
    steps: Floats,
) -> tuple[Floats, "np.ndarray[Any, np.dtype[np.int16]]"]:
    """See `plain.loss_scores`."""
    return _loss_scores(left, after, takes, fits, cpu_after, model, before, gpu_count, steps, *_flatten(mix, prices))


def _flatten(mix: MixTables, prices: Prices) -> tuple[Any, ...]:
    """One by one, as compiled functions here take them. Constants of another file are among them: numba would not
    notice that they have changed, and use what it has on disk.
    """
    return (*mix, *prices, MIN_UNCOUNTED_CPU_MILLI, REGRET_MILLI, TIER)


@_compile
def _loss(
    left: Ints,
    cpu: int,
    model: int,
    frequency: Floats,
    cpu_milli: Ints,
    gpus: Ints,
    level_of: Any,
    levels: Ints,
    case: Any,
    gpu_per_cpu: float,
    cpu_price: float,
    unlimited: int,
    counts: Ints,
    smalls: Ints,
) -> float:
    """What is lost of one node; the last two arrays are room to work in."""
    total = _fragment(left, cpu, model, frequency, cpu_milli, gpus, level_of, levels, case, counts, smalls)
    if gpu_per_cpu == 0.0:
        return total
    idle = 0
    for g in range(len(left)):
        idle += left[g]
    without_room = 0.0
    for k in range(len(frequency)):
        of = case[k, model]
        room = of == 8 or (of == 4 and counts[level_of[k]] >= gpus[k])
        if not (room and cpu >= cpu_milli[k]):
            without_room += frequency[k]
    limited = 0 if cpu >= unlimited else cpu
    return total + cpu_price * without_room * limited + max(idle - cpu * gpu_per_cpu, 0.0)


@_compile
def _losses(
    left: Ints,
    cpu: Ints,
    model: Ints,
    frequency: Floats,
    cpu_milli: Ints,
    gpus: Ints,
    level_of: Any,
    levels: Ints,
    case: Any,
    values: Ints,
    gpu_per_cpu: float,
    cpu_price: float,
    unlimited: int,
    grain_milli: int,
    of_tier: float,
) -> Floats:
    found = np.empty(len(cpu))
    counts, smalls = np.empty(len(levels), np.int64), np.empty(len(levels), np.int64)
    of_node = np.empty(len(left), np.int64)
    for n in range(len(cpu)):
        of_node[:] = left[:, n]
        found[n] = _loss(
            of_node,
            cpu[n],
            model[n],
            frequency,
            cpu_milli,
            gpus,
            level_of,
            levels,
            case,
            gpu_per_cpu,
            cpu_price,
            unlimited,
            counts,
            smalls,
        )
    return found


@_compile
def _loss_scores(
    left: Ints,
    after: Ints,
    takes: Bools,
    fits: Bools,
    cpu_after: Ints,
    model: Ints,
    before: Floats,
    gpu_count: int,
    steps: Floats,
    frequency: Floats,
    cpu_milli: Ints,
    gpus: Ints,
    level_of: Any,
    levels: Ints,
    case: Any,
    values: Ints,
    gpu_per_cpu: float,
    cpu_price: float,
    unlimited: int,
    grain_milli: int,
    of_tier: float,
) -> tuple[Floats, "np.ndarray[Any, np.dtype[np.int16]]"]:
    nodes = len(fits)
    scores, best_gpus = np.full(nodes, -np.inf), np.full(nodes, -1, np.int16)
    counts, smalls = np.empty(len(levels), np.int64), np.empty(len(levels), np.int64)
    of_node = np.empty(len(left), np.int64)
    for n in range(nodes):
        if not fits[n]:
            continue
        of_node[:] = left[:, n]
        tries = len(left) if gpu_count == 1 else 1
        for g in range(tries):
            tier = 0.0
            if gpu_count == 1:
                if not takes[g, n]:
                    continue
                seen = False  # a GPU just like an earlier one leaves just the same
                for earlier in range(g):
                    same = left[earlier, n] == left[g, n] and after[earlier, n] == after[g, n]
                    seen = seen or (same and takes[earlier, n])
                if seen:
                    continue
                regret = values[model[n], left[g, n]] - values[model[n], after[g, n]]
                tier = of_tier * ((regret + grain_milli // 2) // grain_milli)
                of_node[g] = after[g, n]
            else:
                _take_smallest(of_node, after[:, n], takes[:, n], gpu_count)
            then = _loss(
                of_node,
                cpu_after[n],
                model[n],
                frequency,
                cpu_milli,
                gpus,
                level_of,
                levels,
                case,
                gpu_per_cpu,
                cpu_price,
                unlimited,
                counts,
                smalls,
            )
            of_node[g] = left[g, n]
            score = _score(before[n] - then, steps) - tier
            is_tighter = gpu_count == 1 and score == scores[n] and left[g, n] < left[best_gpus[n], n]
            if score > scores[n] or is_tighter:
                scores[n] = score
                if gpu_count == 1:
                    best_gpus[n] = g
    return scores, best_gpus
