"""What placement costs: a simulation, one decision, and changes of the fleet, with numpy alone and with numba.

    python benchmarks/placement.py [--traces DIR] [--nodes 100 1000 ...] [--quick]

"Simulation" is the published default workload (``openb_*.csv`` and, if there, ``orders/`` in DIR; without DIR the
demonstration that ships with Purser), a process for each row, so that the peak of memory is that row's own.

"A decision" is to find the node and its GPUs and to take them, on nodes with 8 GPUs that are more than half full, for
pods drawn from the demonstration's 49 shapes; after each, one pod somewhere else ends. Policies are given the mix of
pods; "learning" they go by those that have arrived, as in a cluster; "new" none had arrived before. "unseen" is the
first pod of a shape: every node is scored. Beside it the bound, one maximum over as many numbers as there are nodes,
and a scheduler that loops over nodes in Python.

Times, pods/s too, are the processor's: what else the machine does counts little.

"Changes" are of the arrays, and of the live scheduler's fleet of inventories and grants, which the arrays follow.
"""

import argparse
import gc
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter, thread_time
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from purser.core.fleet import Fleet, NodeState
from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts, Take
from purser.core.fleet.live import LiveArrays, node_facts
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    GpuPolicy,
    Grant,
    NodeInventory,
    NodePolicy,
    PodRequest,
)
from purser.core.placement import kernels
from purser.core.placement.granted import DeviceAssignment
from purser.core.placement.mix import LearnedMix, Mix
from purser.core.placement.place import decide
from purser.core.placement.policies import Setting, policy
from purser.core.placement.shape import PodShape, resources_taken, shape_of, view
from purser.core.placement.table import ShapeTable, place
from purser.core.policy.settings import PolicySettings
from purser.simulator import demo
from purser.simulator.openb import read_lists
from purser.simulator.orders import draw_order, read_order
from purser.simulator.parallel import Task, run_all
from purser.simulator.results import Run
from purser.simulator.workload import PODS_PER_NODE, SLOTS, Order, SimWorkload

_T = TypeVar("_T")

KERNELS = ("numpy", "numba")
PODS_PER_SECOND = {"numpy": 5_000, "numba": 20_000}
"""Budget for ``fragmentation``."""
MEMORY_MB = 300
DECISION_MS = 1.0
"""Budget at 10 000 nodes, p50."""

GPUS = 8
MODELS = (("H100", 112, 1024), ("A100", 96, 768), ("A10", 128, 512), ("T4", 96, 384))
"""Model, CPUs, memory in GiB: in turn."""
PODS_TRIED, EMPTY_EVERY = 9, 10
"""Per node, when the fleet is filled; nodes left empty."""
TOLD, LEARNING, ANEW = "", ", learning", ", new"
"""What a policy knows of the mix of pods: all; what has arrived; what has arrived since it was started just now."""
ARRIVED_BEFORE = 8_000
"""Pods that a learning policy has seen: from then on its mix is renewed as seldom as ever."""
UNSEEN_EVERY = 40
LOOPED = 1_000
"""Nodes for the loop in Python."""
BINPACK = PolicySettings(NodePolicy.BINPACK, (GpuPolicy.BINPACK,))


def main() -> None:
    options = _options()
    kernels.use(os.environ.get(kernels.VARIABLE, ""))
    if options.part:
        PARTS[options.part](options)
        return
    before = os.getloadavg()
    print(f"{_machine()}; load average {_load(before)} at the beginning", flush=True)
    titles = {"simulate": simulate_title, "decide": decide_title, "loop": loop_title, "change": change_title}
    for part, title in titles.items():
        title(options)
        for arguments, kernel in _processes(part, options):
            command = [sys.executable, __file__, *sys.argv[1:], "--part", part, *arguments]
            subprocess.run(command, env={**os.environ, kernels.VARIABLE: kernel}, check=True)
    print(f"\nload average {_load(os.getloadavg())} at the end; this benchmark keeps one processor busy")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, metavar="DIR", help="the published traces")
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1_000, 5_000, 10_000, 20_000])
    parser.add_argument("--quick", action="store_true", help="few decisions on at most 1 000 nodes: does it run at all")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--policy", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.nodes = sorted({min(nodes, LOOPED) for nodes in options.nodes})
    return options


def _processes(part: str, options: argparse.Namespace) -> list[tuple[tuple[str, ...], str]]:
    """Arguments and kernel of each."""
    kernels = [kernel for kernel in KERNELS if kernel in ("numpy", *_installed("numba"))]
    if part in ("loop", "change"):
        return [((), kernels[-1])]
    policies = ("fragmentation", "purser") if part == "simulate" else ("binpack", "fragmentation", "purser")
    return [(("--policy", name), kernel) for name in policies for kernel in kernels]


def _machine() -> str:
    versions = [f"{name} {number}" for name in ("numpy", "numba") for number in _installed(name).values()]
    return ", ".join([f"{os.cpu_count()} processors", f"CPython {platform.python_version()}", *versions])


def _installed(name: str) -> dict[str, str]:
    try:
        return {name: version(name)}
    except PackageNotFoundError:
        return {}


def _load(averages: tuple[float, float, float]) -> str:
    return ", ".join(f"{average:.2f}" for average in averages)


# --- a simulation


def simulate_title(options: argparse.Namespace) -> None:
    workload, _ = _workload(options.traces)
    print(f"\nSimulation of {workload.title}: {len(workload.nodes)} nodes, {workload.gpus} GPUs")
    print(f"{'policy':<24}{'kernels':<9}{'pods':>7}{'pods/s':>9}{'budget':>9}{'peak MB':>9}{'budget':>9}", flush=True)


def simulate(options: argparse.Namespace) -> None:
    workload, order = _workload(options.traces)
    kernel = os.environ[kernels.VARIABLE]
    for learns in (False, True):
        clock, processor = perf_counter(), thread_time()
        (run,) = run_all(workload, [Task(options.policy, order, learns)], 1, lambda place, events: None)
        assert isinstance(run, Run)
        speed = run.pods_per_second * (perf_counter() - clock) / (thread_time() - processor)
        title = options.policy + (", learning" if learns else "")
        told = options.policy == "fragmentation" and not learns
        print(
            f"{title:<24}{kernel:<9}{run.pods:7}{speed:9,.0f}"
            f"{PODS_PER_SECOND[kernel] if told else '':>9}{_peak_mb():9.0f}{MEMORY_MB:9}",
            flush=True,
        )


def _workload(traces: Path | None) -> tuple[SimWorkload, Order]:
    if traces is None:
        workload = demo.workload()
        return workload, draw_order(workload, 42, 130)
    workload = read_lists(traces / "openb_node_list_gpu_node.csv", traces / "openb_pod_list_default.csv")
    published = traces / "orders" / "default" / "seed42.txt.gz"
    return workload, read_order(published, workload) if published.exists() else draw_order(workload, 42, 130)


def _peak_mb() -> float:
    """Of this process. The high-water mark that ``getrusage`` tells begins with its parent's."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


# --- one decision


class Running(NamedTuple):
    """A pod on the fleet."""

    row: int
    gpus: tuple[int, ...]
    taken: Take


def decide_title(options: argparse.Namespace) -> None:
    print(f"\nA decision, nodes with {GPUS} GPUs; the budget is {DECISION_MS:.0f} ms at 10 000 nodes, p50")
    unseen = f"{'unseen: p50':>13}{'worst ms':>9}"
    print(f"{'policy':<24}{'kernels':<9}{'nodes':>7}{'p50 ms':>9}{'p99 ms':>9}{'worst ms':>9}{unseen}", flush=True)


def decide_part(options: argparse.Namespace) -> None:
    shapes = [pod.shape for pod in demo.workload().pods]
    for knows in (TOLD, LEARNING, ANEW) if options.policy != "binpack" else (TOLD,):
        for nodes in options.nodes:
            known, unseen = decisions(shapes, nodes, options.policy, knows, 200 if options.quick else 2_000)
            title = options.policy + knows
            print(f"{title:<24}{os.environ[kernels.VARIABLE]:<9}{nodes:7}{_p50_p99_worst(known)}", end="")
            print(f"{1000 * statistics.median(unseen):13.3f}{1000 * max(unseen):9.3f}", flush=True)


def decisions(
    shapes: Sequence[PodShape], nodes: int, words: str, knows: str, count: int
) -> tuple[list[float], list[float]]:
    """Seconds of each decision, and of the first ones about shapes that were never seen."""
    drawn = random.Random(7)
    fleet = empty(nodes)
    running = fill(fleet, shapes, drawn)
    learnt = LearnedMix()
    source = Mix.of(Counter(shapes)) if knows == TOLD else learnt
    table = ShapeTable(fleet, policy(words, setting=Setting(source)))
    for shape in drawn.choices(shapes, k=1 if knows == ANEW else ARRIVED_BEFORE):
        learnt.arrived(shape)
    for shape in set(shapes):  # kernels are compiled when they are first called
        place(table, shape)
    _settle()
    known, unseen = [], []
    for number in range(count):
        shape = drawn.choice(shapes)
        known.append(_seconds(lambda shape=shape: _decide(table, shape, learnt, running)))
        if running:
            _end(fleet, running, drawn)
        if not number % UNSEEN_EVERY:
            like_no_other = msgspec.structs.replace(shape, cpu_milli=shape.cpu_milli + 1 + number)
            unseen.append(_seconds(lambda shape=like_no_other: place(table, shape)))
    return known, unseen


def _decide(table: ShapeTable, shape: PodShape, learnt: LearnedMix, running: list[Running]) -> None:
    learnt.arrived(shape)
    found = place(table, shape)
    if found is not None:
        row, gpus = found
        taken = resources_taken(table.fleet, shape, row, gpus)
        table.fleet.take(row, gpus, taken)
        running.append(Running(row, gpus, taken))


def _end(fleet: FleetArrays, running: list[Running], drawn: random.Random) -> None:
    place = drawn.randrange(len(running))
    running[place], running[-1] = running[-1], running[place]
    fleet.release(*running.pop())


def node(number: int) -> FleetNodeFacts:
    model, cpus, memory_gib = MODELS[number % len(MODELS)]
    gpus = (GpuFacts(model, demo.WHOLE_MILLI, SLOTS),) * GPUS
    return FleetNodeFacts(f"node-{number:05}", gpus, 1000 * cpus, 1024 * memory_gib, PODS_PER_NODE)


def empty(nodes: int) -> FleetArrays:
    fleet = FleetArrays()
    for number in range(nodes):
        fleet.put_node(node(number))
    return fleet


def fill(fleet: FleetArrays, shapes: Sequence[PodShape], drawn: random.Random) -> list[Running]:
    """Some pods to each node but every tenth, to the first GPUs that take them."""
    running: list[Running] = []
    for _ in range(PODS_TRIED):
        rows_of: dict[PodShape, list[int]] = {}
        for row in range(len(fleet)):
            if row % EMPTY_EVERY:
                rows_of.setdefault(drawn.choice(shapes), []).append(row)
        for shape, rows in rows_of.items():
            found = view(fleet, shape, np.array(rows, np.intp))
            for column in found.fits.nonzero()[0].tolist():
                gpus = tuple(found.takes[:, column].nonzero()[0][: shape.gpu_count].tolist())
                running.append(Running(rows[column], gpus, resources_taken(fleet, shape, rows[column], gpus)))
                fleet.take(*running[-1])
    return running


# --- a loop, and the bound


def loop_title(options: argparse.Namespace) -> None:
    print(f"\nThe same decision, binpack: {LOOPED} nodes one by one in Python, from arrays, and the bound")
    print(f"{'':<24}{'':<9}{'nodes':>7}{'p50 ms':>9}{'p99 ms':>9}{'worst ms':>9}", flush=True)


def loop(options: argparse.Namespace) -> None:
    fleet = live(LOOPED)
    states = list(fleet)
    asked = DeviceRequest(1, memory_mib=16_384, cores_percent=30)
    request = PodRequest("u", "default", "p", (ContainerRequest("c", ContainerKind.APP, asked),))
    shape = shape_of(request)
    assert shape is not None
    arrays = FleetArrays()
    for state in states:
        arrays.put_node(node_facts(state))

    def one_by_one() -> float:
        return max(fullness(state) for state in states if isinstance(decide(state, request, BINPACK), DeviceAssignment))

    table = ShapeTable(arrays, policy("binpack"))

    def from_arrays() -> float:
        found = place(table, shape)
        assert found is not None
        return float(table.scores(shape)[found[0]])

    assert math.isclose(one_by_one(), from_arrays())
    _settle()
    looped = [_seconds(one_by_one) for _ in range(5 if options.quick else 50)]
    changing = random.Random(7)
    decided = []
    for _ in range(200 if options.quick else 2_000):
        arrays.put_node(node_facts(states[changing.randrange(LOOPED)]))
        decided.append(_seconds(from_arrays))
    print(f"{'a loop over nodes':<33}{LOOPED:7}{_p50_p99_worst(looped)}")
    print(f"{'from arrays':<33}{LOOPED:7}{_p50_p99_worst(decided)}", end="")
    print(f"  {statistics.median(looped) / statistics.median(decided):,.0f} times faster")
    for nodes in options.nodes:
        numbers = np.random.default_rng(7).random(nodes)
        times = [_seconds(lambda numbers=numbers: [numbers.argmax() for _ in range(100)]) / 100 for _ in range(100)]
        print(f"{'bound: one maximum':<33}{nodes:7}{_p50_p99_worst(times, 4)}", flush=True)


def fullness(state: NodeState) -> float:
    """As the policy for arrays has it."""
    shares = (
        sum(getattr(one.usage, field) for one in state.devices)
        / sum(getattr(one.device, field) for one in state.devices)
        for field in ("slots", "cores_percent", "memory_mib")
    )
    return 100 / 3 * sum(shares)


# --- changes


def change_title(options: argparse.Namespace) -> None:
    print(f"\nChanges, nodes with {GPUS} GPUs: of one in microseconds, of all in milliseconds")
    print(f"{'':<62}" + "".join(f"{nodes:>18,}" for nodes in options.nodes) + "  nodes", flush=True)


def change(options: argparse.Namespace) -> None:
    columns = [{**changes_of_arrays(nodes), **changes_of_live(nodes)} for nodes in options.nodes]
    for title in columns[0]:
        print(f"{title:<62}" + "".join(f"{column[title]:>18}" for column in columns), flush=True)


def changes_of_arrays(nodes: int) -> dict[str, str]:
    facts = [node(number) for number in range(nodes)]
    joining = [node(number) for number in range(nodes, nodes + 50)]
    shape = PodShape(4000, 16_384, 1, 470)
    fleet = empty(nodes)
    taken = resources_taken(fleet, shape, 0, (0,))
    rows = random.Random(7).choices(range(nodes), k=2_000)
    _settle()
    return {
        "one, arrays: a pod takes a GPU (p50, p99)": _each(lambda row: fleet.take(row, (0,), taken), rows),
        "one, arrays: and gives it back": _each(lambda row: fleet.release(row, (0,), taken), rows),
        "one, arrays: an inventory changes": _each(fleet.put_node, [facts[row] for row in rows]),
        "one, arrays: a node joins, and all are sorted again": _each(lambda new: _join(fleet, new), joining),
        "all, arrays: from the facts of nodes": _ms(_seconds(lambda: empty(nodes))),
    }


def _join(fleet: FleetArrays, new: FleetNodeFacts) -> None:
    fleet.put_node(new)
    len(fleet.order)


def changes_of_live(nodes: int) -> dict[str, str]:
    fleets: list[Fleet] = []
    built = _seconds(lambda: fleets.append(live(nodes)))
    fleet = fleets[0]
    states = list(fleet)
    follower: list[LiveArrays] = []
    followed = _seconds(lambda: follower.append(LiveArrays(fleet)))
    arrays = follower[0]
    arrays.refresh()
    rows = random.Random(7).sample(range(nodes), min(nodes, 1_000))
    _settle()

    def renew(row: int) -> None:
        fleet.set_inventory(states[row].inventory)
        arrays.refresh()

    def reserve(row: int) -> None:
        fleet.ledger.reserve(grant(row, GPUS - 1, 20_000, f"another-{row}"))
        arrays.refresh()

    return {
        "one, live: an inventory changes, arrays follow": _each(renew, rows),
        "one, live: a grant is reserved, arrays follow": _each(reserve, rows),
        "all, live: from inventories and a grant on each to states": _ms(built),
        "all, live: from states to arrays": _ms(followed),
    }


def live(nodes: int) -> Fleet:
    """Inventories, and a grant on each node, no two alike."""
    fleet = Fleet()
    for number in range(nodes):
        devices = tuple(
            Device(
                f"GPU-{number}-{gpu}", gpu, MODELS[number % len(MODELS)][0], 81_920, slots=10, numa_nodes=(gpu // 4,)
            )
            for gpu in range(GPUS)
        )
        fleet.set_inventory(NodeInventory(f"node-{number:05}", devices))
        fleet.ledger.reserve(grant(number, number % (GPUS - 1), 1 + number % 60_000, f"pod-{number}"))
    fleet.classes()  # states follow the grants when they are asked for
    return fleet


def grant(number: int, gpu: int, memory_mib: int, uid: str) -> Grant:
    share = DeviceShare(f"GPU-{number}-{gpu}", memory_mib, 5)
    return Grant(uid, "default", uid, f"node-{number:05}", (ContainerGrant("c", ContainerKind.APP, (share,)),))


# --- times


def _seconds(what: Callable[[], object]) -> float:
    """Of the processor: what else runs on the machine meanwhile does not count."""
    started = thread_time()
    what()
    return thread_time() - started


def _each(what: Callable[[_T], object], of: Iterable[_T]) -> str:
    times = [_seconds(lambda one=one: what(one)) for one in of]
    p50, p99 = _percentiles(times)
    return f"{1e6 * p50:,.1f}, {1e6 * p99:,.1f}"


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    found = statistics.quantiles(seconds, n=100, method="inclusive")
    return found[49], found[98]


def _p50_p99_worst(seconds: list[float], digits: int = 3) -> str:
    return "".join(f"{1000 * value:9.{digits}f}" for value in (*_percentiles(seconds), max(seconds)))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f}"


def _settle() -> None:
    """As the scheduler does once it is filled: what lives long is no longer walked."""
    gc.collect()
    gc.freeze()


PARTS = {"simulate": simulate, "decide": decide_part, "loop": loop, "change": change}

if __name__ == "__main__":
    main()
