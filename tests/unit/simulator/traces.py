"""Where the public traces are, for tests that read them in place: they are no part of the project."""

import os
from pathlib import Path

TRACES = Path(os.environ.get("PURSER_TRACES", Path(__file__).parents[4] / "shared" / "traces"))
THERE = (TRACES / "orders").is_dir()
MISSING = (
    f"no traces at {TRACES}: PURSER_TRACES must be a directory with openb_*.csv and orders/<workload>/seedNN.txt.gz"
)
NODES = TRACES / "openb_node_list_gpu_node.csv"


def pods(workload: str) -> Path:
    return TRACES / f"openb_pod_list_{workload}.csv"


def order(workload: str, seed: int) -> Path:
    return TRACES / "orders" / workload / f"seed{seed}.txt.gz"
