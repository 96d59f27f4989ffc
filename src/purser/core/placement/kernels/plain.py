"""The kernels in numpy: always there, and what `fast` is tested against.

Sums over typical pods are in their order, one addition after the other, in each category by itself, as FGD's own code
has it: any other order rounds differently, and now and then a score falls on the other side of an integer.
``bincount`` adds in that order; numpy's ``sum`` would not.

Columns are picked with ``take``: what indices pick lies in memory column by column, and is twice as slow to work on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from purser.core.fleet.free_resources import MANY
from purser.core.fleet.rule import look as look
from purser.core.placement.kernels.arguments import Floats, Ints, MixTables, Prices

_NA, _XR, _XL, _Q4, _Q2, _Q1 = 5, 4, 3, 2, 1, 0
_SATISFIED, _NO_GPU_SATISFIED = 7, 9
_CATEGORY = np.array([_NA, _NA, _NA, _NA, _Q1, _Q2, _Q4, _Q2, _XR, _XL])
"""By 4 (the model is allowed) + 2 (enough GPUs) + 1 (enough CPU), and from 8 on for pods without GPUs. What is too
small for a satisfied pod counts as lack of GPUs."""

MIN_UNCOUNTED_CPU_MILLI = MANY // 2
"""CPU from here on is not counted (kube-scheduler counts it), and none of it is lost."""

REGRET_MILLI = 20
"""Thousandths of worth by which the losses of two GPUs may differ to be equally good for a share."""

TIER = 1000.0
"""Of a score, for each `REGRET_MILLI`: whatever else, patterns come first."""

_MORE_THAN_ANY_LEFT = 1 << 40
"""More than is left of any GPU."""

CATEGORIES = 6

_INT16_MAX = 32_767
"""More than is left of any GPU, and more than any node has."""

_BLOCK = 2048
"""Nodes looked at together: what is computed for each of them by each typical pod stays in the processor's cache."""


class Cases(NamedTuple):
    """How typical pods stand to nodes."""

    case: npt.NDArray[np.int8]
    """[pods, nodes]: see `_CATEGORY`."""
    idle: Ints
    """Of each node's GPUs."""
    small: Ints
    """[levels, nodes]: of GPUs with less than a level."""


def cases(left: Ints, cpu: Ints, model: Ints, mix: MixTables) -> Cases:
    """Every typical pod on every node. Numbers of GPUs are compared as small integers, several at a time."""
    narrow = left.astype(np.int16)
    enough = narrow[None] >= np.minimum(mix.levels, _INT16_MAX).astype(np.int16).take(model, axis=1)[:, None]
    idle = left.sum(axis=0)
    small = idle - (narrow * enough).sum(axis=1, dtype=np.int32)
    gpus = np.minimum(mix.gpus, _INT16_MAX).astype(np.int16)
    has_gpus = enough.sum(axis=1, dtype=np.int16)[mix.level_of] >= gpus[:, None]
    has_cpu = cpu >= mix.cpu_milli[:, None]
    case = mix.case.take(model, axis=1) + (has_gpus.view(np.int8) << 1) + has_cpu.view(np.int8)
    return Cases(case, idle, small)


def categories(left: Ints, cpu: Ints, model: Ints, mix: MixTables) -> Floats:
    """Fragments of nodes by category [6, nodes]: lack of both, of GPUs, of CPU, two of pods without GPUs, no access."""
    return _categories(cases(left, cpu, model, mix), mix)


def _categories(found: Cases, mix: MixTables) -> Floats:
    nodes = len(found.idle)
    amount = np.where(found.case == _SATISFIED, found.small.take(mix.level_of, axis=0), found.idle)
    place = (_CATEGORY * nodes).take(found.case) + np.arange(nodes)
    weighted = mix.frequency[:, None] * amount
    parts = np.bincount(place.ravel(), weighted.ravel(), CATEGORIES * nodes)
    return np.asarray(parts, np.float64).reshape(CATEGORIES, nodes)


def without_room(found: Cases, mix: MixTables) -> Floats:
    """How frequent the pods are that each node cannot take."""
    room = (found.case == _SATISFIED) | (found.case == _NO_GPU_SATISFIED)
    nodes = np.broadcast_to(np.arange(len(found.idle)), room.shape)
    weights = np.where(room, 0.0, mix.frequency[:, None])
    return np.asarray(np.bincount(nodes.ravel(), weights.ravel(), len(found.idle)), np.float64)


NodeFunction = Callable[[Ints, Ints, Ints], Floats]


def in_blocks(of_nodes: NodeFunction, left: Ints, cpu: Ints, model: Ints) -> Floats:
    """Many nodes, some at a time."""
    if len(cpu) <= _BLOCK:
        return of_nodes(left, cpu, model)
    blocks = (slice(start, start + _BLOCK) for start in range(0, len(cpu), _BLOCK))
    return np.concatenate([of_nodes(left[:, block], cpu[block], model[block]) for block in blocks])


def fragments(left: Ints, cpu: Ints, model: Ints, mix: MixTables) -> Floats:
    """What of each node's idle GPUs the mix of pods could not use, in thousandths of a GPU."""

    def of_block(left: Ints, cpu: Ints, model: Ints) -> Floats:
        return fragments_of(cases(left, cpu, model, mix), mix)

    return in_blocks(of_block, left, cpu, model)


def fragments_of(found: Cases, mix: MixTables) -> Floats:
    """See `fragments`."""
    parts = _categories(found, mix)
    total: Floats = parts[0] + parts[1]
    for part in parts[2:]:
        total = total + part
    return total


def integer_score(gained: Floats, steps: Floats) -> Floats:
    """The integer score of less fragmentation."""
    return steps.searchsorted(gained, side="right").astype(np.float64)


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
    """(the score of each node, the best GPU for a pod that wants one); nodes that do not fit score -1."""
    scores, gpus = np.full(len(fits), -1.0), np.full(len(fits), -1, np.int16)
    fit = fits.nonzero()[0]
    if not len(fit):
        return scores, gpus
    if gpu_count == 1:
        gpu, node, then = _left_with_each(left, after, takes, fits)
        by_gpu = np.full(takes.shape, -1.0)
        by_gpu[gpu, node] = _gains(then, cpu_after[node], model[node], before[node], mix, steps)
        gpus[fit], scores[fit] = by_gpu.argmax(axis=0)[fit], by_gpu.max(axis=0)[fit]
        return scores, gpus
    then = _left_with_smallest(left, after, takes, fit, gpu_count)
    scores[fit] = _gains(then, cpu_after[fit], model[fit], before[fit], mix, steps)
    return scores, gpus


def _left_with_each(
    left: Ints, after: Ints, takes: npt.NDArray[np.bool_], fits: npt.NDArray[np.bool_]
) -> tuple[Ints, Ints, Ints]:
    """(GPU, node, what is left of that node's GPUs once the pod has this one), for each GPU that is worth a look."""
    gpu, node = (different(left, after, takes) & fits).nonzero()
    then = left.take(node, axis=1)
    then[gpu, np.arange(len(node))] = after[gpu, node]
    return gpu, node, then


def different(left: Ints, after: Ints, takes: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """GPUs that take the pod, but for those just like an earlier one of their node, which leave just the same."""
    key = np.where(takes, (left << 16) + after, -1).astype(np.int32)
    found = takes.copy()
    for place in range(len(key) - 1):
        found[place + 1 :] &= key[place + 1 :] != key[place]
    return found


def _left_with_smallest(left: Ints, after: Ints, takes: npt.NDArray[np.bool_], fit: Ints, gpu_count: int) -> Ints:
    """What is left of these nodes' GPUs once the pod has its several, of those that take it the ones with the least."""
    then = left.take(fit, axis=1)
    if gpu_count:
        chosen = np.where(takes.take(fit, axis=1), then, _MORE_THAN_ANY_LEFT).argsort(axis=0, kind="stable")[:gpu_count]
        np.put_along_axis(then, chosen, np.take_along_axis(after.take(fit, axis=1), chosen, axis=0), axis=0)
    return then


def _gains(left: Ints, cpu: Ints, model: Ints, before: Floats, mix: MixTables, steps: Floats) -> Floats:
    return integer_score(before - fragments(left, cpu, model, mix), steps)


def best(scores: Floats, order: Ints) -> int:
    """The row with the highest score, of several the first in order; -1 where nothing has a score."""
    ties = (scores == scores.max()).nonzero()[0]
    row = ties[order[ties].argmin()] if len(ties) > 1 else ties[0]
    return int(row) if scores[row] > -np.inf else -1


def losses(left: Ints, cpu: Ints, model: Ints, mix: MixTables, prices: Prices) -> Floats:
    """What of each node is lost to the mix of pods, in thousandths of a GPU: fragments of its GPUs, fragments of its
    CPU at their price, and GPUs beyond those that the CPU is enough for.
    """
    if not prices.gpu_per_cpu:
        return fragments(left, cpu, model, mix)

    def of_block(left: Ints, cpu: Ints, model: Ints) -> Floats:
        return _losses(cases(left, cpu, model, mix), cpu, mix, prices)

    return in_blocks(of_block, left, cpu, model)


def _losses(cases: Cases, cpu: Ints, mix: MixTables, prices: Prices) -> Floats:
    limited = np.where(cpu >= MIN_UNCOUNTED_CPU_MILLI, 0, cpu)
    stranded = np.maximum(cases.idle - cpu * prices.gpu_per_cpu, 0.0)
    unused = prices.cpu_price * without_room(cases, mix) * limited
    found: Floats = fragments_of(cases, mix) + unused + stranded
    return found


def loss_scores(
    left: Ints,
    after: Ints,
    takes: "np.ndarray[Any, np.dtype[np.bool_]]",
    fits: "np.ndarray[Any, np.dtype[np.bool_]]",
    cpu_after: Ints,
    model: Ints,
    before: Floats,
    gpu_count: int,
    mix: MixTables,
    prices: Prices,
    steps: Floats,
) -> tuple[Floats, "np.ndarray[Any, np.dtype[np.int16]]"]:
    """(the score of each node, the best GPU for a pod that wants one: of several the one with the least left),
    ``before`` being what is lost now and what the pod pays less. Nodes that do not fit score minus infinity.
    """
    scores, gpus = np.full(len(fits), -np.inf), np.full(len(fits), -1, np.int16)
    fit = fits.nonzero()[0]
    if not len(fit):
        return scores, gpus
    if gpu_count == 1:
        gpu, node, then = _left_with_each(left, after, takes, fits)
        by_gpu = np.full(takes.shape, -np.inf)
        gained = integer_score(before[node] - losses(then, cpu_after[node], model[node], mix, prices), steps)
        regret = prices.values[model[node], left[gpu, node]] - prices.values[model[node], after[gpu, node]]
        by_gpu[gpu, node] = gained - TIER * ((regret + REGRET_MILLI // 2) // REGRET_MILLI)
        most = by_gpu.max(axis=0)
        gpus[fit], scores[fit] = np.where(by_gpu == most, left, _MORE_THAN_ANY_LEFT).argmin(axis=0)[fit], most[fit]
        return scores, gpus
    then = _left_with_smallest(left, after, takes, fit, gpu_count)
    scores[fit] = integer_score(before[fit] - losses(then, cpu_after[fit], model[fit], mix, prices), steps)
    return scores, gpus
