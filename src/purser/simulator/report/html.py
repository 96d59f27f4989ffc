"""One HTML file that needs nothing else: what was simulated, what came of it, and how to read that."""

import importlib.util
from collections import Counter
from collections.abc import Sequence
from html import escape

from purser.core.placement.fragments import Causes
from purser.core.wording import counted
from purser.simulator.report import plots, verdicts
from purser.simulator.results import AnyRun, Run, TimedRun, mean_by_key, mean_by_percent, mean_of
from purser.simulator.workload import SimWorkload, class_of, common_memory_mib

NEEDS_MATPLOTLIB = "--report needs matplotlib: run pip install matplotlib"

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; border-bottom: 1px solid #d5d9de; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid #e5e8eb; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #9aa1a9; white-space: normal; vertical-align: bottom; }
figure { margin: 1.5rem 0; } figure svg { width: 100%; height: auto; }
.verdicts { font-size: 1.1rem; background: #eef4f8; border-left: 4px solid #0072b2; padding: .8rem 1.2rem; }
.verdicts p { margin: .3rem 0; } .note { color: #5c6470; }
@media print { body { margin: 0; } figure, table { break-inside: avoid; } }
"""

_EXPLANATIONS = (
    (
        "Allocated",
        "GPUs that pods hold, as a percentage of all GPUs. A shared GPU counts in proportion to the part that "
        "pods hold. The value at 100% is the mean over all moments at which pods had asked for 99.5 to 100.5% of all "
        "GPUs.",
    ),
    (
        "Fragmented",
        "Free GPU capacity that a typical pod cannot use because too little of the GPU or of the node's CPU is left, "
        "or because the GPU is the wrong model. Pods are weighted by how often they occur. Pods that request no GPU "
        "cannot use any, so even an empty cluster counts as slightly fragmented.",
    ),
    (
        "Orders",
        "Each seed determines the order in which pods arrive, and which of two equally good nodes is tried first. "
        "Numbers are means over the orders. A difference smaller than the variation between orders is not significant.",
    ),
    (
        "What is simulated",
        "The simulator runs Purser's own scheduling code on lists instead of a cluster. It takes into account the "
        "nodes' CPU, memory and GPUs, and the models that pods allow. It does not simulate priorities and "
        "preemption, affinities, taints, or the time that decisions take.",
    ),
)


def has_matplotlib() -> bool:
    """Whether there is what draws the plots."""
    return importlib.util.find_spec("matplotlib") is not None


def report(workload: SimWorkload, runs: Sequence[AnyRun]) -> str:
    """The page."""
    timed = [run for run in runs if isinstance(run, TimedRun)]
    parts = _timed_parts(timed) if timed else _arrival_parts(workload, [r for r in runs if isinstance(r, Run)])
    title = f"GPU placement policies on {workload.title}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">{_simulated(workload, runs)}</p>',
        *parts,
        "<h2>What was simulated</h2>",
        _workload_tables(workload),
        *(f'<p class="note">{escape(note)}</p>' for note in workload.notes),
        "<h2>How to read this</h2>",
        "<dl>",
        *(f"<dt><strong>{escape(word)}</strong></dt><dd>{escape(text)}</dd>" for word, text in _EXPLANATIONS),
        "</dl>",
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}{view}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"
    )


def _arrival_parts(workload: SimWorkload, runs: list[Run]) -> list[str]:
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.policy, []).append(run)
    return [
        _verdicts(verdicts.arrival_verdicts(workload, grouped)),
        "<h2>Policies</h2>",
        _allocation_table(grouped),
        *_wrap_figures(plots.arrival_plots(grouped)),
        "<h2>Idle GPUs by cause</h2>",
        _causes_table(grouped),
        "<h2>Pods that could not be placed</h2>",
        _failed_table(grouped),
        *_bounds(grouped),
        "<h2>Each run</h2>",
        _runs_table(runs),
    ]


def _timed_parts(runs: list[TimedRun]) -> list[str]:
    grouped: dict[str, list[TimedRun]] = {}
    for run in runs:
        grouped.setdefault(run.policy, []).append(run)
    return [
        _verdicts(verdicts.timed_verdicts(grouped)),
        "<h2>Policies</h2>",
        _waiting_table(grouped),
        *_wrap_figures(plots.timed_plots(grouped)),
        "<h2>Each run</h2>",
        _waiting_table({f"{run.policy}, {run.order}": [run] for run in runs}),
    ]


def _simulated(workload: SimWorkload, runs: Sequence[AnyRun]) -> str:
    orders = list(dict.fromkeys(run.order for run in runs))
    policies = len(dict.fromkeys(run.policy for run in runs))
    how = (
        f"pods arrive and depart over {runs[0].hours:.1f} hours, and wait if there is no room"
        if isinstance(runs[0], TimedRun)
        else "pods arrive one after another, and each is tried once"
    )
    nodes, gpus = counted(len(workload.nodes), "node"), counted(workload.gpus, "GPU")
    summary = f"{nodes} with {gpus}, a list of {counted(len(workload.pods), 'pod')}; {how}."
    learn, know, named = ("learns", "knows", "policy") if policies == 1 else ("learn", "know", "policies")
    learned = runs[0].learned
    mix = f"{learn} the mix of pods from the arriving pods" if learned else f"{know} the mix of pods in advance"
    orders_text = f"{len(orders)} {'order' if len(orders) == 1 else 'orders'} of arrival ({', '.join(orders)})"
    return escape(f"{summary} {policies} {named}, which {mix}; {orders_text}.")


def _verdicts(sentences: list[str]) -> str:
    return f'<div class="verdicts">{"".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)}</div>'


def _wrap_figures(svgs: list[str]) -> list[str]:
    return [f"<figure>{svg}</figure>" for svg in svgs]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; its first column says what the rows are."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
    )


def _allocation_table(runs: dict[str, list[Run]]) -> str:
    percents = sorted({percent for each in runs.values() for run in each for percent in run.allocation_percent})
    allocated_at = [f"{'at' if place else 'allocated at'} {percent}%" for place, percent in enumerate(percents)]
    heads = ["policy", *allocated_at, "fragmented at 100%", "placed", "no place"]
    rows = []
    for name, each in runs.items():
        allocated = mean_by_percent([run.allocation_percent for run in each])
        fragmented = mean_by_percent([run.fragmentation_percent for run in each])
        rows.append(
            [
                name,
                *(f"{allocated[str(p)]:.2f}" if str(p) in allocated else "" for p in percents),
                f"{fragmented['100']:.2f}" if "100" in fragmented else "",
                f"{mean_of(each, lambda run: run.placed):.0f}",
                f"{mean_of(each, lambda run: sum(run.failed.values())):.0f}",
            ]
        )
    return table(heads, rows)


def _causes_table(runs: dict[str, list[Run]]) -> str:
    means = {name: mean_by_key([run.idle_by_cause_percent for run in each]) for name, each in runs.items()}
    causes = [cause for cause in Causes.__struct_fields__ if any(mean[cause] for mean in means.values())]
    heads = ["policy", *(plots.CAUSES[cause] for cause in causes), "total"]
    rows = [
        [name, *(f"{mean[cause]:.2f}" for cause in causes), f"{sum(mean.values()):.2f}"] for name, mean in means.items()
    ]
    return (
        table(heads, rows) + '<p class="note">As a percentage of all GPUs, once pods have asked for 100% of them, or '
        "at the end if they never do.</p>"
    )


def _failed_table(runs: dict[str, list[Run]]) -> str:
    means = {name: mean_by_key([run.failed for run in each]) for name, each in runs.items()}
    classes = sorted({kind for mean in means.values() for kind in mean}, key=plots.size_key)
    return table(
        ["policy", *classes], [[name, *(f"{mean.get(c, 0.0):.0f}" for c in classes)] for name, mean in means.items()]
    )


def _bounds(runs: dict[str, list[Run]]) -> list[str]:
    limits = [(run.order, run.bounds) for each in runs.values() for run in each if run.bounds is not None]
    if not limits:
        return []
    rows = [[order, f"{b.b_percent:.2f}", f"{b.c_percent:.2f}", f"{b.c_from_percent:.2f}"] for order, b in limits]
    return [
        "<h2>Upper bound for every policy</h2>",
        table(["order", "at 100% arrived", "at the end", "if no pod fails before"], rows),
        '<p class="note">The bound is computed as if pods could be split '
        "freely, so no placement of whole pods can do better. The second number applies to every policy that places "
        "all pods for as long as the fragmentation policy does.</p>",
    ]


def _runs_table(runs: Sequence[Run]) -> str:
    heads = ["policy", "order", "allocated at 100%", "at 130%", "first failure at", "placed", "no place", "pods/s"]
    return table(
        heads,
        [
            [
                run.policy,
                run.order,
                *(f"{run.allocation_percent[p]:.2f}" if p in run.allocation_percent else "" for p in (100, 130)),
                "" if run.first_failure_percent is None else f"{run.first_failure_percent:.2f}%",
                str(run.placed),
                str(sum(run.failed.values())),
                f"{run.pods_per_second:.0f}",
            ]
            for run in runs
        ],
    )


def _waiting_table(runs: dict[str, list[TimedRun]]) -> str:
    heads = [
        "policy",
        "allocated %",
        "fragmented %",
        "pending GPU-hours",
        "pods that waited",
        "mean wait, s",
        "99% wait less than, s",
        "longest, s",
        "never placed",
    ]
    return table(heads, [[name, *_waiting_row(each)] for name, each in runs.items()])


def _waiting_row(runs: list[TimedRun]) -> list[str]:
    numbers = (
        ("allocation_percent", 2),
        ("fragmentation_percent", 2),
        ("pending_gpu_hours", 1),
        ("waited_pods", 0),
        ("waited_mean_s", 1),
        ("waited_p99_s", 0),
        ("waited_max_s", 0),
    )
    means = [f"{sum(getattr(run, name) for run in runs) / len(runs):.{digits}f}" for name, digits in numbers]
    return [*means, f"{mean_of(runs, lambda run: sum(run.failed.values())):.0f}"]


def _workload_tables(workload: SimWorkload) -> str:
    memory = common_memory_mib(workload.nodes)
    nodes = Counter((_model_text(node.gpus[0].model if node.gpus else ""), len(node.gpus)) for node in workload.nodes)
    pods = Counter(class_of(pod.shape, memory) for pod in workload.pods)
    node_rows = [[model, str(gpus), str(count), str(gpus * count)] for (model, gpus), count in nodes.most_common()]
    pod_rows = [[name, str(pods[name])] for name in sorted(pods, key=plots.size_key)]
    return table(["model", "GPUs of a node", "nodes", "GPUs"], node_rows) + table(["pods", "in the list"], pod_rows)


def _model_text(name: str) -> str:
    return name or "none"
