"""The kernels of Purser's own policy compiled by numba, with the results of `loss_plain` to the last bit."""

from typing import Any

import numpy as np

from purser.core.placement.kernels.arguments import Floats, Ints, MixTables
from purser.core.placement.kernels.fast import _compiled, _fragment, _score, _take_smallest
from purser.core.placement.policies.loss_plain import LIMITED, REGRET_MILLI, TIER, Prices

_Bools = np.ndarray[Any, np.dtype[np.bool_]]


def losses(left: Ints, cpu: Ints, model: Ints, mix: MixTables, prices: Prices) -> Floats:
    """See `loss_plain.losses`."""
    return _losses(left, cpu, model, *_flat(mix, prices))


def loss_scores(
    left: Ints,
    after: Ints,
    takes: _Bools,
    fits: _Bools,
    cpu_after: Ints,
    model: Ints,
    before: Floats,
    gpu_count: int,
    mix: MixTables,
    prices: Prices,
    steps: Floats,
) -> tuple[Floats, "np.ndarray[Any, np.dtype[np.int16]]"]:
    """See `loss_plain.loss_scores`."""
    return _loss_scores(left, after, takes, fits, cpu_after, model, before, gpu_count, steps, *_flat(mix, prices))


def _flat(mix: MixTables, prices: Prices) -> tuple[Any, ...]:
    """One by one, as compiled functions here take them. Constants of another file are among them: numba would not
    notice that they have changed, and use what it has on disk.
    """
    return (*mix, *prices, LIMITED, REGRET_MILLI, TIER)


@_compiled
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


@_compiled
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


@_compiled
def _loss_scores(
    left: Ints,
    after: Ints,
    takes: _Bools,
    fits: _Bools,
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
            tighter = gpu_count == 1 and score == scores[n] and left[g, n] < left[best_gpus[n], n]
            if score > scores[n] or tighter:
                scores[n] = score
                if gpu_count == 1:
                    best_gpus[n] = g
    return scores, best_gpus
