"""Known machines as devices with links: pairs of positions to NVLinks and PCIe levels."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random

from purser.core.interconnect import Topology, matrix, topology
from purser.core.model import Device, Link, PcieLevel

Pair = tuple[int, int]


def devices(
    count: int, nvlinks: Mapping[Pair, int], pcie: Mapping[Pair, PcieLevel], model: str = "V100"
) -> list[Device]:
    links: list[list[Link]] = [[] for _ in range(count)]
    for one, other in combinations(range(count), 2):
        level, lanes = pcie.get((one, other)), nvlinks.get((one, other), 0)
        if level is not None or lanes:
            links[one].append(Link(uuid(other), level, lanes))
            links[other].append(Link(uuid(one), level, lanes))
    return [Device(uuid(place), place, model, 16384, links=tuple(links[place])) for place in range(count)]


def uuid(place: int) -> str:
    return f"GPU-{place}"


def halves(switched: Sequence[Pair]) -> dict[Pair, PcieLevel]:
    """Two CPUs with four GPUs each; some pairs share a PCIe switch."""
    return {
        pair: PcieLevel.SINGLE_SWITCH
        if pair in switched
        else (PcieLevel.HOST_BRIDGE if pair[0] // 4 == pair[1] // 4 else PcieLevel.CROSS_CPU)
        for pair in combinations(range(8), 2)
    }


def dgx1_volta_devices() -> list[Device]:
    double = [(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)]
    single = [(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)]
    nvlinks = dict.fromkeys(double, 2) | dict.fromkeys(single, 1)
    return devices(8, nvlinks, halves([(0, 1), (2, 3), (4, 5), (6, 7)]))


def dgx1_pascal_devices() -> list[Device]:
    cliques = [pair for pair in combinations(range(8), 2) if pair[0] // 4 == pair[1] // 4]
    across = [(place, place + 4) for place in range(4)]
    return devices(8, dict.fromkeys(cliques + across, 1), halves([(0, 2), (1, 3), (4, 6), (5, 7)]), "P100")


def rtx8000_devices() -> list[Device]:
    pcie = {
        (0, 1): PcieLevel.SAME_CPU,
        (2, 3): PcieLevel.SAME_CPU,
        (0, 2): PcieLevel.CROSS_CPU,
        (1, 3): PcieLevel.CROSS_CPU,
    }
    return devices(4, {(0, 3): 2, (1, 2): 2}, pcie, "Quadro RTX 8000")


DGX1_VOLTA = topology(dgx1_volta_devices())
DGX1_PASCAL = topology(dgx1_pascal_devices())
RTX8000 = topology(rtx8000_devices())


def tree(count: int, nvlinks: int = 0) -> Topology:
    """Pairs on a switch, quads behind two, octets on a CPU; the same number of NVLinks between all (NVSwitch)."""
    levels = {2: PcieLevel.SINGLE_SWITCH, 4: PcieLevel.MULTI_SWITCH, 8: PcieLevel.SAME_CPU}
    pcie = {
        (i, j): next((level for width, level in levels.items() if i // width == j // width), PcieLevel.CROSS_CPU)
        for i, j in combinations(range(count), 2)
    }
    return topology(devices(count, dict.fromkeys(pcie, nvlinks), pcie))


def scored(scores: Sequence[Sequence[int]]) -> Topology:
    return Topology(tuple(range(len(scores))), tuple(map(tuple, scores)))


def random_topology(random: Random, count: int) -> Topology:
    """Of all kinds: few distinct scores (many ties), many distinct ones, sparse, in groups."""
    kind = random.randrange(4)
    choices: Sequence[int] = ([0, 1], [10, 20, 50, 110, 210], range(1000), [0, 0, 0, 100])[kind]
    pairs = {pair: random.choice(choices) for pair in combinations(range(count), 2)}
    if random.random() < 0.3:
        group = [random.randrange(3) for _ in range(count)]
        pairs = {(i, j): 100 if group[i] == group[j] else 10 for i, j in pairs}
    return scored(matrix(count, pairs))
