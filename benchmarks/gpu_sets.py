"""How long a best-effort GPU set takes, on 8, 16 and 72 GPUs, beside the budgets and beside go-gpuallocator.

    python benchmarks/gpu_sets.py [--asks 60] [--original DIR] [--go GO]

"unknown" is the first question ever about a topology (nothing is kept from before); "known" is the same question once
more. Each question is asked three times and its shortest time counts; on a busy machine even that holds what others
take, so processor time is told beside it.
With the source of go-gpuallocator in DIR it is built in a temporary copy, with the driver in benchmarks/go, and timed
in the same run: once where it takes long. The two must agree.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import NamedTuple

from purser.core.interconnect import Ask, Topology, best_effort, matrix, memo, table

Pair = tuple[int, int]
BUDGET_MS = {8: 0.2, 16: 5.0}
ORIGINAL_BUDGET_MS = 300


class Machine(NamedTuple):
    name: str
    count: int
    links: dict[Pair, tuple[int, int]]
    """Per pair the score of the PCIe level and the NVLinks."""

    @property
    def topology(self) -> Topology:
        places = tuple(range(self.count))
        pairs = {pair: pcie + 100 * nvlinks for pair, (pcie, nvlinks) in self.links.items()}
        return Topology(tuple(map(str, places)), places, matrix(self.count, pairs))


def linked(name: str, count: int, of: Callable[[int, int], tuple[int, int]]) -> Machine:
    return Machine(name, count, {(i, j): of(i, j) for i, j in combinations(range(count), 2)})


def tree(i: int, j: int) -> int:
    """Pairs on a switch, quads behind two, octets on a CPU."""
    return 50 if i // 2 == j // 2 else 40 if i // 4 == j // 4 else 20 if i // 8 == j // 8 else 10


def dgx1_volta(i: int, j: int) -> tuple[int, int]:
    double = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
    single = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
    return 50 if i // 2 == j // 2 else 30 if i // 4 == j // 4 else 10, ((i, j) in single) + 2 * ((i, j) in double)


def machines() -> list[Machine]:
    random = Random(1)
    return [
        linked("DGX-1V", 8, dgx1_volta),
        linked("8, NVSwitch", 8, lambda i, j: (tree(i, j), 18)),
        linked("8, plain PCIe", 8, lambda i, j: (tree(i, j), 0)),
        linked("DGX-2-like", 16, lambda i, j: (tree(i, j), 6)),
        linked("16, NVSwitch, all equal", 16, lambda i, j: (10, 18)),
        linked("16, plain PCIe", 16, lambda i, j: (tree(i, j), 0)),
        linked("16, links at random", 16, lambda i, j: (10 * random.randint(1, 6), random.randint(0, 3))),
    ]


def asks(machine: Machine, size: int, many: int) -> Iterator[Ask]:
    """All GPUs first; then any of them, in order and in disorder, with required ones and without."""
    random = Random(size)
    places = range(machine.count)
    yield Ask(tuple(places), size)
    for number in range(many):
        available = random.sample(places, random.randint(size, machine.count) if number % 3 else machine.count)
        required = random.sample(available, random.randint(1, min(size, 3))) if number % 4 > 1 else ()
        yield Ask(tuple(available if number % 2 else sorted(available)), size, tuple(required))


def forget() -> None:
    """As if this topology had never been seen."""
    for kept in (memo.memo_of, memo._subset_scores, table.table_of, table._subset_scores):
        kept.cache_clear()


class Took(NamedTuple):
    ms: float
    processor_ms: float


def shortest(node: Topology, ask: Ask, *, known: bool) -> Took:
    took = []
    for _ in range(3):
        if not known:
            forget()
        start, start_processor = time.perf_counter(), time.process_time()
        best_effort(node, ask)
        took.append(Took(1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - start_processor)))
    return Took(min(each.ms for each in took), min(each.processor_ms for each in took))


def budgets(many: int) -> None:
    columns = "median | worst | worst, processor time"
    print(f"| GPUs | questions | budget | unknown: {columns} | known: {columns} |")
    print("|---" * 9 + "|")
    for machine in machines():
        node, sizes = machine.topology, range(1, machine.count + 1)
        questions = [ask for size in sizes for ask in asks(machine, size, many)]
        cells = [judged(node, questions, known=known) for known in (False, True)]
        print(
            f"| {machine.name} | {len(questions)} | {BUDGET_MS[machine.count]} ms | {' | '.join(cells)} |", flush=True
        )


def judged(node: Topology, questions: Sequence[Ask], *, known: bool) -> str:
    took = [(shortest(node, ask, known=known), ask.size) for ask in questions]
    median = statistics.median(each.ms for each, _ in took)
    worst, size = max((each.ms, size) for each, size in took)
    processor = max(each.processor_ms for each, _ in took)
    return f"{median:.3f} ms | {worst:.2f} ms (size {size}) | {processor:.2f} ms"


def rack() -> None:
    """72 GPUs, which are not divided up: NVLinks all equal, trays of four on PCIe."""
    node = linked("NVL72", 72, lambda i, j: (30 if i // 4 == j // 4 else 10, 18)).topology
    print("| 72 GPUs, size | time | score | no set scores more than |")
    print("|---|---|---|---|")
    for size in (1, 2, 4, 6, 8, 16, 36, 64):
        ask = Ask(tuple(range(72)), size)
        found = best_effort(node, ask)
        bound = found.at_most if found.at_most is not None else node.score(found.devices)
        print(f"| {size} | {shortest(node, ask, known=True).ms:.2f} ms | {node.score(found.devices)} | {bound} |")


def first_ever_ms(count: int, size: int) -> float:
    """The very first question in a fresh process: with the import of numpy for more than 8 GPUs."""
    code = f"""
import time
from purser.core.interconnect import Ask, Topology, best_effort, matrix
places = tuple(range({count}))
node = Topology(tuple(map(str, places)), places, matrix({count}, {{(i, j): i + j for j in places for i in range(j)}}))
start = time.perf_counter()
best_effort(node, Ask(places, {size}))
print(1e3 * (time.perf_counter() - start))
"""
    ran = (subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(3))
    return min(float(each.stdout) for each in ran)


def built(source: Path, go: str, into: Path) -> Path:
    copy = into / "source"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git"))
    driver = copy / "purser-driver"
    driver.mkdir()
    shutil.copy(Path(__file__).parent / "go" / "main.go", driver)
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOCACHE": str(into / "cache")}
    subprocess.run([go, "build", "-o", str(into / "driver"), "./purser-driver"], cwd=copy, env=environment, check=True)
    return into / "driver"


def original(driver: Path, machine: Machine, ask: Ask) -> tuple[float, tuple[int, ...]]:
    """Its time in milliseconds and its set."""
    question = {
        "devices": machine.count,
        "links": [[i, j, pcie, nvlinks] for (i, j), (pcie, nvlinks) in machine.links.items()],
        "asks": [{"available": ask.available, "required": ask.required, "size": ask.size}],
        "budget_ms": ORIGINAL_BUDGET_MS,
    }
    ran = subprocess.run([str(driver)], input=json.dumps(question), capture_output=True, text=True, check=True)
    answer = json.loads(ran.stdout)
    return answer["nanoseconds"] / 1e6, tuple(answer["devices"])


def beside_the_original(driver: Path) -> None:
    for machine in machines():
        if machine.name not in ("DGX-1V", "DGX-2-like", "16, links at random"):
            continue
        node = machine.topology
        print(f"\n{machine.name}, all GPUs available\n")
        print("| size | go-gpuallocator | Purser, unknown | ratio | Purser, known | ratio | the same set |")
        print("|---|---|---|---|---|---|---|")
        for size in range(1, machine.count + 1):
            ask = Ask(tuple(range(machine.count)), size)
            theirs, chosen = original(driver, machine, ask)
            first, known = shortest(node, ask, known=False).ms, shortest(node, ask, known=True).ms
            same = "yes" if chosen == best_effort(node, ask).devices else f"no: {list(chosen)}"
            print(
                f"| {size} | {theirs:,.4f} ms | {first:.3f} ms | {ratio(theirs, first)} | {known:.4f} ms |"
                f" {ratio(theirs, known)} | {same} |",
                flush=True,
            )


def ratio(theirs: float, ours: float) -> str:
    return f"{theirs / ours:,.0f}" if theirs > 10 * ours else f"{theirs / ours:.2g}"


def agreement(driver: Path, many: int) -> None:
    """On questions that the original answers quickly and without its slips: every set must be the same."""
    same = differ = 0
    for machine in machines():
        if machine.count > 8:
            continue
        for size in range(1, 9):
            for ask in asks(machine, size, many):
                _, chosen = original(driver, machine, ask)
                if -1 in chosen or chosen == best_effort(machine.topology, ask).devices:
                    same += 1
                else:
                    differ += 1
                    print("differs:", machine.name, ask, chosen)
    print(f"\n8 GPUs: {same} of {same + differ} questions answered alike")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asks", type=int, default=60, help="questions per machine and size")
    parser.add_argument("--original", type=Path, help="the source of go-gpuallocator")
    parser.add_argument("--go", default="go", help="the go command, 1.20 or newer")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    best_effort(machines()[-1].topology, Ask(tuple(range(16)), 8))  # numpy is imported now, once per process
    budgets(options.asks)
    print(
        f"\nFirst question of a process: 8 GPUs {first_ever_ms(8, 3):.2f} ms, 16 GPUs {first_ever_ms(16, 6):.0f} ms\n"
    )
    rack()
    if options.original:
        with tempfile.TemporaryDirectory() as folder:
            driver = built(options.original, options.go, Path(folder))
            agreement(driver, 10)
            beside_the_original(driver)
    print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
