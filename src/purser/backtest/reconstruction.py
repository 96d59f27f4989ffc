"""A history as a workload of the simulator, and how far its replay is from what the history itself says."""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from purser.backtest.handovers import decision_latency, with_handovers
from purser.backtest.history import History, HistoryNode, HistoryPod
from purser.core.model import WHOLE_MILLI
from purser.simulator import departures
from purser.simulator.results import CURVE_POINTS, TimedRun, timed_result
from purser.simulator.workload import (
    Order,
    SimNodeChange,
    SimPod,
    SimWorkload,
    common_memory_mib,
    demand_milli,
    mig_kinds,
)

Floats = npt.NDArray[np.float64]

_SEED = 42
"""Of policies that choose at random."""


class Steps(msgspec.Struct, frozen=True):
    """What pods hold, in thousandths of a GPU, from each time on until the next."""

    time_s: Floats
    milli: Floats

    def at(self, time_s: Floats) -> Floats:
        """The values at these times; 0 before the first."""
        places = np.searchsorted(self.time_s, time_s, side="right") - 1
        return np.where(places >= 0, self.milli[np.maximum(places, 0)] if len(self.milli) else 0.0, 0.0)


class Course(msgspec.Struct, frozen=True):
    """How a history went, or a replay of it. Allocation is in percent of the GPUs that there were."""

    allocation_percent: float
    """Mean over time."""
    waited_mean_s: float
    waited_p50_s: float
    waited_p95_s: float
    waited_pods: int
    """Those that waited longer than a second."""
    unplaced: int
    """Those that wait at the end."""
    held: Steps
    timed: TimedRun | None = None
    """Of a replay: what reports of simulations are made of."""


class ReconstructionError(msgspec.Struct, frozen=True):
    """How far a replay with the policy that was in force is from what the source says, whichever way."""

    policy: str
    allocation_points: float
    """Of the mean over time, in percent of the GPUs."""
    moment_points: float
    """Of the allocation at one moment, on the mean over time."""
    waiting_percent: float | None
    """Of the mean waiting time; None where the source has none, and the replay has."""
    waited_p50_s: float
    waited_p95_s: float


def _is_earlier(pod: HistoryPod, begin_s: float) -> bool:
    return pod.bound_s <= begin_s and pod.created_s < begin_s


class Reconstruction:
    """One history, ready to be replayed."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.duration_s = history.end_s - history.begin_s
        begin_s = history.begin_s
        # Who ran before the beginning is placed before anybody else comes, and is not said to have waited.
        self._latency_s = decision_latency(history.pods, begin_s)
        capacity = {node.facts.name: float(WHOLE_MILLI * len(node.facts.gpus)) for node in history.nodes}
        pods = sorted(
            with_handovers(history.pods, self._demands(history.pods).tolist(), capacity, self._latency_s),
            key=lambda pod: (not _is_earlier(pod, begin_s), max(pod.created_s, begin_s), pod.bound_s, pod.name),
        )
        self._earlier = np.array([_is_earlier(pod, begin_s) for pod in pods])
        self._created = np.array([max(pod.created_s, begin_s) - begin_s for pod in pods])
        self._created[self._earlier] = 0.0
        self._bound = np.array([max(pod.bound_s, begin_s) - begin_s for pod in pods])
        self._ended = np.array([pod.ended_s - begin_s for pod in pods])
        runs_on = np.isinf(self._ended)
        durations = np.where(
            runs_on, math.inf, np.where(runs_on, 0.0, self._ended) - np.where(runs_on, 0.0, self._bound)
        )
        self.pods = tuple(pods)
        self.workload = SimWorkload(
            history.source,
            tuple(node.facts for node in history.nodes),
            tuple(
                SimPod(pod.name, pod.shape, float(at), float(last) + self._latency_s)
                for pod, at, last in zip(pods, self._created, durations, strict=True)
            ),
        )
        self.milli = self._demands(pods)
        self.source = self._course(self._bound, np.minimum(self._ended, self.duration_s), self.milli)

    def _demands(self, pods: Sequence[HistoryPod]) -> Floats:
        nodes = {node.facts.name: node.facts for node in self.history.nodes}
        facts = tuple(nodes.values())
        common, kinds = common_memory_mib(facts), mig_kinds(facts)
        found = []
        for pod in pods:
            there = nodes.get(pod.node)
            memory = there.gpus[0].memory_mib if there is not None and there.gpus else common
            found.append(demand_milli(pod.shape, memory, kinds))
        return np.array(found, np.float64)

    def _course(self, bound: Floats, ended: Floats, milli: Floats) -> Course:
        """``bound`` infinite: never, which is as long as time goes on."""
        placed = bound < self.duration_s
        starts, ends = bound[placed], np.maximum(ended[placed], bound[placed])
        times = np.concatenate([starts, ends])
        change = np.concatenate([milli[placed], -milli[placed]])
        order = np.argsort(times, kind="stable")
        moments, first = np.unique(times[order], return_index=True)
        sums = np.add.reduceat(change[order], first) if len(first) else np.zeros(0)
        held = Steps(moments, np.cumsum(sums))
        waited = (np.minimum(bound, self.duration_s) - self._created)[~self._earlier]
        waited = waited if len(waited) else np.zeros(1)
        area = float((milli[placed] * (np.minimum(ends, self.duration_s) - starts)).sum())
        return Course(
            100 * area / self._capacity(self.history.nodes),
            float(waited.mean()),
            float(np.percentile(waited, 50)),
            float(np.percentile(waited, 95)),
            int((waited > 1).sum()),
            int((~placed).sum()),
            held,
        )

    def _capacity(self, nodes: "tuple[HistoryNode, ...]") -> float:
        """Thousandths of a GPU times seconds."""
        begin_s, end_s = self.history.begin_s, self.history.end_s
        gpu_seconds = (
            len(node.facts.gpus) * (until_s - since_s)
            for node in nodes
            for since_s, until_s in node.there(begin_s, end_s)
        )
        return max(WHOLE_MILLI * math.fsum(gpu_seconds), 1e-9)

    def replay(
        self, policy: str, without: frozenset[str] = frozenset(), tick: Callable[[], None] = lambda: None
    ) -> Course:
        """With a policy, on all nodes but these. Raises ValueError for a policy that there is none of."""
        kept = tuple(node for node in self.history.nodes if node.facts.name not in without)
        workload = msgspec.structs.replace(self.workload, nodes=tuple(node.facts for node in kept))
        order = Order(
            "as it was",
            _SEED,
            np.arange(len(self.pods)),
            tuple(range(len(kept))),
            self._created,
            self.duration_s,
            changes=tuple(self._changes(kept)),
        )
        placed_on: dict[int, str] = {}

        def placed(event: int, node: str, _: tuple[int, ...]) -> None:
            placed_on[event] = node

        found = departures.run(
            workload, order, policy, learns=True, tick=lambda _: tick(), placed=placed, backs_off=True
        )
        latency = np.where(self._earlier, 0.0, self._latency_s)
        bound = np.where(found.placed, self._created + found.waited_s + latency, math.inf)
        durations_s = np.array([pod.lasts_s for pod in self.workload.pods], np.float64) - self._latency_s
        course = self._course(
            bound, np.minimum(bound + durations_s, self.duration_s), self._milli_by_pod(placed_on, workload)
        )
        return msgspec.structs.replace(course, timed=timed_result(policy, workload, order, True, found))

    def _milli_by_pod(self, placed_on: dict[int, str], workload: SimWorkload) -> Floats:
        """A share takes less of a larger GPU."""
        memory = {node.name: node.gpus[0].memory_mib for node in workload.nodes if node.gpus}
        common, kinds = common_memory_mib(workload.nodes), mig_kinds(workload.nodes)
        return np.array(
            [
                demand_milli(pod.shape, memory.get(placed_on.get(event, ""), common), kinds)
                for event, pod in enumerate(self.pods)
            ],
            np.float64,
        )

    def _changes(self, nodes: "tuple[HistoryNode, ...]") -> "list[SimNodeChange]":
        begin_s, end_s, found = self.history.begin_s, self.history.end_s, []
        for node in nodes:
            name, spans = node.facts.name, node.there(begin_s, end_s)
            if not spans or spans[0][0] > begin_s:
                found.append(SimNodeChange(0.0, name, is_open=False))
            for since_s, until_s in spans:
                if since_s > begin_s:
                    found.append(SimNodeChange(since_s - begin_s, name, is_open=True))
                if until_s < end_s:
                    found.append(SimNodeChange(until_s - begin_s, name, is_open=False))
        return sorted(found, key=lambda change: change.at_s)

    def error_of(self, policy: str, replayed: Course) -> ReconstructionError:
        """How far this course, of the policy that was in force, is from the source's own."""
        times = np.unique(np.concatenate([[0.0], self.source.held.time_s, replayed.held.time_s]))
        times = times[times < self.duration_s]
        spans = np.diff(np.append(times, self.duration_s))
        difference = np.abs(self.source.held.at(times) - replayed.held.at(times))
        actual, found = self.source.waited_mean_s, replayed.waited_mean_s
        return ReconstructionError(
            policy,
            allocation_points=abs(self.source.allocation_percent - replayed.allocation_percent),
            moment_points=100 * float((difference * spans).sum()) / self._capacity(self.history.nodes),
            waiting_percent=100 * abs(found - actual) / actual if actual else (0.0 if not found else None),
            waited_p50_s=abs(self.source.waited_p50_s - replayed.waited_p50_s),
            waited_p95_s=abs(self.source.waited_p95_s - replayed.waited_p95_s),
        )

    def curve(self, course: Course) -> dict[str, list[float]]:
        """The course's allocation over time, in percent of the GPUs that there were on the mean."""
        times = np.linspace(0, self.duration_s, CURVE_POINTS, endpoint=False)
        mean = self._capacity(self.history.nodes) / self.duration_s
        return {
            "hours": [round(float(time_s) / 3600, 4) for time_s in times],
            "allocation_percent": [round(100 * float(milli) / mean, 3) for milli in course.held.at(times)],
        }

    def nodes_by_use(self) -> tuple[str, ...]:
        """Nodes, the one on which the fewest GPU-hours were held first; of equals the last one by name."""
        used = dict.fromkeys((node.facts.name for node in self.history.nodes), 0.0)
        for pod, milli, bound, ended in zip(self.pods, self.milli, self._bound, self._ended, strict=True):
            if bound < self.duration_s:
                used[pod.node] += milli * (min(ended, self.duration_s) - bound)
        return tuple(sorted(sorted(used, reverse=True), key=used.__getitem__))
