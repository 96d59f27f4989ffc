"""HAMi's topology-aware choice: pair scores and the sets chosen from them.

Source: its device/nvidia/{device,calculate_score}_test.go.
"""

from itertools import combinations

import pytest

from purser.core.interconnect import Topology, matrix, topology
from purser.core.model import Device, Link, PcieLevel
from purser.core.placement.choice import pick_connected as pick

CONNECTED = {(0, 1): 100, (0, 2): 200, (1, 2): 150}
NEGATIVE = {(0, 1): -5, (0, 2): -3, (1, 2): -1}


def scored(pairs: dict[tuple[int, int], int]) -> Topology:
    """Three GPUs with these scores."""
    return Topology((0, 1, 2), matrix(3, pairs))


@pytest.mark.parametrize(
    ("pairs", "count", "chosen"),
    [
        pytest.param(CONNECTED, 1, {1}, id="one: the worst connected, to keep the good ones together"),
        pytest.param(CONNECTED, 2, {0, 2}, id="two: the best pair"),
        pytest.param(NEGATIVE, 1, {0}, id="one, scores below zero"),
        pytest.param(NEGATIVE, 2, {1, 2}, id="two, scores below zero"),
    ],
)
def test_the_set_chosen(pairs: dict[tuple[int, int], int], count: int, chosen: set[int]) -> None:
    assert set(pick((0, 1, 2), count, (), scored(pairs))) == chosen


def test_without_scores_any_two_fit_and_the_first_are_taken() -> None:
    """Better than HAMi: any two would pass its test; here equals are always decided the same way."""
    assert pick((2, 1, 0), 2, (), scored({})) == (2, 1)


def linked(counts: dict[tuple[int, int], tuple[int, int]], pcie: PcieLevel | None = None) -> list[Device]:
    """Four GPUs; per pair the NVLinks that each end counts."""
    links: dict[int, list[Link]] = {i: [] for i in range(4)}
    for (i, j), (there, back) in counts.items():
        links[i].append(Link(f"gpu{j}", pcie, there))
        links[j].append(Link(f"gpu{i}", pcie, back))
    return [Device(f"gpu{i}", i, "V100", 16384, links=tuple(links[i])) for i in range(4)]


def pair_scores(devices: list[Device]) -> dict[tuple[int, int], int]:
    """The scores of all pairs that have any."""
    scores = topology(devices).scores
    return {(i, j): scores[i][j] for i, j in combinations(range(4), 2) if scores[i][j]}


def test_pair_scores_of_nvlinks() -> None:
    counts = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
    devices = linked({pair: (n, n) for pair, n in counts.items()})
    assert pair_scores(devices) == {pair: 100 * n for pair, n in counts.items()}


def test_links_whose_ends_disagree_score_nothing() -> None:
    assert pair_scores(linked({(0, 1): (2, 1), (2, 3): (1, 1)})) == {(2, 3): 100}


@pytest.mark.parametrize(
    ("level", "score"),
    [
        (PcieLevel.CROSS_CPU, 10),
        (PcieLevel.SAME_CPU, 20),
        (PcieLevel.HOST_BRIDGE, 30),
        (PcieLevel.MULTI_SWITCH, 40),
        (PcieLevel.SINGLE_SWITCH, 50),
        (PcieLevel.SAME_BOARD, 60),
    ],
)
def test_pcie_and_nvlink_add_up(level: PcieLevel, score: int) -> None:
    assert pair_scores(linked({(0, 1): (0, 0), (2, 3): (2, 2)}, level)) == {(0, 1): score, (2, 3): 200 + score}
