"""The score of a pair, from what both ends report."""

from itertools import combinations

import pytest
from tests.unit.core.interconnect.machines import DGX1_PASCAL, DGX1_VOLTA, RTX8000, uuid

from purser.core.interconnect import pair_score, topology
from purser.core.model import Device, Link, PcieLevel

LEVELS = [
    (PcieLevel.CROSS_CPU, 10),
    (PcieLevel.SAME_CPU, 20),
    (PcieLevel.HOST_BRIDGE, 30),
    (PcieLevel.MULTI_SWITCH, 40),
    (PcieLevel.SINGLE_SWITCH, 50),
    (PcieLevel.SAME_BOARD, 60),
]


def link(pcie: PcieLevel | None = None, nvlinks: int = 0) -> Link:
    return Link("peer", pcie, nvlinks)


@pytest.mark.parametrize(("level", "score"), LEVELS)
@pytest.mark.parametrize("nvlinks", [0, 1, 6, 18])
def test_a_pair_scores_its_pcie_level_and_a_hundred_for_each_nvlink(level: PcieLevel, score: int, nvlinks: int) -> None:
    assert pair_score(link(level, nvlinks), link(level, nvlinks)) == score + 100 * nvlinks


@pytest.mark.parametrize(
    ("there", "back", "score"),
    [
        pytest.param(None, None, 0, id="nothing known"),
        pytest.param(link(PcieLevel.SAME_BOARD, 2), None, 260, id="only one end answers"),
        pytest.param(link(PcieLevel.SAME_BOARD, 2), link(PcieLevel.SAME_BOARD), 260, id="only one end sees NVLinks"),
        pytest.param(link(None, 2), link(PcieLevel.SAME_CPU, 2), 220, id="only one end knows its place on PCIe"),
        pytest.param(link(PcieLevel.SAME_CPU, 2), link(PcieLevel.SAME_CPU, 1), 20, id="NVLinks contradict each other"),
        pytest.param(link(PcieLevel.SAME_CPU), link(PcieLevel.SAME_BOARD), 20, id="PCIe levels contradict each other"),
        pytest.param(link(None, -3), link(None, 10**12), 100_000, id="counts that no GPU has"),
    ],
)
def test_reports_that_differ_are_read_alike_from_both_sides(there: Link | None, back: Link | None, score: int) -> None:
    assert pair_score(there, back) == pair_score(back, there) == score


def test_the_sets_of_known_machines_score_as_in_the_original() -> None:
    assert [DGX1_VOLTA.score(range(size)) for size in (4, 5, 6, 7, 8)] == [1120, 1360, 1750, 2250, 3000]
    assert [DGX1_PASCAL.score(range(size)) for size in (3, 4, 5, 7, 8)] == [410, 820, 960, 1650, 2200]
    assert RTX8000.score((0, 3)) == 200


def test_numa_nodes_decide_what_is_near_where_pcie_is_unknown() -> None:
    known = [Device(uuid(place), place, "A10", 1, numa_nodes=(place // 2,)) for place in range(4)]
    scores = topology(known).scores
    assert {(i, j): scores[i][j] for i, j in combinations(range(4), 2)} == {
        pair: 20 if pair in ((0, 1), (2, 3)) else 10 for pair in combinations(range(4), 2)
    }


def test_numa_nodes_add_nothing_where_pcie_is_known() -> None:
    links = ((Link(uuid(1), PcieLevel.SAME_BOARD),), (Link(uuid(0), PcieLevel.SAME_BOARD),))
    pair = [Device(uuid(place), place, "A10", 1, numa_nodes=(0,), links=links[place]) for place in range(2)]
    assert topology(pair).scores == ((0, 60), (60, 0))


def test_links_to_devices_that_are_not_there_are_ignored() -> None:
    alone = Device(uuid(0), 0, "V100", 1, links=(Link("gone", PcieLevel.SAME_BOARD, 2),))
    assert topology([alone]).scores == ((0,),)
