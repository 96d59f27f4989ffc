"""The kernels compiled by numba, with the results of `plain` to the last bit: the same operations in the same order.

Compiled code is kept on disk, in ``NUMBA_CACHE_DIR`` or else beside this file or in the user's cache; where none of
these can be written it is compiled at every start (a second or two).
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from purser.core.placement.kernels.arguments import Floats, Ints, MixTables, Stock, Wanted

_F = TypeVar("_F", bound=Callable[..., Any])


def _compiled(function: _F) -> _F:
    try:
        return cast(_F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
    except RuntimeError:  # no directory that can be written
        return cast(_F, numba.njit(nogil=True, error_model="numpy")(function))


def look(
    stock: Stock, rows: npt.NDArray[np.intp], wanted: Wanted
) -> tuple[Ints, Ints, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """See `plain.look`."""
    return _look(*stock, rows, *wanted)


@_compiled
def _look(
    size: Any,
    free: Any,
    cores: Any,
    cores_free: Any,
    slots: Any,
    slots_free: Any,
    alone: Any,
    usable: Any,
    model: Any,
    left_milli: Any,
    live: npt.NDArray[np.bool_],
    pods_free: Ints,
    cpu_free: Ints,
    node_memory_free: Ints,
    rows: npt.NDArray[np.intp],
    cpu_milli: int,
    node_memory_mib: int,
    gpu_count: int,
    memory_mib: int,
    memory_percent: int,
    cores_percent: int,
    wants_alone: bool,
    allowed: npt.NDArray[np.bool_],
) -> tuple[Ints, Ints, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    gpus, nodes = size.shape[0], len(rows)
    left = np.empty((gpus, nodes), np.int64)
    after = np.empty((gpus, nodes), np.int64)
    takes = np.empty((gpus, nodes), np.bool_)
    taking = np.zeros(nodes, np.int64)
    fits = np.empty(nodes, np.bool_)
    for g in range(gpus):
        for n in range(nodes):
            row = rows[n]
            here = np.int64(left_milli[g, row])
            total_memory, total_cores = np.int64(size[g, row]), np.int64(cores[g, row])
            memory = total_memory * memory_percent // 100 if memory_percent else memory_mib
            memory_then = np.int64(free[g, row]) - memory
            cores_now = np.int64(cores_free[g, row])
            cores_then = cores_now - cores_percent
            ok = usable[g, row] and slots_free[g, row] > 0 and alone[g, row] == 0 and allowed[model[g, row]]
            ok = ok and memory_then >= 0 and cores_then >= 0
            then = np.int64(0)
            if wants_alone:
                ok = ok and slots_free[g, row] == slots[g, row]
            else:
                if cores_percent == 0:
                    ok = ok and (cores_now > 0 or total_cores <= 0)
                if ok and slots_free[g, row] > 1 and total_memory > 0 and total_cores > 0:
                    of_memory, of_cores = 1000 * memory_then // total_memory, 1000 * cores_then // total_cores
                    then = min(of_memory, of_cores)
            left[g, n] = here
            after[g, n] = then if ok else here
            takes[g, n] = ok
            taking[n] += ok
    for n in range(nodes):
        row = rows[n]
        has_room = cpu_free[row] >= cpu_milli and node_memory_free[row] >= node_memory_mib
        fits[n] = live[row] and pods_free[row] > 0 and has_room and taking[n] >= gpu_count
    return left, after, takes, fits


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
