"""Results of runs: numbers of one run, and their means over the runs of a policy."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.placement.fragments import Causes
from purser.simulator.arrivals import ArrivalsResult
from purser.simulator.bounds import Bounds
from purser.simulator.departures import Departures
from purser.simulator.metrics import PERCENTS
from purser.simulator.workload import Order, SimWorkload

Points = tuple[float, ...]

CURVE_POINTS = 300
"""Of a curve over time: as many as a plot has room for."""


class Run(msgspec.Struct, frozen=True):
    """One policy on one order of arrivals. Allocation and fragmentation are in percent of all GPUs."""

    policy: str
    order: str
    seed: int
    learned: bool
    """Whether the policy had to learn the mix of pods, or was given it."""
    pods: int
    allocation_percent: dict[int, float]
    """By percent arrived, as are the next."""
    fragmentation_percent: dict[int, float]
    placed: int
    failed: dict[str, int]
    """By class."""
    first_failure_percent: float | None
    """How much had arrived when the first pod found no place."""
    idle_by_cause_percent: dict[str, float]
    """Once 100 percent have arrived, or at the end where they never do."""
    pods_per_second: float
    curve: dict[str, Points]
    """Allocation and fragmentation by percent arrived: ``arrived``, ``allocation``, ``fragmentation``."""
    bounds: Bounds | None = None


class TimedRun(msgspec.Struct, frozen=True):
    """One policy on one order with departures. Allocation and fragmentation are means over time, in percent of all
    GPUs.
    """

    policy: str
    order: str
    seed: int
    learned: bool
    """Whether the policy had to learn the mix of pods, or was given it."""
    pods: int
    hours: float
    allocation_percent: float
    fragmentation_percent: float
    pending_gpu_hours: float
    """What waiting pods asked for, multiplied by their waiting time."""
    waited_pods: int
    waited_mean_s: float
    """Over all pods."""
    waited_p95_s: float
    waited_p99_s: float
    waited_max_s: float
    placed: int
    failed: dict[str, int]
    """By class, those that waited until the end."""
    pods_per_second: float
    curve: dict[str, Points]
    """Over time: ``hours``, ``allocation``, ``fragmentation``, ``waiting`` (percent of all GPUs)."""
    waits_s: Points
    """How long pods waited, the shortest wait first: at each whole percent of the pods from 0 to 100."""


def arrivals_result(
    policy: str, workload: SimWorkload, order: Order, learned: bool, found: ArrivalsResult, bounds: Bounds | None
) -> Run:
    """Results of a run with arrivals alone."""
    rows = found.rows
    everywhere = range(int(rows.arrived_percent[-1]) + 1)
    allocation = rows.columns(everywhere, rows.allocation_percent)
    fragmentation = rows.columns(everywhere, rows.fragmentation_percent)
    first = found.first_failure
    return Run(
        policy,
        order.label,
        order.seed,
        learned,
        len(order.pods),
        rows.columns(PERCENTS, rows.allocation_percent),
        rows.columns(PERCENTS, rows.fragmentation_percent),
        found.placed,
        found.failed,
        None if first is None else round(float(rows.arrived_percent[first]), 2),
        _percent_by_cause(found.causes_at_full or found.causes_at_end, workload.capacity_milli),
        round(len(order.pods) / max(found.seconds, 1e-9), 1),
        {
            "arrived": tuple(float(percent) for percent in allocation),
            "allocation": tuple(allocation.values()),
            "fragmentation": tuple(fragmentation.values()),
        },
        bounds,
    )


def _percent_by_cause(causes: Causes, capacity_milli: int) -> dict[str, float]:
    amounts: dict[str, float] = msgspec.structs.asdict(causes)
    return {cause: round(100 * amount / max(capacity_milli, 1), 4) for cause, amount in amounts.items()}


def timed_result(policy: str, workload: SimWorkload, order: Order, learned: bool, found: Departures) -> TimedRun:
    """Results of a run with departures."""
    moments, waited = found.moments, found.waited_s
    percent = 100 / max(workload.capacity_milli, 1)
    p95, p99 = np.percentile(waited, (95, 99))
    return TimedRun(
        policy,
        order.label,
        order.seed,
        learned,
        len(order.pods),
        round(found.end_s / 3600, 4),
        round(percent * moments.mean(moments.allocated, found.end_s), 4),
        round(percent * moments.mean(moments.fragments, found.end_s), 4),
        round(found.pending_gpu_hours, 3),
        int((waited > 0).sum()),
        round(float(waited.mean()), 3),
        round(float(p95), 3),
        round(float(p99), 3),
        round(float(waited.max()), 3),
        int(found.placed.sum()),
        found.unplaced,
        round(len(order.pods) / max(found.seconds, 1e-9), 1),
        _curves_over_time(found, percent),
        tuple(round(float(wait), 3) for wait in np.percentile(waited, np.arange(101), method="higher")),
    )


def _curves_over_time(found: Departures, percent: float) -> dict[str, Points]:
    times = np.linspace(0, found.end_s, CURVE_POINTS)
    places = np.maximum(np.searchsorted(found.moments.time_s, times, side="right") - 1, 0)

    def points(values: "npt.NDArray[np.float64] | npt.NDArray[np.int64]") -> Points:
        return tuple(round(percent * float(value), 3) for value in values[places])

    return {
        "hours": tuple(round(float(time) / 3600, 4) for time in times),
        "allocation": points(found.moments.allocated),
        "fragmentation": points(found.moments.fragments),
        "waiting": points(found.moments.waiting),
    }


AnyRun = Run | TimedRun


def by_policy(runs: Iterable[AnyRun]) -> dict[str, list[AnyRun]]:
    """The runs of each policy, policies as they were given."""
    grouped: dict[str, list[AnyRun]] = {}
    for run in runs:
        grouped.setdefault(run.policy, []).append(run)
    return grouped


def mean_of(runs: Sequence[AnyRun], read: Callable[[AnyRun], float]) -> float:
    """The mean of a number over runs."""
    return sum(map(read, runs)) / len(runs)


def mean_by_key(dicts: "Sequence[Mapping[Any, float]]") -> dict[str, float]:
    """Means of counts; one that some runs lack is 0 there. Keys are texts, as in JSON."""
    keys = dict.fromkeys(key for each in dicts for key in each)
    return {str(key): round(sum(each.get(key, 0.0) for each in dicts) / len(dicts), 4) for key in keys}


def mean_by_percent(dicts: "Sequence[Mapping[int, float]]") -> dict[str, float]:
    """Means of what there is at a percent arrived, over the runs that have had a moment there."""
    found = {
        key: [each[key] for each in dicts if key in each] for key in sorted({key for each in dicts for key in each})
    }
    return {str(key): round(sum(values) / len(values), 4) for key, values in found.items()}
