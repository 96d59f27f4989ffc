"""The order of events: read from a file, or drawn.

A file has lines ``p <pod>``, arrivals in order, where ``<name>-tuned-<i>`` is a repeat of pod ``<name>``; and lines
``n <rank>-<node>``, which give each node its place among equally good ones. ``#`` begins a comment.

Drawn, as in the evaluation of FGD: all pods in random order, then pods sampled from the whole list until together they
ask for so many percent of the GPUs; where the list itself asks for more, pods drawn from it do not come.
"""

import math
import random
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from purser.simulator.files import read_text
from purser.simulator.problems import FileProblems
from purser.simulator.workload import Order, SimWorkload, common_memory_mib, demand_milli, mig_kinds

_REPEAT = re.compile(r"(.+)-tuned-[0-9]+")
_NODE = re.compile(r"([0-9]{1,9})-(.+)")
_DIGITS = re.compile(r"[0-9]{1,9}")


def read_order(path: Path, workload: SimWorkload, seed: int | None = None) -> Order:
    """An order from a file. The seed, for policies that choose at random, is the number in its name where none is
    given. Raises `InputError`.
    """
    problems = FileProblems(path)
    pod_of = {pod.name: place for place, pod in enumerate(workload.pods)}
    node_of = {node.name: place for place, node in enumerate(workload.nodes)}
    pods: list[int] = []
    ranks: dict[int, int] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        kind, _, name = line.rstrip().partition(" ")
        if kind == "p":
            _add_pod(pods, pod_of, name, problems, number)
        elif kind == "n":
            _add_rank(ranks, node_of, name, problems, number)
        elif kind and not kind.startswith("#"):
            problems.add(
                number, 1, f"the line starts with {kind[:20]!r}: must be 'p <pod>', 'n <rank>-<node>' or '# comment'"
            )
    missing = [node.name for place, node in enumerate(workload.nodes) if place not in ranks]
    if missing and ranks:
        problems.add(1, 1, f"the file has no rank for {len(missing)} of the listed nodes, for example {missing[0]}")
    if not pods and not problems.found:
        problems.add(1, 1, "the file has no pods")
    problems.raise_if_any()
    in_order = tuple(ranks.get(place, place) for place in range(len(workload.nodes)))
    return Order(path.name, _seed(path) if seed is None else seed, np.array(pods, np.int64), in_order)


def _add_pod(pods: list[int], pod_of: dict[str, int], name: str, problems: FileProblems, line: int) -> None:
    place = pod_of.get(name)
    if place is None and (repeat := _REPEAT.fullmatch(name)):
        place = pod_of.get(repeat.group(1))
    if place is None:
        problems.add(line, 3, f"no listed pod is named {name!r}")
    else:
        pods.append(place)


def _add_rank(ranks: dict[int, int], node_of: dict[str, int], word: str, problems: FileProblems, line: int) -> None:
    match = _NODE.fullmatch(word)
    if match is None:
        problems.add(line, 3, f"{word!r} is not a node with a rank: must be <rank>-<node>")
        return
    place = node_of.get(match.group(2))
    if place is None:
        problems.add(line, 3 + match.start(2), f"no listed node is named {match.group(2)!r}")
    elif place in ranks:
        problems.add(line, 3 + match.start(2), f"node {match.group(2)!r} already has a rank")
    else:
        ranks[place] = int(match.group(1))


def _seed(path: Path) -> int:
    match = _DIGITS.search(path.name)
    return int(match.group()) if match else 0


def draw_order(workload: SimWorkload, seed: int, load_percent: float) -> Order:
    """An order drawn from a seed, of pods that ask for so much of all GPUs."""
    rng = random.Random(seed)
    demands = _demands(workload)
    target = load_percent / 100 * workload.capacity_milli
    pods = list(range(len(workload.pods)))
    rng.shuffle(pods)
    total = sum(demands)
    left_out = 0
    while total > target and len(pods) > 1:
        total -= demands[pods.pop(rng.randrange(len(pods)))]
        left_out += 1
    pods += _sample_pods(demands, target - total, rng)
    return Order(f"seed {seed}", seed, np.array(pods, np.int64), draw_ranks(workload, rng), left_out=left_out)


MAX_ORDER_TRIES = 100
"""Pods in a row that ask for too much before the load is taken as reached."""


def _sample_pods(demands: list[int], room: float, rng: random.Random) -> list[int]:
    """Pods from the whole list that together ask for no more than there is room."""
    pods: list[int] = []
    tries = 0
    while tries < MAX_ORDER_TRIES:
        pod = rng.randrange(len(demands))
        tries += 1
        if 0 < demands[pod] <= room:
            tries = 0
        if demands[pod] <= room:
            pods.append(pod)
            room -= demands[pod]
    return pods


def draw_ranks(workload: SimWorkload, rng: random.Random) -> tuple[int, ...]:
    """The nodes' places among equals, drawn."""
    places = list(range(len(workload.nodes)))
    rng.shuffle(places)
    return tuple(places)


def _demands(workload: SimWorkload) -> list[int]:
    memory = common_memory_mib(workload.nodes)
    kinds = mig_kinds(workload.nodes)
    return [demand_milli(pod.shape, memory, kinds) for pod in workload.pods]


TIMES_REPEATED = 12
"""With a load and departures: so that hours lie between the first arrivals, on an empty fleet, and the last."""


def timed_order(workload: SimWorkload, seed: int, load_percent: float | None = None) -> Order:
    """Pods come at the times that the list says.

    With a load: the list's times twelve times over, each time but the first for pods drawn from the list, compressed so
    that on average this percentage of the GPUs would be requested at a time if no pod waited. Run times stay as they
    are.
    """
    rng = random.Random(seed)
    arrives = np.array([pod.arrives_s or 0.0 for pod in workload.pods])
    pods = np.argsort(arrives, kind="stable")
    times = arrives[pods] - arrives.min()
    end_s = None
    if load_percent is not None:
        pods, times = _repeated(pods, times, rng)
        times = times / find_speed(workload, pods, times, load_percent)
        end_s = float(times[-1])  # after it all would only leave
    return Order(f"seed {seed}", seed, pods, draw_ranks(workload, rng), times, end_s)


Places = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


def _repeated(pods: Places, times: Times, rng: random.Random) -> tuple[Places, Times]:
    sampled = [np.array(rng.choices(range(len(pods)), k=len(pods)), np.int64) for _ in range(TIMES_REPEATED - 1)]
    span = float(times[-1]) + float(times[-1]) / max(len(times) - 1, 1)
    return np.concatenate([pods, *sampled]), np.concatenate([times + span * n for n in range(TIMES_REPEATED)])


def find_speed(workload: SimWorkload, pods: Places, times: Times, load_percent: float) -> float:
    """The factor by which arrivals have to be faster, so that on average this percentage of the GPUs would be requested
    at a time if no pod waited. Load grows with speed, so it is found by bisection.
    """
    demands = np.array(_demands(workload), np.float64)[pods]
    lasts = np.array([pod.lasts_s or 0.0 for pod in workload.pods])[pods]
    slow, fast = 1e-6, 1e9
    speed = 1.0
    for _ in range(100):
        speed = math.sqrt(slow * fast)
        end = float(times[-1]) / speed
        load = float((demands * np.minimum(lasts, end - times / speed)).sum()) / max(end, 1e-9)
        slow, fast = (speed, fast) if load < load_percent / 100 * workload.capacity_milli else (slow, speed)
    return speed
