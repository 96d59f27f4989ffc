"""What the decision log costs: bytes and microseconds for each call, on a cluster of so many nodes with eight GPUs.

    python benchmarks/decision_log.py [--nodes 1000] [--pods 2000]

Pods of five sizes come and go. A call is a ``filter`` of all nodes or a ``bind``. ``request``: what the call waits for,
which is to note what changed and what was decided, and to hand that to the thread that writes. ``thread``: what that
thread takes for it, measured by itself: making records of the notes, and encoding them. ``record``: the same of one
record. kube-scheduler names the nodes in another order each time (``shuffled``), or in the same. The last column is the
decision itself. Medians, but for the bytes and records of a call, which are means.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from purser.core.decisions import encode
from purser.core.decisions.naming import LoggedNames
from purser.core.decisions.notes import DecisionInputs, Note, bytes_held
from purser.core.decisions.recording import Recording
from purser.core.decisions.transcript import Transcript
from purser.core.fleet import Fleet, FreeResources
from purser.core.grant.quota import UNLIMITED
from purser.core.model import ContainerKind, ContainerRequest, Device, DeviceRequest, NodeInventory, PodRequest
from purser.core.placement import Evaluator, Placement, best, kernels, to_grant
from purser.core.placement.mix import LearnedMix
from purser.core.placement.shape import largest_shape
from purser.scheduler.decision_log import LogFiles
from purser.scheduler.metrics import SchedulerMetrics

SIZES = ((1, 10_000), (1, 20_000), (1, 40_000), (2, 81_920), (8, 81_920))
CREATED = "2026-01-01T00:00:00Z"


def requests(pods: int, chance: random.Random) -> list[PodRequest]:
    """Pods of the sizes, at random."""
    found = []
    for number in range(pods):
        count, memory = chance.choice(SIZES)
        asked = ContainerRequest("main", ContainerKind.APP, DeviceRequest(count, memory, None, 0))
        uid = f"{chance.randrange(1 << 32):08x}-0000-4000-8000-{number:012}"
        found.append(PodRequest(uid, "team", f"train-{number}", (asked,), cpu_milli=4000, memory_mib=8192))
    return found


def fleet_of(nodes: int) -> Fleet:
    """Nodes of eight GPUs each."""
    fleet = Fleet()
    for node in (f"node-{number:05}" for number in range(nodes)):
        devices = (Device(f"GPU-{node}-4e7a-b5d1-{i:012}", i, "NVIDIA H100", 81_920, slots=10) for i in range(8))
        fleet.set_inventory(NodeInventory(node, tuple(devices)))
        fleet.set_free_resources(node, FreeResources(128_000, 1 << 20, 110))
    return fleet


class Costs:
    """Of the calls of one kind, each by itself."""

    def __init__(self) -> None:
        self.decision_s: list[float] = []
        self.request_s: list[float] = []
        self.thread_s: list[float] = []
        self.sizes: list[int] = []
        self.records: list[int] = []

    def add(self, transcript: Transcript, notes: list[Note], decision_s: float, request_s: float) -> None:
        """A call; what the thread takes for it is measured here."""
        self.decision_s.append(decision_s)
        self.request_s.append(request_s)
        begun = time.perf_counter()
        sizes = [len(encode(record)) for record in transcript.records(notes)]
        self.thread_s.append(time.perf_counter() - begun)
        self.sizes.append(sum(sizes))
        self.records.append(len(sizes))

    def row(self) -> str:
        """As it is printed."""
        all_s = (self.request_s, self.thread_s, self.decision_s)
        request_us, thread_us, decision_us = (1e6 * statistics.median(each) for each in all_s)
        records = statistics.mean(self.records)
        return (
            f"{statistics.mean(self.sizes):6.0f} B {records:4.1f} {request_us:8.1f} us {thread_us:8.1f} us "
            f"{thread_us / records:8.1f} us {decision_us:9.1f} us"
        )


def measure(nodes: int, pods: int, folder: Path, *, is_shuffled: bool) -> None:
    """A row for each kind of call, and one for a file's beginning. A log is written to the folder meanwhile."""
    chance, fleet, mix = random.Random(1), fleet_of(nodes), LearnedMix()
    evaluator, names = Evaluator(fleet, mix=mix), fleet.names()
    recording, transcript, again = (
        Recording(fleet, evaluator, mix),
        Transcript(LoggedNames()),
        Transcript(LoggedNames()),
    )
    evaluator.refresh()
    files = LogFiles(folder, "here", 2, SchedulerMetrics())
    first = recording.start(0.0)
    files.begin(transcript.records(first))
    beginning = [len(encode(record)) for record in again.records(first)]
    costs = {"filter": Costs(), "bind": Costs()}

    def log(verb: str, notes: list[Note], begun: float, decided: float) -> None:
        files.add(transcript.records(notes), 1, sum(map(bytes_held, notes)))
        costs[verb].add(again, notes, decided - begun, time.perf_counter() - decided)

    running: list[str] = []
    for number, request in enumerate(requests(pods, chance)):
        mix.arrived(largest_shape(request))
        if is_shuffled:
            chance.shuffle(names)
        asked = DecisionInputs(request, UNLIMITED, {}, CREATED)
        begun = time.perf_counter()
        found = evaluator.evaluate(request, names)
        decided = time.perf_counter()
        log("filter", recording.judged(float(number), asked, found, "filter"), begun, decided)
        node = best(found)
        if node is not None:
            begun = time.perf_counter()
            placed = evaluator.place(node, request)
            decided = time.perf_counter()
            log("bind", recording.placed(float(number), asked, node, placed), begun, decided)
            state = fleet.node(node)
            if isinstance(placed, Placement) and state is not None:
                fleet.ledger.reserve(to_grant(placed, request, state.inventory))
                running.append(request.uid)
        if len(running) > nodes * 4:
            fleet.ledger.release(running.pop(chance.randrange(len(running))))
    files.stop()
    order = "shuffled" if is_shuffled else "in order"
    for verb, found_costs in costs.items():
        print(f"{nodes:6} {order:8} {verb:7} {found_costs.row()}")
    print(f"{'':15} a file's beginning: {sum(beginning) / 1e6:.2f} MB", flush=True)


def main() -> None:
    """Measure with nodes in order, and shuffled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1000, 5000])
    parser.add_argument("--pods", type=int, default=2000)
    options = parser.parse_args()
    kernels.use("numpy")
    print(" nodes  order   call      size records  request      thread      record      decision")
    for nodes in options.nodes:
        for is_shuffled in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                measure(nodes, options.pods, Path(folder), is_shuffled=is_shuffled)


if __name__ == "__main__":
    main()
