"""Who uses more of a GPU's compute than was granted, on average."""

import msgspec
import pytest
from tests.unit.agent.builders import A, B, grant, init, part

from purser.core.model import Enforcement
from purser.core.monitoring.accounts import ContainerUse, GpuAccount, PodContainer
from purser.core.monitoring.compute import (
    TOLERATED_PERCENT,
    WINDOW_READINGS,
    PodsCompute,
    find_compute_overuse,
    with_reading,
)

SHARE = part("main", A, cores_percent=30)
MOST = 30 + TOLERATED_PERCENT


def gpu(uuid: str, *uses: tuple[str, int | None], device: str = "") -> GpuAccount:
    """By pod and percent, each of a container of its own."""
    containers = tuple(
        ContainerUse(PodContainer("ns", pod, f"uid-{pod}", f"c{number}"), device or uuid, 1, percent)
        for number, (pod, percent) in enumerate(uses)
    )
    return GpuAccount(uuid, {}, containers, ())


def after(*readings: GpuAccount, before: PodsCompute | None = None) -> PodsCompute:
    used = before or {}
    for reading in readings:
        used = with_reading(used, [reading], listed={A, B})
    return used


def over(used: PodsCompute, *parts, unlimited=()) -> list[tuple[int, int]]:
    found = find_compute_overuse(used, {"uid-p": grant("p", *(parts or (SHARE,)))}, unlimited)
    return [(each.used_percent, each.granted_percent) for each in found.values()]


def test_the_mean_of_a_whole_window_counts() -> None:
    bursts = [gpu(A, ("p", 0 if number % 2 else 100)) for number in range(WINDOW_READINGS)]
    assert over(after(*bursts)) == [(50, 30)]
    assert over(after(*bursts[1:])) == [], "not yet seen for as long"
    assert over(after(*[gpu(A, ("p", MOST))] * WINDOW_READINGS)) == []
    assert over(after(*[gpu(A, ("p", MOST + 1))] * WINDOW_READINGS)) == [(MOST + 1, 30)]
    assert over(after(*[gpu(A, ("p", 30), ("p", 30))] * WINDOW_READINGS)) == [(60, 30)], "all containers of the pod"


def test_a_pod_between_two_programs_used_nothing_meanwhile() -> None:
    used = after(*[gpu(A, ("p", 90))] * WINDOW_READINGS)
    assert over(after(*[gpu(A)] * (WINDOW_READINGS // 2), before=used)) == [(45, 30)]
    assert after(*[gpu(A)] * WINDOW_READINGS, before=used) == {}


def test_a_reading_without_compute_and_one_of_another_gpu_say_nothing() -> None:
    used = after(*[gpu(A, ("p", 90))] * WINDOW_READINGS)
    assert after(gpu(A, ("p", None)), gpu(B), before=used) == used
    assert with_reading(used, [], listed={B}) == {}


@pytest.mark.parametrize(
    ("parts", "limit"),
    [
        ((SHARE,), 30),
        ((part("main", A, cores_percent=0),), 0),
        ((SHARE, part("side", A, cores_percent=0)), 0),
        ((part("main", A, cores_percent=100),), 0),
        ((init("warm", A, cores_percent=50), SHARE), 50),
        ((SHARE, part("side", A, cores_percent=20)), 50),
        ((msgspec.structs.replace(SHARE, enforcement=Enforcement.MPS),), 0),
        ((msgspec.structs.replace(SHARE, enforcement=Enforcement.HAMI_CORE),), 30),
        ((part("main", B, cores_percent=30),), 0),
    ],
    ids=["share", "no-limit", "one-without", "whole", "init", "two", "mps", "hami-core", "of-another-gpu"],
)
def test_only_a_promise_that_can_be_measured_is_judged(parts, limit) -> None:
    used = after(*[gpu(A, ("p", 99))] * WINDOW_READINGS)
    assert over(used, *parts) == ([(99, limit)] if limit else [])
    assert over(used, *parts, unlimited=(A,)) == []


def test_of_mig_devices_nothing_is_known() -> None:
    assert after(gpu(A, ("p", 90), device="MIG-1")) == {}
