"""What Purser's policy makes of a mix of pods and a fleet, once in a while: prices, scarcity, nodes to keep whole.

All of it is a few tables; a decision looks things up in them. They hold until the mix is another one or the fleet has
grown or shrunk by more than a sixty-fourth.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from purser.core.fleet.arrays import FleetArrays, Model
from purser.core.model import WHOLE_MILLI
from purser.core.placement.kernels.arguments import Floats, Ints, MixTables, Prices
from purser.core.placement.mix import Mix, tables
from purser.core.placement.policies import reserve
from purser.core.placement.policies.scarcity import scarcity
from purser.core.placement.policies.slices import values
from purser.core.placement.shape import PodShape, need_milli

CPU_MARGIN = 0.9
"""GPUs are stranded beyond those that the node's CPU is enough for, at this part of the CPU that pods want on average:
some want less. Measured: 0.8 to 1.0 differ by 0.1 point, 1.25 takes whole nodes from 8-GPU pods."""

CPU_WEIGHT = 1.0
"""What CPU that pods cannot use costs, of the GPUs that go with it, for pods without GPUs. Points over FGD on cpu250 at
100 %: 0.4: 0.8, 1: 1.1, 2: 1.3; but the more it costs, the more such pods go to nodes kept for 8-GPU pods, and from 2
on one more of these fails now and then than under FGD.

Pods with GPUs are exempt: the pod with the last GPU of a node would pay for all CPU that is left there, so that nodes
would fill up last of all. That gains 0.3 points without departures, but with departures pods of eight GPUs wait fifty
times longer."""


@dataclass(frozen=True)
class PricePlan:
    """For one mix and one fleet as it was."""

    mix: MixTables
    prices: Prices
    """By which pods without GPUs are placed."""
    prices_with_gpus: Prices
    """By which pods with some are placed, see `CPU_WEIGHT`."""
    fleet_models: tuple[Model, ...]
    """The fleet's own tuple, as it was."""
    models: tuple[str, ...]
    gpus: Floats
    """By model."""
    scarce: Floats
    """By model."""
    kept: Ints
    """By row, see `reserve.keep`."""
    nodes: int
    clock: int
    """Of the fleet, when this was made."""


def plan(fleet: FleetArrays, mix: Mix) -> PricePlan:
    """Some milliseconds."""
    gpus = _gpus(fleet)
    common = max(zip(gpus.tolist(), (model.memory_mib for model in fleet.models), strict=True), default=(0, 0))[1]
    pods = [(typical.shape, typical.frequency) for typical in (*mix.typical, *mix.rare)]
    amounts = [count * _wants(shape, common) for shape, count in pods]
    full = float(gpus.sum()) / total if (total := sum(amounts)) else 0.0
    size = reserve.largest(fleet)
    names = tuple(model.name for model in fleet.models)
    demand = [(shape, amount * full) for (shape, _), amount in zip(pods, amounts, strict=True)]
    prices = _prices(fleet.models, pods, total)
    return PricePlan(
        tables(mix, fleet.models),
        prices,
        prices._replace(cpu_price=0.0),
        fleet.models,
        names,
        gpus,
        scarcity(demand, names, gpus),
        reserve.keep(fleet, [(shape, count * full) for shape, count in pods if shape.gpu_count == size]),
        len(fleet),
        fleet.clock,
    )


def _gpus(fleet: FleetArrays) -> Floats:
    found = np.bincount(fleet.gpu_model[fleet.closed == 0].ravel(), minlength=len(fleet.models))
    return found.astype(np.float64)


def _wants(shape: PodShape, memory_mib: int) -> float:
    """How many GPUs."""
    return shape.gpu_count * min(need_milli(shape, memory_mib), WHOLE_MILLI) / WHOLE_MILLI


def _prices(models: tuple[Model, ...], pods: list[tuple[PodShape, float]], gpus: float) -> Prices:
    cpu = sum(count * shape.cpu_milli for shape, count in pods if shape.gpu_count)
    cpu_per_gpu = cpu / (WHOLE_MILLI * gpus) if gpus else 0.0
    gpu_per_cpu = 1 / (CPU_MARGIN * cpu_per_gpu) if cpu_per_gpu else 0.0
    cpu_price = CPU_WEIGHT / cpu_per_gpu if cpu_per_gpu else 0.0
    return Prices(_values(models, pods), gpu_per_cpu, cpu_price)


def _values(models: tuple[Model, ...], pods: list[tuple[PodShape, float]]) -> Ints:
    """By model; one row more for nodes without any."""
    shares = [(shape, count) for shape, count in pods if shape.gpu_count == 1]
    by_memory: dict[int, Ints] = {}
    for model in models:
        if model.memory_mib not in by_memory:
            demand: Counter[int] = Counter()
            for shape, count in shares:
                demand[need_milli(shape, model.memory_mib)] += count  # type: ignore[assignment]
            by_memory[model.memory_mib] = values(demand)
    rows = [by_memory[model.memory_mib] for model in models]
    return np.array([*rows, np.zeros(WHOLE_MILLI + 1, np.int64)])
