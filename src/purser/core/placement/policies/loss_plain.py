"""The kernels of Purser's own policy in numpy: always there, and what `loss_fast` is tested against."""

from typing import Any, NamedTuple

import numpy as np

from purser.core.fleet.room import MANY
from purser.core.placement.kernels import plain
from purser.core.placement.kernels.arguments import Floats, Ints, MixTables

LIMITED = MANY // 2
"""CPU from here on is not counted (kube-scheduler counts it), and none of it is lost."""

REGRET_MILLI = 20
"""Two GPUs that lose the same worth, to so many thousandths, are equally good for a share."""

TIER = 1000.0
"""Of a score, for each `REGRET_MILLI`: whatever else, patterns come first."""

_NEVER = 1 << 40
"""More than is left of any GPU."""


class Prices(NamedTuple):
    """What a plan says things are worth."""

    values: Ints
    """[models + 1, 1001]: what is left of a GPU, see `purser.core.placement.policies.slices.values`."""
    gpu_per_cpu: float
    """How much GPU goes with each thousandth of a CPU; 0: the mix wants no CPU beside its GPUs."""
    cpu_price: float
    """Of a thousandth of a CPU that pods cannot use, in thousandths of a GPU."""


def losses(left: Ints, cpu: Ints, model: Ints, mix: MixTables, prices: Prices) -> Floats:
    """What of each node is lost to the mix of pods, in thousandths of a GPU: fragments of its GPUs, fragments of its
    CPU at their price, and GPUs beyond those that the CPU is enough for.
    """
    if not prices.gpu_per_cpu:
        return plain.fragments(left, cpu, model, mix)

    def of_block(left: Ints, cpu: Ints, model: Ints) -> Floats:
        return _losses(plain.cases(left, cpu, model, mix), cpu, mix, prices)

    return plain.in_blocks(of_block, left, cpu, model)


def _losses(cases: plain.Cases, cpu: Ints, mix: MixTables, prices: Prices) -> Floats:
    limited = np.where(cpu >= LIMITED, 0, cpu)
    stranded = np.maximum(cases.idle - cpu * prices.gpu_per_cpu, 0.0)
    unused = prices.cpu_price * plain.without_room(cases, mix) * limited
    found: Floats = plain.fragments_of(cases, mix) + unused + stranded
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
        gpu, node = (plain.different(left, after, takes) & fits).nonzero()
        then = left.take(node, axis=1)
        then[gpu, np.arange(len(node))] = after[gpu, node]
        by_gpu = np.full(takes.shape, -np.inf)
        gained = plain.quantised(before[node] - losses(then, cpu_after[node], model[node], mix, prices), steps)
        regret = prices.values[model[node], left[gpu, node]] - prices.values[model[node], after[gpu, node]]
        by_gpu[gpu, node] = gained - TIER * ((regret + REGRET_MILLI // 2) // REGRET_MILLI)
        most = by_gpu.max(axis=0)
        gpus[fit], scores[fit] = np.where(by_gpu == most, left, _NEVER).argmin(axis=0)[fit], most[fit]
        return scores, gpus
    then = left.take(fit, axis=1)
    if gpu_count:
        chosen = np.where(takes.take(fit, axis=1), then, _NEVER).argsort(axis=0, kind="stable")[:gpu_count]
        np.put_along_axis(then, chosen, np.take_along_axis(after.take(fit, axis=1), chosen, axis=0), axis=0)
    scores[fit] = plain.quantised(before[fit] - losses(then, cpu_after[fit], model[fit], mix, prices), steps)
    return scores, gpus
