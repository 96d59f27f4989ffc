"""Results as plain values, for JSON and YAML, and as CSV."""

import csv
import io
from typing import Any

import msgspec

from purser.simulator.results import AnyRun, Run, TimedRun, by_policy, mean_by_key, mean_by_percent, mean_of
from purser.simulator.workload import SimWorkload

_TIMED_FIELDS = (
    "allocation_percent",
    "fragmentation_percent",
    "pending_gpu_hours",
    "waited_pods",
    "waited_mean_s",
    "waited_p95_s",
    "waited_p99_s",
    "waited_max_s",
)


def document(workload: SimWorkload, runs: list[AnyRun]) -> dict[str, Any]:
    """What was simulated, and per policy the means over its runs and each run. Percents are of all GPUs."""
    found: dict[str, Any] = {
        "workload": {
            "title": workload.title,
            "nodes": len(workload.nodes),
            "gpus": workload.gpus,
            "pods": len(workload.pods),
            "notes": list(workload.notes),
        },
        "policies": [{"policy": name, **_policy_document(each)} for name, each in by_policy(runs).items()],
    }
    if limits := [
        {"order": run.order, **msgspec.to_builtins(run.bounds)}
        for run in runs
        if isinstance(run, Run) and run.bounds is not None
    ]:
        found["bounds"] = limits
    return found


def _policy_document(runs: list[AnyRun]) -> dict[str, Any]:
    means: dict[str, Any] = _timed_means(runs) if isinstance(runs[0], TimedRun) else _means(runs)
    return {
        **means,
        "placed": _short(mean_of(runs, lambda run: run.placed)),
        "failed": {name: _short(count) for name, count in mean_by_key([run.failed for run in runs]).items()},
        "pods_per_second": round(mean_of(runs, lambda run: run.pods_per_second), 1),
        "runs": [_run_document(run) for run in runs],
    }


def _means(runs: list[AnyRun]) -> dict[str, Any]:
    arrivals = [run for run in runs if isinstance(run, Run)]
    return {
        "allocation_percent": mean_by_percent([run.allocation_percent for run in arrivals]),
        "fragmentation_percent": mean_by_percent([run.fragmentation_percent for run in arrivals]),
        "idle_by_cause_percent": mean_by_key([run.idle_by_cause_percent for run in arrivals]),
    }


def _timed_means(runs: list[AnyRun]) -> dict[str, Any]:
    return {name: round(sum(getattr(run, name) for run in runs) / len(runs), 4) for name in ("hours", *_TIMED_FIELDS)}


def _run_document(run: AnyRun) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(run, str_keys=True)
    for name in ("policy", "curve", "waits_s", "bounds"):
        plain.pop(name, None)
    return plain


def _short(number: float) -> float:
    """A whole number without a point: means of counts over one run are counts."""
    return int(number) if number == int(number) else round(number, 4)


def as_csv(runs: list[AnyRun]) -> str:
    """A line for each run, numbers by percent or class in columns of their own."""
    lines = [_flatten(_run_document(run) | {"policy": run.policy}) for run in runs]
    heads = ["policy", *dict.fromkeys(head for line in lines for head in line if head != "policy")]
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, restval=0, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _flatten(values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update({f"{name}.{key}": each for key, each in value.items()})
        else:
            flat[name] = "" if value is None else value
    return flat
