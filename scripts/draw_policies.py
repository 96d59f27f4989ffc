"""Draws docs/pictures/policies.svg of docs/pictures/policies.csv: how full each placement policy gets a fleet.

    python scripts/draw_policies.py [--traces DIR [--jobs 2]]

With --traces the numbers are made first: the published default workload with each of its event orders in DIR, laid out
as benchmarks/policies.py says, and the policies given the mix of pods. That is two minutes; the numbers are the same
every time. Tests compare the picture with the numbers, and these with the table of docs/policy-results.md.
"""

import argparse
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from purser.simulator.openb import read_lists
from purser.simulator.orders import read_order
from purser.simulator.parallel import Task, run_all
from purser.simulator.report.plots import Lines

REPOSITORY = Path(__file__).parents[1]
PICTURE = Path("docs/pictures/policies.svg")
NUMBERS = Path("docs/pictures/policies.csv")
WORKLOAD = "default"
POLICIES = (
    "purser",
    "fragmentation",
    "binpack",
    "best-fit",
    "packing",
    "clustering",
    "dot-product",
    "random",
    "spread",
)
"""The best first, as the legend has them."""
ASKED = "asked for"
FIRST, LAST, LOWEST = 80, 130, 75
"""Percent of all GPUs: where the policies part from one another."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, metavar="DIR", help="the published traces")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    options = parser.parse_args()
    if options.traces:
        (REPOSITORY / NUMBERS).write_text(simulated(options.traces, options.jobs))
    (REPOSITORY / PICTURE).write_text(drawn())


def simulated(traces: Path, jobs: int) -> str:
    """Lines of CSV: percent that pods have asked for, and percent that they hold under each policy."""
    lists = read_lists(traces / "openb_node_list_gpu_node.csv", traces / f"openb_pod_list_{WORKLOAD}.csv")
    orders = [read_order(path, lists) for path in sorted((traces / "orders" / WORKLOAD).glob("seed*"))]
    tasks = [Task(name, order) for name in POLICIES for order in orders]
    held: dict[str, list[dict[float, float]]] = {name: [] for name in POLICIES}
    for run in run_all(lists, tasks, jobs, lambda place, events: None):
        curve = zip(run.curve["arrived"], run.curve["allocation"], strict=True)
        held[run.policy].append(dict(curve) | run.allocation_percent)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([ASKED, *POLICIES])
    for asked in range(FIRST, LAST + 1):
        rows.writerow([asked, *(f"{fmean(each[asked] for each in held[name]):.2f}" for name in POLICIES)])
    return text.getvalue()


def drawn() -> str:
    """The picture, of the numbers that are there."""
    rows = list(numbers())
    lines = Lines("Allocated GPUs, by placement policy", "asked for, % of all GPUs", "allocated, % of all GPUs")
    for name in POLICIES:
        lines.add(name, [row[ASKED] for row in rows], [row[name] for row in rows])
    return lines.svg("policies", bottom=LOWEST)


def numbers() -> Iterator[dict[str, float]]:
    """By percent asked for."""
    for row in csv.DictReader((REPOSITORY / NUMBERS).read_text().splitlines()):
        yield {name: float(value) for name, value in row.items()}


if __name__ == "__main__":
    main()
