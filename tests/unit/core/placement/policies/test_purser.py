"""Purser's own policy: what it adds to FGD, on fleets small enough to see why."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.core.placement.policies.fleets import MIX, all_rows, fleet_of, fleets, run, shapes

from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.fleet.free_resources import MANY
from purser.core.interconnect import topology
from purser.core.model import Device, Link, PcieLevel
from purser.core.placement.mix import LearnedMix, Mix
from purser.core.placement.policies import Setting, policy
from purser.core.placement.policies.purser import Planner, Purser
from purser.core.placement.shape import PodShape, resources_taken, view
from purser.core.placement.table import ShapeTable, place

T4, A100 = GpuFacts("T4", 1000, 100), GpuFacts("A100", 1000, 100)


def share(milli: int, cpu_milli: int = 0, models: tuple[str, ...] = ()) -> PodShape:
    return PodShape(cpu_milli, 0, 1, gpu_memory_mib=milli, models=models)


def whole(count: int, cpu_milli: int = 0, models: tuple[str, ...] = ()) -> PodShape:
    return PodShape(cpu_milli, 0, count, gpu_memory_mib=1000, models=models)


def table(facts: list[FleetNodeFacts], counts: dict[PodShape, float], name: str = "purser") -> ShapeTable:
    return ShapeTable(fleet_of(facts), policy(name, setting=Setting(Mix.of(counts))))


def put(kept: ShapeTable, node: str, gpus: tuple[int, ...], pod: PodShape) -> None:
    row = kept.fleet.rows.get(node)
    assert row is not None
    kept.fleet.take(row, gpus, resources_taken(kept.fleet, pod, row, gpus))


def test_a_share_goes_where_it_breaks_no_pattern() -> None:
    counts = {share(650): 10.0, share(320): 10.0, share(330): 10.0}
    kept = table([FleetNodeFacts("a", (T4, T4))], counts)
    put(kept, "a", (0,), share(650))
    put(kept, "a", (1,), share(330))
    assert run(kept, [share(320)]) == [("a", (0,))], "beside 330 there is still room for 650"


def test_patterns_are_of_the_mix_not_of_the_tightest_fit() -> None:
    counts = {share(500): 10.0, share(300): 10.0}
    own, tight = (table([FleetNodeFacts("a", (T4, T4))], counts, name) for name in ("purser", "best-fit"))
    for kept in (own, tight):
        put(kept, "a", (0,), share(500))
        put(kept, "a", (1,), share(300))
    assert run(tight, [share(300)]) == [("a", (0,))]
    assert run(own, [share(300)]) == [("a", (1,))], "three of them fill a GPU, and the half is for another 500"


def test_nodes_are_kept_whole_for_pods_that_take_them_whole() -> None:
    nodes = [FleetNodeFacts("a", (T4,) * 4, 120_000), *(FleetNodeFacts(f"b-{n}", (T4,) * 4, 60_000) for n in range(9))]
    counts = {whole(1, 10_000): 40.0, whole(4, 100_000): 0.1}
    assert place_of(table(nodes, counts, "fragmentation"), whole(1, 10_000)) == "a"
    kept = table(nodes, counts)
    got = run(kept, [whole(1, 10_000)] * 36)
    assert {placed[0] for placed in got if placed} == {f"b-{n}" for n in range(9)}
    assert run(kept, [whole(4, 100_000)]) == [("a", (0, 1, 2, 3))]


def place_of(kept: ShapeTable, pod: PodShape) -> str | None:
    found = place(kept, pod)
    return None if found is None else kept.fleet.names[found[0]]


def test_a_kept_node_is_no_quota() -> None:
    kept = table([FleetNodeFacts("only", (T4,) * 4)], {whole(4): 1.0})
    assert run(kept, [whole(1)]) == [("only", (0,))]


def test_what_breaks_no_kept_node_may_go_there() -> None:
    nodes = [FleetNodeFacts("kept", (T4,) * 4, 64_000), FleetNodeFacts("small", (T4,), 20_000)]
    kept = table(nodes, {whole(4, 32_000): 1.0, whole(1, 8_000): 1.0})
    assert place_of(kept, PodShape(64_000)) == "kept"
    assert place_of(kept, PodShape(20_000)) == place_of(table(nodes, {whole(1, 8_000): 1.0}), PodShape(20_000))


def test_a_pod_without_gpus_goes_where_cpu_is_plenty() -> None:
    nodes = [FleetNodeFacts("a-tight", (T4,) * 4, 40_000), FleetNodeFacts("b-rich", (T4,) * 4, 100_000)]
    counts = {whole(1, 10_000): 10.0, PodShape(10_000): 2.0}
    assert place_of(table(nodes, counts), PodShape(10_000)) == "b-rich"
    assert place_of(table(nodes, counts, "fragmentation"), PodShape(10_000)) == "a-tight"


def test_gpus_that_pods_require_are_kept_for_them() -> None:
    nodes = [FleetNodeFacts("a", (A100,) * 2), FleetNodeFacts("b", (T4,) * 2)]
    counts = {whole(1): 5.0, whole(1, models=("A100",)): 5.0}
    assert place_of(table(nodes, counts), whole(1)) == "b"
    assert place_of(table(nodes, {whole(1): 5.0}), whole(1)) == "a"
    assert run(table(nodes, counts), [whole(1)] * 4)[2:] == [("a", (0,)), ("a", (1,))], "no quota either"


def test_without_any_mix_it_is_best_fit() -> None:
    facts = [FleetNodeFacts("a", (T4,) * 4), FleetNodeFacts("b", (T4,))]
    pods = [share(300), share(600), whole(1), whole(2), share(300)]
    untold = ShapeTable(fleet_of(facts), policy("purser"))
    assert run(untold, pods) == run(ShapeTable(fleet_of(facts), policy("best-fit")), pods)


def test_one_pod_that_came_is_a_mix() -> None:
    learned = LearnedMix()
    own = ShapeTable(fleet_of([FleetNodeFacts("a", (T4,) * 2)]), policy("purser", setting=Setting(learned)))
    for _ in range(4):
        learned.arrived(share(500))
        placed = run(own, [share(500)])
    assert placed == [("a", (1,))]
    assert (own.fleet.left_milli[:2, 0] == 0).all()


def test_cpu_that_kube_scheduler_counts_is_of_no_account_here() -> None:
    unlimited = table(
        [FleetNodeFacts("a", (T4,) * 2), FleetNodeFacts("b", (T4,) * 2)], {whole(1, 9_000): 5.0, whole(2): 1.0}
    )
    scores = unlimited.scores(whole(1, 9_000))
    assert abs(scores[:2]).max() <= 2e6
    assert unlimited.fleet.cpu_free_milli[0] == MANY
    assert run(unlimited, [whole(1, 9_000)] * 2) == [("a", (0,)), ("a", (1,))]


def test_nodes_that_join_are_planned_for() -> None:
    kept = table([FleetNodeFacts("a", (T4,) * 4)], {whole(1): 1.0, whole(4): 3.0})
    assert run(kept, [whole(1)]) == [("a", (0,))]
    kept.fleet.put_node(FleetNodeFacts("b", (T4,) * 4))
    before = kept.policy.epoch
    assert run(kept, [whole(1)]) == [("a", (1,))]
    assert kept.policy.epoch > before


@given(facts=fleets(), pods=st.lists(shapes(), max_size=8), asked=shapes())
def test_what_is_lost_is_kept_up_to_date(facts: list[FleetNodeFacts], pods: list[PodShape], asked: PodShape) -> None:
    own = policy("purser", setting=Setting(MIX))
    used = ShapeTable(fleet_of(facts), own)
    run(used, pods)
    seen = view(used.fleet, asked, all_rows(used.fleet))
    again = policy("purser", setting=Setting(MIX))
    begun = fleet_of(facts)
    again.rate(view(begun, asked, all_rows(begun)))  # the plan is of the fleet as it was when it was made
    for pod in pods:
        run(ShapeTable(begun, again), [pod])
    for one, other in zip(own.rate(seen), again.rate(view(begun, asked, all_rows(begun))), strict=True):
        assert one[seen.fits].tobytes() == other[seen.fits].tobytes()


@examples(30)
@given(facts=fleets(), pods=st.lists(shapes(), min_size=1, max_size=12), learns=st.booleans())
def test_it_never_overcommits_and_decides_alike_whether_planned_ahead_or_not(
    facts: list[FleetNodeFacts], pods: list[PodShape], learns: bool
) -> None:
    def decide(ahead: bool) -> tuple[object, FleetArrays]:
        learned = LearnedMix()
        mix = learned if learns else MIX
        planner = Planner(mix)
        kept = ShapeTable(fleet_of(facts), policy("purser", setting=Setting(mix, planner=planner)))
        got = []
        for pod in pods:
            learned.arrived(pod)
            if ahead:
                planner.plan_ahead(kept.fleet)
            got += run(kept, [pod])
        return got, kept.fleet

    (first, fleet), (second, _) = decide(ahead=False), decide(ahead=True)
    assert first == second
    for field in ("memory_free_mib", "slots_free", "cores_free_percent", "cpu_free_milli", "memory_free_mib_of_node"):
        assert (getattr(fleet, field) >= 0).all(), field


@pytest.mark.parametrize(
    ("pod", "node", "gpus", "said"),
    [
        pytest.param(share(350), "a", (0,), "uses all that is left of the GPU", id="full"),
        pytest.param(share(350), "a", (2,), "well suited to other shares", id="pattern"),
        pytest.param(share(350), "a", (1,), "poorly suited to other shares", id="no pattern"),
        pytest.param(whole(1, models=()), "b", (0,), "other pods require", id="scarce"),
        pytest.param(whole(4), "c", (0, 1, 2, 3), "keeps for this kind of pod", id="for whole nodes"),
        pytest.param(share(350), "c", (0,), "keeps for other kinds of pods", id="kept node"),
    ],
)
def test_it_says_why(pod: PodShape, node: str, gpus: tuple[int, ...], said: str) -> None:
    facts = [FleetNodeFacts("a", (T4,) * 3), FleetNodeFacts("b", (A100,)), FleetNodeFacts("c", (T4,) * 4)]
    counts = {share(650): 3.0, share(350): 3.0, whole(1, models=("A100",)): 2.0, whole(4): 0.5}
    kept = table(facts, counts)
    place(kept, pod)
    put(kept, "a", (0,), share(650))
    put(kept, "a", (1,), share(100))
    row = kept.fleet.rows.get(node)
    assert row is not None
    own = kept.policy
    assert isinstance(own, Purser)
    assert said in own.why(view(kept.fleet, pod, np.array([row], np.intp)), gpus)


def test_a_sentence_names_what_others_lose() -> None:
    kept = table([FleetNodeFacts("a", (T4,) * 2, 20_000)], {whole(1, 10_000): 5.0})
    place(kept, whole(1, 10_000))
    own = kept.policy
    assert isinstance(own, Purser)
    greedy = msgspec.structs.replace(whole(1), cpu_milli=15_000)
    sentence = own.why(view(kept.fleet, greedy, np.zeros(1, np.intp)), (0,))
    assert sentence.startswith("raises fragmentation by 1")
    assert "\n" not in sentence


def test_several_gpus_are_well_connected_ones_where_links_are_known() -> None:
    gpus = (T4,) * 4
    devices = [Device(uuid, place, "T4", 1000, links=_pairs(uuid)) for place, uuid in enumerate("abcd")]
    fleet = fleet_of([FleetNodeFacts("node", gpus, links=topology(devices))])
    learned = LearnedMix()
    assert Purser(Planner(learned)).choose(view(fleet, PodShape(0, 0, 2, 1000), np.array([0], np.intp))) in {
        (0, 2),
        (1, 3),
    }


def _pairs(uuid: str) -> tuple[Link, ...]:
    partner = {"a": "c", "c": "a", "b": "d", "d": "b"}[uuid]
    others = [other for other in "abcd" if other not in (uuid, partner)]
    return (Link(partner, PcieLevel.SINGLE_SWITCH, 4), *(Link(other, PcieLevel.CROSS_CPU, 0) for other in others))
