"""How well each pair of a node's GPUs is connected, as one number.

The numbers are those of NVIDIA's go-gpuallocator: 10 (across CPUs) to 60 (same board) for the nearest common ancestor
on PCIe, plus 100 for each NVLink. Unlike there, NVLinks through an NVSwitch count: `Link.nvlinks` includes them.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import msgspec

from purser.core.model import Device, Link, PcieLevel

PCIE_SCORE = {
    PcieLevel.CROSS_CPU: 10,
    PcieLevel.SAME_CPU: 20,
    PcieLevel.HOST_BRIDGE: 30,
    PcieLevel.MULTI_SWITCH: 40,
    PcieLevel.SINGLE_SWITCH: 50,
    PcieLevel.SAME_BOARD: 60,
}
NVLINK_SCORE = 100
"""For each NVLink between the two."""
MAX_NVLINKS = 1000
"""More than any GPU has (18 so far): what an inventory claims beyond is not believed, and sums stay within 32 bits."""

Scores = tuple[tuple[int, ...], ...]
"""A symmetric matrix by position, zeros on the diagonal."""


class Topology(msgspec.Struct, frozen=True):
    """The GPUs of one node by position, and the score of each pair."""

    indexes: tuple[int, ...]
    """NVML's indexes: only the static policies, which know machines by them, and `simple` look at these."""
    scores: Scores

    def score(self, positions: Sequence[int]) -> int:
        """The sum over all pairs of a set."""
        return sum(self.scores[one][other] for one, other in combinations(positions, 2))


def topology(devices: Sequence[Device]) -> Topology:
    """The topology of a node's devices, in their order."""
    links = [{link.peer: link for link in device.links} for device in devices]
    pairs = {
        (i, j): _score_with_numa_fallback(
            devices[i], devices[j], links[i].get(devices[j].uuid), links[j].get(devices[i].uuid)
        )
        for i, j in combinations(range(len(devices)), 2)
    }
    return Topology(
        indexes=tuple(device.index for device in devices),
        scores=matrix(len(devices), pairs),
    )


def matrix(count: int, pairs: Mapping[tuple[int, int], int]) -> Scores:
    """The scores of ``count`` devices from those of their pairs, the smaller position first; a missing pair has 0."""
    rows = [[0] * count for _ in range(count)]
    for (i, j), score in pairs.items():
        rows[i][j] = rows[j][i] = score
    return tuple(map(tuple, rows))


def pair_score(there: Link | None, back: Link | None) -> int:
    """The score of two GPUs from what each end reports of the other.

    A link is the same thing seen from both ends, yet reports differ: a GPU that has just failed, or a driver that
    cannot be asked, reports less (NVIDIA/k8s-device-plugin issue 448; the Go original panics there and the whole plugin
    with it). If one end reports nothing, the other one's report counts. Where both ends count NVLinks and contradict
    each other, a link is half down: its NVLinks do not count, so that such a pair is chosen last (HAMi scores it 0 as
    well). Of two PCIe levels the farther one counts.
    """
    return _level_score(_farther_level(there, back)) + NVLINK_SCORE * _agreed_nvlinks(there, back)


class Connection(msgspec.Struct, frozen=True, gc=False):
    """What connects two GPUs, as `topology` scores it."""

    level: PcieLevel | None
    """By PCIe, or else by NUMA nodes; None: not known."""
    nvlinks: int
    nvlinks_differ: bool
    """Whether the two ends count different numbers of NVLinks: then none counts."""


def connection(one: Device, other: Device) -> Connection:
    """What connects two GPUs of a node."""
    there = next((link for link in one.links if link.peer == other.uuid), None)
    back = next((link for link in other.links if link.peer == one.uuid), None)
    level = _farther_level(there, back) or numa_level(one.numa_nodes, other.numa_nodes)
    return Connection(level, _agreed_nvlinks(there, back), len(_nvlink_counts(there, back)) > 1)


def numa_level(one: Collection[int], other: Collection[int]) -> PcieLevel | None:
    """How far apart two devices are by their NUMA nodes; None where those of either are not known."""
    if not one or not other:
        return None
    return PcieLevel.CROSS_CPU if set(one).isdisjoint(other) else PcieLevel.SAME_CPU


def _score_with_numa_fallback(one: Device, other: Device, there: Link | None, back: Link | None) -> int:
    """NUMA nodes give the distance where neither end knows its place on PCIe."""
    score = pair_score(there, back)
    if _farther_level(there, back) is not None:
        return score
    return score + _level_score(numa_level(one.numa_nodes, other.numa_nodes))


def _farther_level(there: Link | None, back: Link | None) -> PcieLevel | None:
    levels = (end.pcie for end in (there, back) if end is not None and end.pcie is not None)
    return min(levels, key=PCIE_SCORE.__getitem__, default=None)


def _level_score(level: PcieLevel | None) -> int:
    return 0 if level is None else PCIE_SCORE[level]


def _agreed_nvlinks(there: Link | None, back: Link | None) -> int:
    counts = _nvlink_counts(there, back)
    return min(counts.pop(), MAX_NVLINKS) if len(counts) == 1 else 0


def _nvlink_counts(there: Link | None, back: Link | None) -> set[int]:
    return {end.nvlinks for end in (there, back) if end is not None and end.nvlinks > 0}
