"""Plots as SVG, to stand inside a page: no scripts, no fonts, nothing from elsewhere."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from purser.simulator.results import AnyRun, Run, TimedRun, mean_by_key

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f4f24", "#5c6b73", "#8c2d9c", "#222222")
"""Distinguishable with colour blindness; lines differ in their dashes as well."""
DASHES = ("-", "--", "-.", ":")

CAUSES = {
    "usable": "could still be used",
    "lacks_gpu": "too little GPU left",
    "lacks_cpu": "too little CPU left",
    "lacks_both": "too little GPU and CPU left",
    "no_access": "of a model that the pod does not allow",
    "no_use": "pod requests no GPU",
    "no_use_lacks_cpu": "pod requests no GPU, and too little CPU left",
}
"""What idle GPUs are idle for, in words."""

_SIZE = (9.0, 4.2)
_ID = re.compile(r'(id="|href="#|url\(#)')


class Lines:
    """A plot of lines, one per policy."""

    def __init__(self, title: str, x: str, y: str) -> None:
        self._figure, self._axes = _figure(title)
        self._axes.set_xlabel(x)
        self._axes.set_ylabel(y)
        self._lines = 0

    def add(self, name: str, xs: Sequence[float], ys: Sequence[float]) -> None:
        """One line."""
        number = self._lines
        self._axes.plot(
            xs,
            ys,
            DASHES[number % len(DASHES)],
            color=COLOURS[number % len(COLOURS)],
            label=name,
            linewidth=1.8,
        )
        self._lines += 1

    def limit(self, name: str, y: float) -> None:
        """A level that no line can exceed."""
        self._axes.axhline(y, color="#888888", linewidth=1, label=name)

    def svg(self, prefix: str, bottom: float = 0) -> str:
        """The plot from ``bottom`` up; ids in it begin with the prefix."""
        self._axes.set_ylim(bottom=bottom)
        self._axes.margins(x=0)
        return _svg(self._figure, self._axes, prefix)


def bars(title: str, x: str, groups: Sequence[str], parts: Mapping[str, Sequence[float]], prefix: str) -> str:
    """Bars that lie, one per group, each of parts that add up."""
    figure, axes = _figure(title, 1.6 + 0.42 * len(groups))
    begun = np.zeros(len(groups))
    places = np.arange(len(groups))[::-1]
    for number, (name, values) in enumerate(parts.items()):
        axes.barh(places, values, left=begun, color=COLOURS[number % len(COLOURS)], label=name, height=0.7)
        begun += np.array(values)
    axes.set_yticks(places, groups)
    axes.set_xlabel(x)
    return _svg(figure, axes, prefix)


def _figure(title: str, height: float = _SIZE[1]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_SIZE[0], max(height, 2.4)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Any, axes: Any, prefix: str) -> str:
    import matplotlib

    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    text = io.StringIO()
    # Text stays text, and the same numbers make the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix, "font.family": "sans-serif"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    found = text.getvalue()
    found = re.sub(r"<metadata>.*?</metadata>", "", found[found.index("<svg") :], flags=re.DOTALL)
    return _ID.sub(rf"\g<1>{prefix}-", found)


def arrival_plots(runs: dict[str, list[Run]]) -> list[str]:
    """Allocation and fragmentation over what has arrived, idle GPUs by cause, failed pods by class."""
    allocation = Lines("Allocated GPUs", "requested, % of all GPUs", "allocated, % of all GPUs")
    fragments = Lines("Fragmentation", "requested, % of all GPUs", "unusable by future pods, % of all GPUs")
    for name, each in runs.items():
        allocation.add(name, *_mean_curve(each, "arrived", "allocation"))
        fragments.add(name, *_mean_curve(each, "arrived", "fragmentation"))
    limits = [run.bounds for each in runs.values() for run in each if run.bounds is not None]
    if limits:
        allocation.limit("upper bound at 100%", sum(limit.b_percent for limit in limits) / len(limits))
    idle = [mean_by_key([run.idle_by_cause_percent for run in each]) for each in runs.values()]
    return [
        allocation.svg("allocation"),
        fragments.svg("fragmentation"),
        bars(
            "Idle GPUs once 100% have been requested, by cause",
            "% of all GPUs",
            list(runs),
            {words: [each[cause] for each in idle] for cause, words in CAUSES.items() if any(e[cause] for e in idle)},
            "causes",
        ),
        _failed("Pods that could not be placed", list(runs), list(runs.values())),
    ]


def timed_plots(runs: dict[str, list[TimedRun]]) -> list[str]:
    """Allocation, fragmentation and waiting over time, how long pods waited, and those that never found a place."""
    plots = []
    for field, title, y in (
        ("allocation", "Allocated GPUs", "allocated, % of all GPUs"),
        ("fragmentation", "Fragmentation", "unusable by future pods, % of all GPUs"),
        ("waiting", "Waiting", "requested by waiting pods, % of all GPUs"),
    ):
        lines = Lines(title, "hours", y)
        for name, each in runs.items():
            lines.add(name, *_mean_curve(each, "hours", field))
        plots.append(lines.svg(field))
    waits = Lines("Waiting time", "% of pods", "longest wait, seconds")
    for name, each in runs.items():
        waits.add(name, list(range(101)), np.mean([run.waits_s for run in each], axis=0).tolist())
    plots.append(waits.svg("waits"))
    pending = [sum(run.pending_gpu_hours for run in each) / len(each) for each in runs.values()]
    title = "GPUs that waiting pods asked for, multiplied by their waiting time"
    plots.append(bars(title, "GPU-hours", list(runs), {"pending": pending}, "pending"))
    if any(run.failed for each in runs.values() for run in each):
        plots.append(_failed("Pods that waited until the end", list(runs), list(runs.values())))
    return plots


def _failed(title: str, names: list[str], runs: "Sequence[Sequence[AnyRun]]") -> str:
    means = [mean_by_key([run.failed for run in each]) for each in runs]
    classes = sorted({name for each in means for name in each}, key=size_key)
    parts = {name: [each.get(name, 0.0) for each in means] for name in classes} or {"none": [0.0] * len(names)}
    return bars(title, "pods", names, parts, "failed")


def size_key(name: str) -> tuple[int, str]:
    """Classes of pods in the order of what they ask for."""
    digits = re.match(r"[0-9]+", name)
    return (int(digits.group()), name) if digits else (0, name)


def _mean_curve(runs: "Sequence[AnyRun]", x: str, y: str) -> tuple[list[float], list[float]]:
    """At the points that all runs have."""
    if x == "hours":  # these are the same number of points, at moments that differ a little between runs
        xs = np.mean([run.curve[x] for run in runs], axis=0)
        return xs.tolist(), np.mean([run.curve[y] for run in runs], axis=0).tolist()
    known = [dict(zip(run.curve[x], run.curve[y], strict=True)) for run in runs]
    shared = [at for at in runs[0].curve[x] if all(at in each for each in known)]
    return shared, [sum(each[at] for each in known) / len(known) for at in shared]
