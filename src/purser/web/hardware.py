"""What a node's page shows of its hardware: a matrix of what connects its GPUs, as `nvidia-smi topo -m` prints it, and
of how near network devices are to them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from purser.core.model import PcieLevel
from purser.core.state import MAX_LINKED_GPUS, NodeDetails, StateKubelet, StateLink, StateNodeGpu, StatePoolPlace

SAME_DEVICE, UNKNOWN, DIFFERENT_COUNTS = "X", "?", "*"
_NVLINKS = "NV"
_LEVEL_WORDS = {
    PcieLevel.SAME_BOARD: "PSB",
    PcieLevel.SINGLE_SWITCH: "PIX",
    PcieLevel.MULTI_SWITCH: "PXB",
    PcieLevel.HOST_BRIDGE: "PHB",
    PcieLevel.SAME_CPU: "NODE",
    PcieLevel.CROSS_CPU: "SYS",
}
_MEANINGS = {
    f"{_NVLINKS}#": "this number of NVLinks, directly or through an NVSwitch",
    "PSB": "the same board",
    "PIX": "at most one PCIe switch",
    "PXB": "several PCIe switches, without a host bridge",
    "PHB": "a PCIe host bridge",
    "NODE": "the same NUMA node",
    "SYS": "another NUMA node",
    DIFFERENT_COUNTS: "the two GPUs report different numbers of NVLinks, so Purser counts none",
    UNKNOWN: "not known",
}
"""The nearest first."""


@dataclass(frozen=True)
class GpuLinksRow:
    """A GPU, and what connects it with the GPU of each column."""

    gpu: StateNodeGpu
    words: Sequence[str]
    numa_nodes: str
    """Empty: not known."""


@dataclass(frozen=True)
class PoolLinksRow:
    """Network devices of one place, and how near the GPU of each column is."""

    pool: StatePoolPlace
    words: Sequence[str]


@dataclass(frozen=True)
class NodeHardware:
    """What is shown of one node."""

    gpus: Sequence[GpuLinksRow]
    columns: Sequence[StateNodeGpu]
    """Those of `gpus` that have a column."""
    has_links: bool
    """Whether anything is known of what connects the GPUs."""
    pools: Sequence[PoolLinksRow]
    legend: Sequence[tuple[str, str]]
    """Words of both matrices, and what they mean."""
    kubelet: StateKubelet | None


def hardware_of(details: NodeDetails) -> NodeHardware:
    """What is shown of a node's details."""
    columns = details.gpus[:MAX_LINKED_GPUS]
    rows = [GpuLinksRow(each, _link_words(each, columns), numbers(each.numa_nodes)) for each in details.gpus]
    pools = [
        PoolLinksRow(each, [UNKNOWN if level is None else _LEVEL_WORDS[level] for level in each.levels[: len(columns)]])
        for each in details.pools
    ]
    shown = {word for row in rows for word in row.words}
    has_links = bool(shown - {SAME_DEVICE, UNKNOWN})
    words = (shown if has_links else set[str]()) | {word for row in pools for word in row.words}
    return NodeHardware(rows, columns, has_links, pools, list(_legend(words)), details.kubelet)


@dataclass(frozen=True)
class GpuLinks:
    """What is known of where one GPU is."""

    row: GpuLinksRow
    peers: Sequence[tuple[StateNodeGpu, str]]
    """Other GPUs of the node, each with the word for what connects the two; none: nothing is known of them."""
    pools: Sequence[tuple[StatePoolPlace, str]]
    """Network devices, each with the word for how near they are."""
    meanings: Mapping[str, str]
    """Of these words, as far as they have one."""


def links_of(hardware: NodeHardware, uuid: str) -> GpuLinks | None:
    """One GPU's part of what is shown of its node; None: the node's details do not have the GPU."""
    row = next((each for each in hardware.gpus if each.gpu.uuid == uuid), None)
    if row is None:
        return None
    peers = [(gpu, word) for gpu, word in zip(hardware.columns, row.words, strict=False) if gpu.uuid != uuid]
    column = next((at for at, gpu in enumerate(hardware.columns) if gpu.uuid == uuid), None)
    pools = [] if column is None else [(each.pool, each.words[column]) for each in hardware.pools]
    words = {word for _, word in (*peers, *pools)}
    return GpuLinks(row, peers if hardware.has_links else [], pools, {word: _meaning(word) for word in words})


def _meaning(word: str) -> str:
    if word.startswith(_NVLINKS):
        return _MEANINGS[f"{_NVLINKS}#"]
    return _MEANINGS.get(word.rstrip(DIFFERENT_COUNTS), "")


def numbers(some: Sequence[int]) -> str:
    """``0, 1``."""
    return ", ".join(map(str, some))


def _link_words(gpu: StateNodeGpu, columns: Sequence[StateNodeGpu]) -> list[str]:
    links = {link.peer: link for link in gpu.links}
    return [SAME_DEVICE if other is gpu else _link_word(links.get(other.uuid)) for other in columns]


def _link_word(link: StateLink | None) -> str:
    if link is None:
        return UNKNOWN
    if link.nvlinks:
        return f"{_NVLINKS}{link.nvlinks}"
    word = UNKNOWN if link.level is None else _LEVEL_WORDS[link.level]
    return word + (DIFFERENT_COUNTS if link.nvlinks_differ else "")


def _legend(words: set[str]) -> Iterator[tuple[str, str]]:
    known = {f"{_NVLINKS}#" if word.startswith(_NVLINKS) else word.rstrip(DIFFERENT_COUNTS) for word in words}
    if any(word.endswith(DIFFERENT_COUNTS) for word in words):
        known.add(DIFFERENT_COUNTS)
    return ((word, meaning) for word, meaning in _MEANINGS.items() if word in known)
