"""The traces and event orders of the published runs, read in place: they are no part of the project."""

import csv
import gzip
import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.placement.mix import Mix
from purser.core.placement.shape import PodShape

TRACES = Path(os.environ.get("PURSER_TRACES", Path(__file__).parents[4] / "shared" / "traces"))
MISSING = (
    f"no traces at {TRACES}: PURSER_TRACES must be a directory with openb_*.csv of the FGD simulator's data and "
    "orders/<workload>/seedNN.txt.gz with its event orders"
)
MANY_SLOTS = 1000


class Trace(NamedTuple):
    nodes: list[FleetNodeFacts]
    """In the order of their rank."""
    pods: list[PodShape]
    """In the order of their arrival."""
    mix: Mix


def there() -> list[tuple[str, int]]:
    """The workloads and seeds that can be replayed."""
    orders = sorted(TRACES.glob("orders/*/seed*.txt.gz"))
    return [(path.parent.name, int(path.name.removeprefix("seed").removesuffix(".txt.gz"))) for path in orders]


def read(workload: str, seed: int) -> Trace:
    shapes = {row["name"]: _shape(row) for row in _rows(f"openb_pod_list_{workload}.csv")}
    nodes = {row["sn"]: _node(row) for row in _rows("openb_node_list_gpu_node.csv")}
    lines = gzip.decompress((TRACES / "orders" / workload / f"seed{seed}.txt.gz").read_bytes()).decode().splitlines()
    ranked = sorted(line[2:] for line in lines if line.startswith("n "))
    return Trace(
        [nodes[name.partition("-")[2]] for name in ranked],
        [shapes[line[2:].partition("-tuned-")[0]] for line in lines if line.startswith("p ")],
        Mix.of(Counter(shapes.values())),
    )


def fleet_of(trace: Trace) -> FleetArrays:
    fleet = FleetArrays()
    for rank, node in enumerate(trace.nodes):
        fleet.put_node(node, rank)
    return fleet


def _rows(name: str) -> list[dict[str, str]]:
    with (TRACES / name).open(newline="") as file:
        return list(csv.DictReader(file))


def _shape(row: dict[str, str]) -> PodShape:
    """A GPU has 1000 MiB here, so that a thousandth of it is one."""
    gpus = int(row["num_gpu"])
    models = tuple(f"={model}" for model in (row.get("gpu_spec") or "").split("|") if model) if gpus else ()
    milli = int(row["gpu_milli"]) if gpus else 0
    return PodShape(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, models=models)


def _node(row: dict[str, str]) -> FleetNodeFacts:
    gpus = (GpuFacts(row["model"], 1000, MANY_SLOTS),) * int(row["gpu"])
    return FleetNodeFacts(row["sn"], gpus, int(row["cpu_milli"]), int(row["memory_mib"]), 1001)
