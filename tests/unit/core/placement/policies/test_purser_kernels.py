"""The compiled kernels of Purser's own policy answer what numpy's do, to the last bit: as in `test_kernels`."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import IS_LONG, examples
from tests.unit.core.placement.policies.fleets import MIX, all_rows, fleet_of, fleets, named, run, shapes

from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.placement import kernels
from purser.core.placement.kernels import plain
from purser.core.placement.mix import LearnedMix, Mix
from purser.core.placement.policies import Setting, policy
from purser.core.placement.policies.fragmentation import STEPS
from purser.core.placement.policies.plan import plan
from purser.core.placement.shape import PodShape, view
from purser.core.placement.table import ShapeTable

HAS_NUMBA = importlib.util.find_spec("numba") is not None
PODS = 400 if IS_LONG else 100
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="needs the extra fast (numba)")


@needs_numba
@examples(60)
@given(facts=fleets(), pods=st.lists(shapes(), max_size=8), asked=shapes(), mix=st.sampled_from([MIX, Mix()]))
def test_both_score_alike(facts: list[FleetNodeFacts], pods: list[PodShape], asked: PodShape, mix: Mix) -> None:
    from purser.core.placement.kernels import fast

    fleet = fleet_of(facts)
    run(ShapeTable(fleet, named(("spread", "spread"))), pods)
    seen, made = view(fleet, asked, all_rows(fleet)), plan(fleet, mix)
    lost = [
        kernel.losses(seen.left, seen.cpu_free_milli, seen.model, made.mix, made.prices) for kernel in (plain, fast)
    ]
    assert lost[0].tobytes() == lost[1].tobytes()
    cpu = seen.cpu_free_milli - asked.cpu_milli
    told = (seen.left, seen.after, seen.takes, seen.fits, cpu, seen.model, lost[0], asked.gpu_count)
    found = [kernel.loss_scores(*told, made.mix, made.prices, STEPS) for kernel in (plain, fast)]
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    scores, gpus = found[0]
    assert (np.isfinite(scores) == seen.fits).all()
    if asked.gpu_count == 1:
        assert seen.takes[gpus[seen.fits], seen.fits.nonzero()[0]].all()


def test_many_nodes_are_looked_at_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (GpuFacts("T4", 1000, 10), GpuFacts("T4", 1000, 10))
    fleet = fleet_of([FleetNodeFacts(f"node-{n}", gpus, 1000 * n) for n in range(20)])
    run(ShapeTable(fleet, named(("spread", "spread"))), [PodShape(1000, 0, 1, gpu_memory_mib=37 * n) for n in range(9)])
    seen, made = view(fleet, PodShape(), all_rows(fleet)), plan(fleet, MIX)
    assert made.prices.gpu_per_cpu
    nodes = (seen.left, seen.cpu_free_milli, seen.model)
    at_once = plain.losses(*nodes, made.mix, made.prices)
    monkeypatch.setattr(plain, "_BLOCK", 7)
    assert plain.losses(*nodes, made.mix, made.prices).tobytes() == at_once.tobytes()


@needs_numba
@pytest.mark.parametrize("learns", [False, True])
def test_both_place_many_pods_alike(learns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    placed = []
    for used in (plain, kernels.choose("numba", has_numba=True)):
        monkeypatch.setattr(kernels, "used", used)
        placed.append(_placed(learns))
    assert placed[0] == placed[1]
    assert PODS / 2 < sum(place is not None for place in placed[0]) < PODS


def _placed(learns: bool) -> list[tuple[str, tuple[int, ...]] | None]:
    drawn = np.random.default_rng(3)
    kinds = [
        PodShape(3_000, 0, 1, gpu_memory_mib=810),
        PodShape(12_000, 0, 1, gpu_memory_mib=470),
        PodShape(4_000, 0, 1, gpu_memory_mib=160),
        PodShape(11_000, 0, 1, gpu_memory_mib=1000, models=("T4",)),
        PodShape(18_000, 0, 1, gpu_memory_mib=1000),
        PodShape(60_000, 0, 8, gpu_memory_mib=1000),
        PodShape(12_500),
    ]
    pods = [kinds[number] for number in drawn.choice(7, PODS, p=[0.25, 0.2, 0.1, 0.15, 0.18, 0.02, 0.1])]
    gpus = {"T4": GpuFacts("T4", 1000, 99), "A100": GpuFacts("A100", 1000, 99)}
    nodes = [FleetNodeFacts(f"a-{n:02}", (gpus["A100"],) * 8, 96_000) for n in range(PODS // 25)]
    nodes += [FleetNodeFacts(f"t-{n:02}", (gpus["T4"],) * 2, 104_000) for n in range(PODS // 20)]
    learned = LearnedMix()
    source = learned if learns else Mix.of({kind: float(pods.count(kind)) for kind in kinds})
    table = ShapeTable(fleet_of(nodes), policy("purser", setting=Setting(source)))
    got = []
    for pod in pods:
        learned.arrived(pod)
        got += run(table, [pod])
    return got
