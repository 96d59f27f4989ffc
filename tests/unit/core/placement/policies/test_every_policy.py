"""What holds for each policy, whatever it is after."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tiers import examples, some
from tests.unit.core.placement.policies.fleets import MIX, PAIRS, all_rows, fleet_of, fleets, named, run, shapes

from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.fleet.free_resources import MANY
from purser.core.model import NodePolicy
from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies import NODE_POLICIES, Setting
from purser.core.placement.shape import PodShape, memory_of, resources_taken, view
from purser.core.placement.table import ShapeTable, place

PODS = st.lists(shapes(), min_size=1, max_size=12)
few = examples(10)  # for each of a dozen policies
every_policy = pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
some_policies = pytest.mark.parametrize("pair", some([p for p in PAIRS if "random" not in p], 3), ids=" and ".join)


def could_take(fleet: FleetArrays, pod: PodShape, row: int, gpu: int) -> bool:
    """Whether a GPU may take a pod, said once more, one number at a time."""
    free = fleet.slots_free[gpu, row]
    if gpu >= fleet.gpu_count[row] or fleet.closed[gpu, row] or free < 1 or fleet.alone[gpu, row]:
        return False
    if pod.is_alone and free < fleet.slots[gpu, row]:
        return False
    if fleet.memory_free_mib[gpu, row] < memory_of(pod, int(fleet.memory_mib[gpu, row])):
        return False
    cores = fleet.cores_free_percent[gpu, row]
    if cores < pod.gpu_cores_percent or (not pod.gpu_cores_percent and cores <= 0):
        return False
    return pod.takes_model(fleet.models[fleet.gpu_model[gpu, row]].name)


def fits(fleet: FleetArrays, pod: PodShape, row: int) -> bool:
    node = fleet.live[row] and fleet.pods_free[row] > 0 and fleet.cpu_free_milli[row] >= pod.cpu_milli
    gpus = sum(could_take(fleet, pod, row, gpu) for gpu in range(len(fleet.memory_mib)))
    return bool(node and fleet.memory_free_mib_of_node[row] >= pod.memory_mib and gpus >= pod.gpu_count)


@every_policy
@few
@given(facts=fleets(), pods=PODS)
def test_places_only_where_there_is_room_and_wherever_there_is(
    pair: tuple[str, str], facts: list[FleetNodeFacts], pods: list[PodShape]
) -> None:
    fleet = fleet_of(facts)
    table = ShapeTable(fleet, named(pair))
    for pod in pods:
        placement = place(table, pod)
        if placement is None:
            assert not any(fits(fleet, pod, row) for row in range(len(fleet.live)))
            continue
        row, gpus = placement
        assert fits(fleet, pod, row)
        assert len(set(gpus)) == len(gpus) == pod.gpu_count
        assert all(could_take(fleet, pod, row, gpu) for gpu in gpus)
        fleet.take(row, gpus, resources_taken(fleet, pod, row, gpus))
        assert_nothing_is_overcommitted(fleet)


def assert_nothing_is_overcommitted(fleet: FleetArrays) -> None:
    for field in ("memory_free_mib", "slots_free", "cpu_free_milli", "memory_free_mib_of_node", "pods_free"):
        assert (getattr(fleet, field) >= 0).all(), field
    assert (fleet.cores_free_percent >= 0).all()
    alone = fleet.alone > 0
    assert (fleet.slots_free[alone] == fleet.slots[alone] - 1).all(), "somebody is beside a pod that wants to be alone"


@some_policies
@few
@given(facts=fleets(), pods=PODS, asked=shapes())
def test_a_table_that_was_kept_says_what_a_new_one_says_in_whatever_rows_nodes_are(
    pair: tuple[str, str], facts: list[FleetNodeFacts], pods: list[PodShape], asked: PodShape
) -> None:
    kept = ShapeTable(fleet_of(facts), named(pair), most_shapes=3)
    place(kept, asked)
    taken = run(kept, pods)
    other = fleet_of([FleetNodeFacts("gone", ()), *reversed(facts)])
    other.remove_node("gone")
    for pod, got in zip(pods, taken, strict=True):
        if got is not None:
            row = other.rows.get(got[0])
            assert row is not None
            other.take(row, got[1], resources_taken(other, pod, row, got[1]))
    assert run(kept, [asked]) == run(ShapeTable(other, named(pair)), [asked])


@given(facts=fleets(), pods=PODS, asked=shapes())
def test_what_would_be_left_after_is_what_is_left_then(
    facts: list[FleetNodeFacts], pods: list[PodShape], asked: PodShape
) -> None:
    fleet = fleet_of(facts)
    run(ShapeTable(fleet, named(("spread", "spread"))), pods)
    seen = view(fleet, asked, all_rows(fleet))
    for gpu, row in zip(*seen.takes.nonzero(), strict=True):
        taken = resources_taken(fleet, asked, int(row), (int(gpu),))
        fleet.take(row, (gpu,), taken)
        assert fleet.left_milli[gpu, row] == seen.after[gpu, row]
        fleet.release(row, (gpu,), taken)
    assert (seen.left == fleet.left_milli).all()


H100 = GpuFacts("H100", 81_559, 10)
LARGE = [
    FleetNodeFacts("no limit of CPU", (H100,) * 8),
    FleetNodeFacts("GPUs like sand", (H100,) * 40, 192_000),
    *(FleetNodeFacts(f"{cpu} cores", (H100,) * 16, cpu * 1000) for cpu in (192, 256, 384)),
]
SHARE = PodShape(8000, 0, 1, gpu_memory_mib=20_000)


@pytest.mark.parametrize("word", NODE_POLICIES)
@few
@given(facts=fleets(), pods=PODS, asked=shapes())
@example(facts=LARGE, pods=[], asked=SHARE)
@example(facts=LARGE, pods=[SHARE] * 4, asked=PodShape(96_000, 0, 8, gpu_memory_percent=100))
def test_scores_are_from_0_to_100_on_nodes_of_any_size(
    word: NodePolicy, facts: list[FleetNodeFacts], pods: list[PodShape], asked: PodShape
) -> None:
    fleet = fleet_of(facts)
    run(ShapeTable(fleet, named((word, ""))), pods)
    seen = view(fleet, asked, all_rows(fleet))
    found = NODE_POLICIES[word].make(Setting(MIX)).score(seen)[seen.fits]
    assert ((found >= 0) & (found <= 100)).all(), found


@pytest.mark.parametrize("word", [NodePolicy.BEST_FIT, NodePolicy.DOT_PRODUCT])
def test_nodes_larger_than_the_largest_are_distinguished_too(word: NodePolicy) -> None:
    assert (np.diff(scores(word, LARGE[2:])) < 0).all()


@pytest.mark.parametrize("word", [NodePolicy.BEST_FIT, NodePolicy.DOT_PRODUCT])
def test_without_a_limit_of_cpu_gpus_count_as_elsewhere(word: NodePolicy) -> None:
    unlimited, limited = (
        scores(word, [FleetNodeFacts(f"{gpus} GPUs", (H100,) * gpus, cpu) for gpus in (2, 8)]) for cpu in (MANY, 64_000)
    )
    assert np.diff(unlimited) == pytest.approx(np.diff(limited), abs=1)


def scores(word: NodePolicy, facts: list[FleetNodeFacts]) -> Floats:
    fleet = fleet_of(facts)
    return NODE_POLICIES[word].make(Setting()).score(view(fleet, SHARE, all_rows(fleet)[: len(facts)]))


def spreading() -> FleetArrays:
    return fleet_of([FleetNodeFacts(f"node-{n:02}", (GpuFacts("T4", 1000, 10),) * 4, 64_000) for n in range(10)])


@pytest.mark.parametrize(
    ("pair", "nodes", "gpus"),
    [
        pytest.param(("binpack", "binpack"), 1, 1, id="binpack fills a GPU, then its node"),
        pytest.param(("best-fit", "best-fit"), 1, 1, id="best fit likewise"),
        pytest.param(("packing", "best-fit"), 1, 1, id="packing likewise"),
        pytest.param(("fragmentation", "fragmentation"), 1, 1, id="fragmentation likewise"),
        pytest.param(("binpack", "spread"), 1, 4, id="node and GPU are chosen separately"),
        pytest.param(("spread", "spread"), 4, 4, id="spread opens a node for each pod"),
    ],
)
def test_where_four_quarters_of_a_gpu_go(pair: tuple[str, str], nodes: int, gpus: int) -> None:
    got = run(ShapeTable(spreading(), named(pair)), [PodShape(1000, 0, 1, gpu_memory_mib=250)] * 4)
    placements = [placement for placement in got if placement is not None]
    assert len({node for node, _ in placements}) == nodes
    assert len(set(placements)) == gpus


def test_equally_good_nodes_are_taken_by_rank_then_by_name() -> None:
    fleet = FleetArrays()
    for name, rank in (("c", 0), ("b", 0), ("a", 1)):
        fleet.put_node(FleetNodeFacts(name, (GpuFacts("T4", 1000, 1),)), rank)
    got = run(ShapeTable(fleet, named(("best-fit", "best-fit"))), [PodShape(0, 0, 1, gpu_memory_mib=1000)] * 4)
    assert got == [("b", (0,)), ("c", (0,)), ("a", (0,)), None]


def test_random_depends_on_its_seed_and_reaches_every_gpu() -> None:
    pods = [PodShape(0, 0, 1, gpu_memory_mib=1)] * 300
    got = run(ShapeTable(spreading(), named(("random", "random"))), pods)
    assert len(set(got)) == 40
    again = run(ShapeTable(spreading(), named(("random", "random"))), pods)
    assert again == got
    assert all(one != other for one, other in list(pairwise(got))[:3])


def test_clustering_joins_pods_of_a_kind() -> None:
    one, share = PodShape(0, 0, 1, gpu_memory_mib=1000), PodShape(0, 0, 1, gpu_memory_mib=100)
    got = run(ShapeTable(spreading(), named(("clustering", "best-fit"))), [one, share, one, share])
    assert [placement and placement[0] for placement in got] == ["node-00", "node-01"] * 2


def test_a_mixed_policy_lies_between_its_parts() -> None:
    fleet = spreading()
    run(ShapeTable(fleet, named(("binpack", "binpack"))), [PodShape(0, 0, 1, gpu_memory_mib=250)])
    pod = PodShape(0, 0, 1, gpu_memory_mib=250)
    seen = view(fleet, pod, all_rows(fleet))
    one, other, mixed = (
        named((name, "best-fit")).rate(seen)[0] for name in ("binpack", "spread", "binpack=3, spread=1")
    )
    assert mixed == pytest.approx((3 * one + other) / 4)
    assert np.argmax(mixed) == np.argmax(one) != np.argmax(other)


def test_an_unknown_gpu_or_node_fits_nobody() -> None:
    table = ShapeTable(FleetArrays(), named(("best-fit", "best-fit")))
    assert place(table, PodShape()) is None
    table.fleet.put_node(FleetNodeFacts("node", ()))
    assert place(table, PodShape()) == (0, ())
    assert place(table, msgspec.structs.replace(PodShape(), gpu_count=1, gpu_memory_mib=1)) is None
