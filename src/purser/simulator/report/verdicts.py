"""What the numbers say, in sentences."""

from purser.core.wording import counted, portion
from purser.simulator.report.plots import size_key
from purser.simulator.results import Run, TimedRun, mean_of
from purser.simulator.workload import SimWorkload

FULL = 100
"""Percent arrived at which policies are compared: as much has been asked for as there is."""


def arrival_verdicts(workload: SimWorkload, runs: dict[str, list[Run]]) -> list[str]:
    """Who allocates most, how far that is from what is possible, and who fails the fewest pods."""
    at = _comparison_percent(runs)
    allocated = {name: sum(_at(run, at) for run in each) / len(each) for name, each in runs.items()}
    best, worst = max(allocated, key=lambda name: allocated[name]), min(allocated, key=lambda name: allocated[name])
    found = [
        f"Once pods have asked for {at}% of the GPUs, {best} has allocated {allocated[best]:.2f}% of them: "
        f"{portion(_gpus(workload, 100 - allocated[best]), workload.gpus, 'GPU')} left."
    ]
    if allocated[best] - allocated[worst] >= 0.01:
        found.append(
            f"{worst} has allocated {allocated[worst]:.2f}%: the choice of policy is worth "
            f"{counted(_gpus(workload, allocated[best] - allocated[worst]), 'GPU')}."
        )
    limits = [run.bounds for each in runs.values() for run in each if run.bounds is not None]
    if limits and at == FULL:
        limit = sum(each.b_percent for each in limits) / len(limits)
        found.append(
            f"No policy can have allocated more than {limit:.2f}% by then: {best} is "
            f"{counted(_gpus(workload, limit - allocated[best]), 'GPU')} short of that bound."
        )
    return [*found, *_failure_verdicts(runs)]


def _failure_verdicts(runs: dict[str, list[Run]]) -> list[str]:
    """Who turns away the fewest pods, and who the fewest of the largest: not always the same."""
    failed = {name: mean_of(each, lambda run: sum(run.failed.values())) for name, each in runs.items()}
    fewest = min(failed, key=lambda name: failed[name])
    found = f"At the end, {fewest} has the fewest unplaced pods: {failed[fewest]:.0f}."
    largest = max((kind for each in runs.values() for run in each for kind in run.failed), key=size_key, default="")
    large = {name: sum(run.failed.get(largest, 0) for run in each) / len(each) for name, each in runs.items()}
    best = min(large, key=lambda name: large[name])
    if large[best] < large[fewest]:
        found += (
            f" {best} left the fewest {largest} pods unplaced: {large[best]:.0f}, while {fewest} left "
            f"{large[fewest]:.0f}. One of these pods asks for as much as many small pods."
        )
    return [found]


def timed_verdicts(runs: dict[str, list[TimedRun]]) -> list[str]:
    """With which policy pods wait least, and most."""
    pending = {name: sum(run.pending_gpu_hours for run in each) / len(each) for name, each in runs.items()}
    if not any(pending.values()):
        return ["No pod ever waited, because every policy had room for all of them. Try a higher --load."]
    best, worst = min(pending, key=lambda name: pending[name]), max(pending, key=lambda name: pending[name])
    found = [f"Pods wait least with {best}: {pending[best]:.1f} GPU-hours in total."]
    if worst != best and pending[worst] > pending[best]:
        found.append(f"With {worst}, pods wait for {pending[worst]:.1f} GPU-hours.")
    fragments = {name: sum(run.fragmentation_percent for run in each) / len(each) for name, each in runs.items()}
    least = min(fragments, key=lambda name: fragments[name])
    found.append(f"{least} causes the least fragmentation: {fragments[least]:.2f}% of the GPUs on average over time.")
    return found


def _comparison_percent(runs: dict[str, list[Run]]) -> int:
    """100 percent arrived, or the most below that every run came to."""
    each = [run for of_policy in runs.values() for run in of_policy]
    common = set.intersection(*(set(map(int, run.curve["arrived"])) for run in each))
    return FULL if FULL in common else max(common, default=0)


def _at(run: Run, percent: int) -> float:
    return dict(zip(run.curve["arrived"], run.curve["allocation"], strict=True)).get(float(percent), 0.0)


def _gpus(workload: SimWorkload, percent: float) -> int:
    return round(percent / 100 * workload.gpus)
