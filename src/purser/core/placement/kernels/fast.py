"""The kernels compiled by numba, with the results of `plain` to the last bit: the same operations in the same order.

Compiled code is kept on disk, in ``NUMBA_CACHE_DIR`` or else beside this file or in the user's cache; where none of
these can be written it is compiled at every start (a second or two).
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from purser.core.placement.kernels import rule
from purser.core.placement.kernels.arguments import Bools, FleetColumns, Floats, GpuDemand, Ints, MixTables, Obstacles

_F = TypeVar("_F", bound=Callable[..., Any])


def _compiled(function: _F) -> _F:
    try:
        return cast(_F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
    except RuntimeError:  # no directory that can be written
        return cast(_F, numba.njit(nogil=True, error_model="numpy")(function))


def _bound(function: _F, **compiled: Any) -> _F:
    """The function with compiled ones in place of those that it calls. numba looks at the file of a function, and of no
    other, to see whether what it keeps on disk is outdated; so they stay where they are written."""
    return cast(_F, FunctionType(function.__code__, {**function.__globals__, **compiled}, function.__name__))


_look_each = _compiled(
    _bound(rule.look_each, obstacles=_compiled(rule.obstacles), left_after=_compiled(rule.left_after))
)


def look(
    columns: FleetColumns, rows: npt.NDArray[np.intp], demand: GpuDemand, also: Obstacles
) -> tuple[Ints, Ints, Obstacles, Bools]:
    """See `purser.core.placement.kernels.rule.look`."""
    found: tuple[Ints, Ints, Obstacles, Bools] = _look_each(*columns, rows, also, *demand)
    return found


@_compiled
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


@_compiled
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


@_compiled
def _score(gained: float, steps: Floats) -> float:
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        if gained >= steps[middle]:
            low = middle + 1
        else:
            high = middle
    return float(low)


@_compiled
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


@_compiled
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


@_compiled
def best(scores: Floats, order: Ints) -> int:
    """See `plain.best`."""
    found, highest = -1, -np.inf
    for row in range(len(scores)):
        if scores[row] > highest or (found >= 0 and scores[row] == highest and order[row] < order[found]):
            found, highest = row, scores[row]
    return found
