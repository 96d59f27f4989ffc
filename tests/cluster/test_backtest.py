"""A cluster's past out of a real Prometheus, with kube-state-metrics' series of a history that is known."""

import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from purser.backtest.comparing import backtest
from purser.backtest.history import Omissions
from purser.backtest.metrics import history_of_metrics
from purser.backtest.reconstruction import Reconstruction
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.placement.shape import PodShape
from purser.simulator import departures
from purser.simulator.workload import Order, SimPod, SimWorkload
from purser.usage import Prometheus

from .kube_state_metrics import KsmNode, KsmPod, openmetrics
from .kubernetes import RealCluster
from .prometheus import serving_history, whole_blocks_end_s

HOURS = 8
MEMORY_MIB = 16384
GIB = 1 << 30


def workload() -> SimWorkload:
    """Four nodes with four GPUs each, and pods for two thirds of the time: whole GPUs and halves."""
    drawn = random.Random(9)
    gpu = GpuFacts("Tesla-T4", MEMORY_MIB, 10)
    nodes = tuple(FleetNodeFacts(f"n{number}", (gpu,) * 4, 64_000, 256 * 1024, 110) for number in range(4))
    pods = []
    for number in range(80):
        shares = drawn.choice([0, 0, MEMORY_MIB // 2])
        gpus = 1 if shares else drawn.choice([1, 1, 2, 4])
        cores = 0 if shares else 100
        shape = PodShape(4000, 8 * 1024, gpus, shares, 0 if shares else 100, cores)
        lasts_s = drawn.uniform(1800, 4200)
        pods.append(SimPod(f"p{number}", shape, drawn.uniform(0, 0.8 * HOURS * 3600), lasts_s))
    pods.sort(key=lambda pod: pod.arrives_s or 0.0)
    return SimWorkload("known", nodes, tuple(pods))


class Known:
    """What happened: the workload, run with a policy."""

    def __init__(self, policy: str) -> None:
        self.workload = workload()
        arrives = np.array([pod.arrives_s for pod in self.workload.pods])
        order = Order("known", 1, np.arange(len(arrives)), (0, 1, 2, 3), arrives, HOURS * 3600.0)
        self.on: dict[int, str] = {}
        self.run = departures.run(
            self.workload, order, policy, learns=True, placed=lambda event, node, _: self.on.update({event: node})
        )
        moments = self.run.moments
        first_s, end_s = float(moments.time_s[0]), HOURS * 3600.0
        self.allocation_percent = moments.mean(moments.allocated, end_s) * (1 - first_s / end_s) / 160
        self.waited_mean_s = float(self.run.waited_s.mean())

    def pods(self, begin_s: float) -> Iterator[KsmPod]:
        """As kube-state-metrics sees them: every second one is deleted at its end, others are there for an hour."""
        for event, pod in enumerate(self.workload.pods):
            assert pod.arrives_s is not None and pod.lasts_s is not None
            created_s = begin_s + pod.arrives_s
            bound_s = created_s + float(self.run.waited_s[event]) if self.run.placed[event] else math.inf
            ended_s, is_deleted = bound_s + pod.lasts_s, event % 2 == 0
            requests = {
                "cpu": pod.shape.cpu_milli / 1000,
                "memory": float(pod.shape.memory_mib << 20),
                "nvidia_com_gpu": float(pod.shape.gpu_count),
            }
            if pod.shape.gpu_memory_mib:
                requests["nvidia_com_gpumem"] = float(pod.shape.gpu_memory_mib)
            done_s, deleted_s = (math.inf, ended_s) if is_deleted else (ended_s, ended_s + 3600)
            yield KsmPod(
                pod.name, f"u-{event}", self.on.get(event, ""), requests, created_s, bound_s, done_s, deleted_s
            )

    def nodes(self, begin_s: float) -> Iterator[KsmNode]:
        """With feature discovery's labels; one more has no GPUs."""
        labels = {"nvidia_com_gpu_product": "Tesla-T4", "nvidia_com_gpu_memory": str(MEMORY_MIB)}
        for node in self.workload.nodes:
            amounts = {"cpu": 64.0, "memory": 256.0 * GIB, "pods": 110.0, "nvidia_com_gpu": 4.0}
            yield KsmNode(node.name, amounts, begin_s - 86400, labels)
        yield KsmNode("without", {"cpu": 64.0, "memory": 256.0 * GIB, "pods": 110.0}, begin_s - 86400)


@pytest.fixture(scope="module")
def known() -> Known:
    return Known("binpack")


@pytest.fixture
def prometheus(cluster: RealCluster, known: Known, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Its URL, and the end of its history."""
    end_s = whole_blocks_end_s()
    begin_s = end_s - HOURS * 3600
    pods, nodes = list(known.pods(begin_s)), list(known.nodes(begin_s))
    with serving_history(cluster, tmp_path, openmetrics(pods, nodes, begin_s, end_s)) as url:
        yield url, end_s


async def test_a_history_of_kube_state_metrics_is_replayed_as_it_was(prometheus: tuple[str, int], known: Known) -> None:
    url, end_s = prometheus
    async with Prometheus(url) as server:
        history = await history_of_metrics(server, HOURS * 3600, end_s, "", Omissions())
    assert (len(history.pods), len(history.nodes), history.left_out) == (80, 4, ())
    assert {pod.shape for pod in history.pods} == {pod.shape for pod in known.workload.pods}
    of = Reconstruction(history)
    found = backtest(of, "binpack", ["binpack", "spread"])
    print(f"known: {known.allocation_percent:.3f} %, {known.waited_mean_s:.2f} s; stated: {found.error}")
    for course in (found.source, found.replayed):
        print(f"{course.allocation_percent:.3f} % allocated, {course.waited_mean_s:.2f} s waited on the mean")
        assert abs(course.allocation_percent - known.allocation_percent) < 1
        assert abs(course.waited_mean_s - known.waited_mean_s) < 0.1 * known.waited_mean_s
    assert found.error.moment_points < 1
    assert found.error.waiting_percent is not None and found.error.waiting_percent < 10
    assert [each.policy for each in found.policies] == ["binpack", "spread"]
    assert found.policies[0].nodes_needed == 4
