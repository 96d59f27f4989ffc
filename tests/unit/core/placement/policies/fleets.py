"""Small fleets and pods for property tests: odd sizes, few of each, so that they meet."""

from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import UNHEALTHY, FleetNodeFacts, GpuFacts
from purser.core.placement.mix import Mix
from purser.core.placement.policies import GPU_POLICIES, NODE_POLICIES, ArrayPolicy, Setting, policy
from purser.core.placement.shape import PodShape, resources_taken
from purser.core.placement.table import ShapeTable, place

GPUS = st.builds(
    GpuFacts,
    model=st.sampled_from(["A10", "A100-SXM4", "T4"]),
    memory_mib=st.sampled_from([1000, 15360, 40537]),
    slots=st.sampled_from([1, 2, 10]),
    cores_percent=st.sampled_from([100, 100, 200]),
    closed=st.sampled_from([0, 0, 0, UNHEALTHY]),
    gpu_part=st.sampled_from([1.0, 1.0, 3 / 7]),
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> FleetNodeFacts:
    gpus = draw(st.lists(GPUS, max_size=9)) if draw(st.booleans()) else [draw(GPUS)] * draw(st.integers(0, 4))
    return FleetNodeFacts(
        name,
        tuple(gpus),
        draw(st.sampled_from([0, 4000, 16_000, 1 << 30])),
        draw(st.sampled_from([1000, 64_000])),
        draw(st.sampled_from([0, 2, 110])),
    )


@st.composite
def shapes(draw: st.DrawFn) -> PodShape:
    in_percent = draw(st.booleans())
    return PodShape(
        cpu_milli=draw(st.sampled_from([0, 500, 4000, 8000])),
        memory_mib=draw(st.sampled_from([0, 500, 4000])),
        gpu_count=draw(st.sampled_from([0, 1, 1, 1, 2, 4])),
        gpu_memory_mib=0 if in_percent else draw(st.sampled_from([1, 333, 1000, 7680, 15360])),
        gpu_memory_percent=draw(st.sampled_from([1, 33, 50, 100])) if in_percent else 0,
        gpu_cores_percent=draw(st.sampled_from([0, 0, 30, 100])),
        models=draw(st.sampled_from([(), (), ("a10",), ("=A10",), ("t4", "A100")])),
    )


@st.composite
def fleets(draw: st.DrawFn) -> list[FleetNodeFacts]:
    return [draw(nodes(f"node-{number}")) for number in range(draw(st.integers(1, 6)))]


def fleet_of(facts: Iterable[FleetNodeFacts]) -> FleetArrays:
    fleet = FleetArrays()
    for node in facts:
        fleet.put_node(node)
    return fleet


MIX = Mix.of(
    {
        PodShape(4000, 0, 1, gpu_memory_mib=333): 3,
        PodShape(500, 0, 1, gpu_memory_percent=100): 3,
        PodShape(500, 0, 1, gpu_memory_percent=50, models=("T4",)): 2,
        PodShape(8000, 0, 2, gpu_cores_percent=100): 1,
        PodShape(4000): 2,
    },
    1.0,
)

PAIRS = [
    *((node.value, "") for node in NODE_POLICIES),
    *(("best-fit", gpu.value) for gpu in GPU_POLICIES if gpu not in {of.gpus for of in NODE_POLICIES.values()}),
    ("best-fit", "fragmentation"),
    ("fragmentation", "spread"),
    ("fragmentation=3, spread=0.5", "binpack"),
]
"""Each policy for nodes with its own way among GPUs, each for GPUs that is nobody's own, and some that are mixed."""


def named(pair: tuple[str, str]) -> ArrayPolicy:
    return policy(*pair, setting=Setting(MIX, seed=7))


def run(table: ShapeTable, pods: Iterable[PodShape]) -> list[tuple[str, tuple[int, ...]] | None]:
    """Place and take one after another; which node and GPUs each got."""
    got: list[tuple[str, tuple[int, ...]] | None] = []
    for pod in pods:
        placement = place(table, pod)
        if placement is not None:
            table.fleet.take(*placement, resources_taken(table.fleet, pod, *placement))
        got.append(None if placement is None else (table.fleet.names[placement[0]], placement[1]))
    return got


def all_rows(fleet: FleetArrays) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    return np.arange(len(fleet.live), dtype=np.intp)
