"""The traces and event orders of the published runs, read in place: they are no part of the project. The simulator
replays them.
"""

import os
from functools import lru_cache
from pathlib import Path

from purser.simulator import arrivals
from purser.simulator.arrivals import ArrivalsResult
from purser.simulator.openb import read_lists
from purser.simulator.orders import read_order
from purser.simulator.workload import Order, SimWorkload

TRACES = Path(os.environ.get("PURSER_TRACES", Path(__file__).parents[4] / "shared" / "traces"))
MISSING = (
    f"no traces at {TRACES}: PURSER_TRACES must be a directory with openb_*.csv of the FGD simulator's data and "
    "orders/<workload>/seedNN.txt.gz with its event orders"
)


def there() -> list[tuple[str, int]]:
    """The workloads and seeds that can be replayed."""
    orders = sorted(TRACES.glob("orders/*/seed*.txt.gz"))
    return [(path.parent.name, int(path.name.removeprefix("seed").removesuffix(".txt.gz"))) for path in orders]


@lru_cache(2)
def lists(workload: str) -> SimWorkload:
    return read_lists(TRACES / "openb_node_list_gpu_node.csv", TRACES / f"openb_pod_list_{workload}.csv")


def order(workload: str, seed: int) -> Order:
    return read_order(TRACES / "orders" / workload / f"seed{seed}.txt.gz", lists(workload))


@lru_cache(64)
def run(workload: str, seed: int, policy: str, learns: bool = False) -> ArrivalsResult:
    return arrivals.run(lists(workload), order(workload, seed), policy, learns)


def allocation(found: ArrivalsResult) -> tuple[float, float]:
    """Percent of all GPUs that pods hold once they have asked for 100, and for 130 percent."""
    at = found.rows.columns((100, 130), found.rows.allocation_percent)
    return round(at[100], 2), round(at[130], 2)


def fragmentation(found: ArrivalsResult) -> float:
    """Percent of all GPUs, once pods have asked for 100 percent."""
    return round(found.rows.columns((100,), found.rows.fragmentation_percent)[100], 2)
