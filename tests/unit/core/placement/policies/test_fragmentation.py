"""Fragmentation against its definition, said once more in plain Python."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.core.placement.policies.fleets import MIX, fleet_of, fleets, named, run, shapes

from purser.core.fleet.arrays import FleetArrays, Model
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.placement.fragments import Causes, Fragments
from purser.core.placement.mix import LearnedMix, Mix
from purser.core.placement.policies.fragmentation import STEPS, Fragmentation
from purser.core.placement.shape import PodShape, need_milli
from purser.core.placement.table import ShapeTable, place

FIELDS = Causes.__struct_fields__


def causes_of(fleet: FleetArrays, row: int, mix: Mix) -> list[dict[str, float]]:
    """What the tables of the paper say of a node, as if all its GPUs were of its model; and of its GPUs of each model
    by themselves, together."""
    count = int(fleet.gpu_count[row])
    models, left = fleet.gpu_model[:count, row].tolist(), fleet.left_milli[:count, row].tolist()
    as_one = _causes(fleet, row, fleet.models[fleet.node_model[row]] if left else None, left, mix)
    each: Counter[str] = Counter()
    for model in set(models):
        of_model = [amount for amount, at in zip(left, models, strict=True) if at == model]
        for field, amount in _causes(fleet, row, fleet.models[model], of_model, mix).items():
            each[field] += amount * fleet.models[model].gpu_part  # type: ignore[assignment]
    return [as_one, dict(each)]


def _causes(fleet: FleetArrays, row: int, model: Model | None, left: list[int], mix: Mix) -> dict[str, float]:
    """Pod by pod."""
    found = dict.fromkeys(FIELDS, 0.0)
    idle, cpu = sum(left), int(fleet.cpu_free_milli[row])
    for pod, frequency in ((typical.shape, typical.frequency) for typical in mix.typical):
        has_cpu = cpu >= pod.cpu_milli
        if not pod.gpu_count:
            found["no_use" if has_cpu else "no_use_lacks_cpu"] += frequency * idle
            continue
        if model is None or not pod.takes_model(model.name):
            found["no_access"] += frequency * idle
            continue
        need = need_milli(pod, model.memory_mib)
        has_gpu = sum(amount >= need for amount in left) >= pod.gpu_count
        if has_gpu and has_cpu:
            small = sum(amount for amount in left if amount < need)
            found["lacks_gpu"] += frequency * small
            found["usable"] += frequency * (idle - small)
        else:
            found["lacks_cpu" if has_gpu else "lacks_gpu" if has_cpu else "lacks_both"] += frequency * idle
    return found


@examples(60)
@given(facts=fleets(), pods=st.lists(shapes(), max_size=8), more=st.lists(shapes(), max_size=3))
def test_fragments_are_those_of_the_definition_and_stay_so(
    facts: list[FleetNodeFacts], pods: list[PodShape], more: list[PodShape]
) -> None:
    fleet, fragments = fleet_of(facts), Fragments(MIX)
    table = ShapeTable(fleet, named(("spread", "spread")))
    for some in (pods, more):
        run(table, some)
        expected = [causes_of(fleet, row, MIX) for row in range(len(fleet.live))]
        causes = fragments.causes(fleet)
        for field in FIELDS:
            assert getattr(causes, field) >= 0
            assert getattr(causes, field) == pytest.approx(sum(e.get(field, 0) for _, e in expected), abs=1e-6)
        amounts = [sum(amount for field, amount in found.items() if field != "usable") for found, _ in expected]
        assert fragments.of_rows(fleet) == pytest.approx(amounts, abs=1e-6)
        assert fragments.total(fleet) == pytest.approx(sum(amounts), abs=1e-6)


def test_mig_devices_before_a_nodes_gpus_do_not_stand_for_them() -> None:
    """Of the pods half want a GPU, half a MIG device: each is without access to what the other wants."""
    mig = GpuFacts("H100", 9984, 1, resource="nvidia.com/mig-1g.10gb", gpu_part=1 / 7)
    fleet = fleet_of([FleetNodeFacts("n", (mig, mig, *[GpuFacts("H100", 81559, 1)] * 7))])
    wanted = [PodShape(0, 0, 1, 0, 100, 100), PodShape(0, 0, 1, 0, 100, 100, resource=mig.resource)]
    causes = Fragments(Mix.of(dict.fromkeys(wanted, 1))).causes(fleet)
    assert (causes.usable, causes.no_access) == pytest.approx((3500 + 1000 / 7,) * 2)
    assert fleet.models[fleet.node_model[0]].resource == "nvidia.com/gpu"


def test_the_score_is_the_sigmoid_cut_to_an_integer() -> None:
    for gained in np.linspace(-9000, 9000, 4001):
        exact = 100 / (1 + math.exp(-gained / 1000))
        if abs(exact - round(exact)) > 1e-9:
            assert STEPS.searchsorted(gained, side="right") == int(exact)
    assert STEPS.searchsorted(0.0, side="right") == 50
    assert all(low < high for low, high in pairwise(STEPS))


def test_a_pod_goes_where_it_spoils_least() -> None:
    """A quarter beside a pod of three quarters, rather than on an idle GPU that a whole pod could have."""
    mix = Mix.of({PodShape(0, 0, 1, gpu_memory_mib=1000): 3, PodShape(0, 0, 1, gpu_memory_mib=250): 1})
    gpu = GpuFacts("T4", 1000, 10)
    fleet = fleet_of([FleetNodeFacts("idle", (gpu,)), FleetNodeFacts("used", (gpu, gpu))])
    row = fleet.rows.get("used")
    assert row is not None
    table = ShapeTable(fleet, Fragmentation(mix))
    three_quarters = PodShape(0, 0, 1, gpu_memory_mib=750)
    assert run(table, [three_quarters, PodShape(0, 0, 1, gpu_memory_mib=250)]) == [("idle", (0,)), ("idle", (0,))]


def test_equal_integers_fall_to_the_first_node_however_much_the_fractions_differ() -> None:
    """20 thousandths are less than one step near 0."""
    mix = Mix.of({PodShape(0, 0, 1, gpu_memory_mib=980): 1})
    facts = [FleetNodeFacts("a", (GpuFacts("T4", 1000, 10, memory_taken_mib=30, slots_taken=1),))]
    facts.append(FleetNodeFacts("b", (GpuFacts("T4", 1000, 10, memory_taken_mib=990, slots_taken=1),)))
    fleet = fleet_of(facts)
    assert place(ShapeTable(fleet, Fragmentation(mix)), PodShape(0, 0, 1, gpu_memory_mib=1)) == (0, (0,))


def test_scores_are_renewed_once_the_mix_has_changed() -> None:
    learned = LearnedMix()
    policy = Fragmentation(learned)
    fleet = fleet_of([FleetNodeFacts(name, (GpuFacts("T4", 1000, 10),) * 2) for name in "ab"])
    table, pod = ShapeTable(fleet, policy), PodShape(0, 0, 1, gpu_memory_mib=250)
    before = table.scores(pod).max()
    for _ in range(200):
        learned.arrived(pod)
    assert table.scores(pod).max() > before
    assert policy.fragments.total(fleet) == 0.0
