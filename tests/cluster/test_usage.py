"""GPU-hours out of a real Prometheus, of a history that is known."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from purser.usage import (
    Prometheus,
    read_gpu_curves,
    read_idle,
    read_model_hours,
    read_node_curves,
    read_over_time,
    read_pod_curves,
    read_pod_hours,
    read_usage,
)

from .kubernetes import RealCluster
from .prometheus import serving_history, whole_blocks_end_s

GIB = 2**30
MINUTES = 180
T4, A100 = 16 * GIB, 80 * GIB


def history(end_s: int) -> Iterator[str]:
    """Three hours up to then, a sample each 30 s: two T4, one A100 and a GPU that tells no memory, by two replicas in
    turn. ``a`` has the last, and half a T4, all the time and uses half of that; ``b`` the A100 in the last hour, which
    it keeps busy."""
    told: dict[str, list[tuple[str, float]]] = {}
    for second in range(end_s - MINUTES * 60, end_s, 30):
        left = end_s - second
        leader = "one" if left > 5000 else "two"
        last_hour = left <= 3600

        def say(name: str, labels: str, value: float, at: int = second) -> None:
            told.setdefault(name, []).append((f"{name}{{{labels}}} {value} {at}", at))

        at = f'instance="{leader}"'
        say("purser_cluster_gpus", f'{at},model="T4",state="shared"', 1)
        say("purser_cluster_gpus", f'{at},model="T4",state="idle"', 1)
        say("purser_cluster_gpus", f'{at},model="A100",state="full"', int(last_hour))
        say("purser_cluster_gpus", f'{at},model="A100",state="idle"', int(not last_hour))
        say("purser_cluster_gpus", f'{at},model="mute",state="full"', 1)
        say("purser_cluster_memory_bytes", f'{at},model="mute"', 0)
        say("purser_cluster_memory_bytes", f'{at},model="T4"', 2 * T4)
        say("purser_cluster_memory_bytes", f'{at},model="A100"', A100)
        say("purser_cluster_granted_memory_bytes", f'{at},namespace="a",model="T4"', T4 / 2)
        say("purser_cluster_granted_memory_bytes", f'{at},namespace="a",model="mute"', 0)
        say("purser_device_memory_bytes", 'node="n",uuid="M-0"', 0)
        say("purser_container_memory_used_bytes", 'node="n",uuid="M-0",namespace="a",pod="q",container="c"', 0)
        say("purser_device_memory_bytes", 'node="n",uuid="T-0"', T4)
        say("purser_device_memory_bytes", 'node="n",uuid="A-0"', A100)
        own = 'node="n",uuid="T-0",namespace="a",pod="p",container="c"'
        say("purser_container_memory_used_bytes", own, T4 / 4)
        say("purser_grant_memory_bytes", f'{own},policy="",enforcement="none"', T4 / 2)
        say("purser_device_memory_used_bytes", 'node="n",uuid="T-0"', T4 / 4)
        say("purser_device_info", 'node="n",uuid="T-0",model="T4"', 1)
        say("purser_device_info", 'node="n",uuid="A-0",model="A100"', 1)
        say("purser_device_memory_owner_bytes", 'node="n",uuid="T-0",owner="foreign"', T4 / 8)
        say("purser_cluster_idle_gpus", f'{at},model="T4",cause="memory"', 0.5)
        say("purser_cluster_idle_gpus", f'{at},model="T4",cause="usable"', 1)
        # Two hours ago its kernels stopped.
        say("purser_device_utilization_ratio", 'node="n",uuid="T-0"', 0.9 if left > 7200 else 0.001)
        say("purser_device_granted_memory_bytes", 'node="n",uuid="T-0"', T4 / 2)
        # Never busy, and held by nobody; measured for the last minutes alone.
        say("purser_device_utilization_ratio", 'node="n",uuid="T-1"', 0)
        say("purser_device_granted_memory_bytes", 'node="n",uuid="T-1"', 0)
        if left < 600:
            say("purser_device_utilization_ratio", 'node="n",uuid="A-0"', 0)
            say("purser_device_granted_memory_bytes", 'node="n",uuid="A-0"', A100)
        if last_hour:
            say("purser_cluster_granted_memory_bytes", f'{at},namespace="b",model="A100"', A100)
            busy = 'node="n",uuid="A-0",namespace="b",pod="p",container="c"'
            say("purser_container_utilization_ratio", busy, 1)
            say("purser_container_memory_used_bytes", busy, A100)
            say("purser_grant_memory_bytes", f'{busy},policy="",enforcement="none"', A100)
    for name, samples in told.items():
        yield f"# TYPE {name} gauge"
        # By series and time: promtool leaves out what is older than what it has read of a series.
        yield from (text for text, _ in sorted(samples, key=lambda each: (each[0].rsplit(" ", 2)[0], each[1])))
    yield "# EOF"


@pytest.fixture
def prometheus(cluster: RealCluster, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Its URL, and the end of its history."""
    end_s = whole_blocks_end_s()
    with serving_history(cluster, tmp_path, history(end_s)) as url:
        yield url, end_s


async def test_gpu_hours_are_those_of_the_history_and_add_up(prometheus: tuple[str, int]) -> None:
    url, end_s = prometheus
    async with Prometheus(url) as server:
        found = await read_usage(server, MINUTES * 60, end_s)
        curves = await read_over_time(server, MINUTES * 60, end_s - 60)
        idle = await read_idle(server, end_s - 60)
        of_nothing = await read_usage(server, 3600, end_s, 'cluster="other"')
    hours = {each.namespace: (each.granted, each.used, each.busy) for each in found.namespaces}
    assert found.total == pytest.approx(12, rel=0.03)
    assert found.granted + found.not_granted == pytest.approx(found.total)
    assert hours["a"] == pytest.approx((1.5, 0.75, 0), rel=0.03, abs=0.01)
    assert hours["b"] == pytest.approx((1, 1, 1), rel=0.03)
    assert found.foreign == pytest.approx(3 / 8, rel=0.03)
    assert found.covered_s == pytest.approx(MINUTES * 60, rel=0.03)
    assert {round(each, 3) for each in curves.gpus[5:]} == {4}
    assert {round(each, 3) for each in curves.unusable[5:]} == {0.5}
    assert {round(each, 3) for each in curves.held["a"][5:]} == {0.5}
    held, busy = curves.held["b"], curves.busy["b"]
    assert round(held[-5], 3) == round(busy[-5], 3) == 1 and math.isnan(held[5]) and math.isnan(busy[5])
    assert {(each.uuid, each.idle_s) for each in idle} == {("T-0", 3600)}
    assert (of_nothing.total, of_nothing.covered_s, of_nothing.namespaces) == (0, 0, ())


async def test_pods_models_and_single_curves_are_those_of_the_history(prometheus: tuple[str, int]) -> None:
    url, end_s = prometheus
    async with Prometheus(url) as server:
        pods = await read_pod_hours(server, MINUTES * 60, end_s)
        models = await read_model_hours(server, MINUTES * 60, end_s)
        gpu = await read_gpu_curves(server, "n", "T-0", MINUTES * 60, end_s - 60)
        pod = await read_pod_curves(server, "b", "p", MINUTES * 60, end_s - 60)
        node = await read_node_curves(server, "n", MINUTES * 60, end_s - 60)
        no_node = await read_node_curves(server, "m", MINUTES * 60, end_s - 60)
        nobody = await read_pod_curves(server, 'b", pod=~".*', "p\\", 3600, end_s)
        elsewhere = await read_gpu_curves(server, "n", "T-0", 3600, end_s, 'cluster="other"')
    assert [(each.namespace, each.pod) for each in pods] == [("a", "p"), ("b", "p")]
    assert (pods[0].held, pods[0].busy, pods[1].held, pods[1].busy) == pytest.approx((1.5, 0, 1, 1), rel=0.05)
    assert pods[0].unused == pytest.approx(1.5, rel=0.05) and pods[1].unused < 0.05
    hours = {each.model: (each.total, each.held, each.busy) for each in models}
    assert hours["T4"] == pytest.approx((6, 1.5, 0), rel=0.05)
    assert hours["A100"] == pytest.approx((3, 1, 1), rel=0.05)
    assert hours["mute"] == pytest.approx((3, 0, 0), rel=0.05)
    assert (round(gpu.busy_gpus[5], 2), round(gpu.busy_gpus[-5], 2)) == (0.9, 0)
    assert {round(each / GIB, 2) for each in gpu.used_bytes[5:]} == {4}
    assert {round(each / GIB, 2) for each in gpu.held_bytes[5:]} == {8}
    assert (round(node.busy_gpus[5], 2), round(node.busy_gpus[-5], 2)) == (0.9, 0)
    assert {round(each / GIB, 2) for each in node.used_bytes[5:]} == {4}
    assert [round(node.held_bytes[at] / GIB, 2) for at in (5, -5)] == [8, 88]
    assert (pod.busy_gpus[-5], pod.held_bytes[-5]) == (1, A100) and math.isnan(pod.held_bytes[5])
    assert all(map(math.isnan, (*nobody.held_bytes, *elsewhere.held_bytes, *no_node.held_bytes)))
