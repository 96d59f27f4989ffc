"""Refusals in one sentence, for people: how many nodes and devices stand against the pod, and for what reason."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from purser.core.placement.reasons import Reason, Refusal, tally


class _Tally(msgspec.Struct):
    """One reason over all nodes."""

    reason: Reason
    nodes: int = 0
    devices: int = 0
    memory_needed_mib: int = 0
    memory_free_mib: int = 0
    cores_needed_percent: int = 0
    cores_free_percent: int = 0
    count_needed: int = 0
    detail: str = ""
    """One of them, where nodes have different ones."""

    def add(self, refusal: Refusal, devices: int, nodes: int) -> None:
        self.nodes += nodes
        self.devices += devices * nodes
        self.memory_needed_mib = max(self.memory_needed_mib, refusal.memory_needed_mib)
        self.memory_free_mib = max(self.memory_free_mib, refusal.memory_free_mib)
        self.cores_needed_percent = max(self.cores_needed_percent, refusal.cores_needed_percent)
        self.cores_free_percent = max(self.cores_free_percent, refusal.cores_free_percent)
        self.count_needed = max(self.count_needed, refusal.count_needed)
        self.detail = max(self.detail, refusal.detail)


def explain(refusals: Mapping[str, Refusal]) -> str:
    """Such as ``0 of 3 nodes fit: 2 nodes: 16 devices have no free slot; 1 node has no inventory``."""
    if not refusals:
        return "no node was offered"
    tallies = sorted(_tally(refusals.values()).values(), key=lambda t: (-t.nodes, -t.devices, t.reason))
    return f"0 of {_count(len(refusals), 'node')} fit: " + "; ".join(map(_clause, tallies))


def _tally(refusals: Iterable[Refusal]) -> dict[Reason, _Tally]:
    tallies: dict[Reason, _Tally] = {}
    for refusal, nodes in tally(refusals):
        for reason, devices in refusal.counts:
            tallies.setdefault(reason, _Tally(reason)).add(refusal, devices, nodes)
    return tallies


def _clause(tally: _Tally) -> str:
    if tally.reason in _OF_NODES:
        detail = f" ({tally.detail})" if tally.detail else ""
        return f"{_count(tally.nodes, 'node')} {_OF_NODES[tally.reason][tally.nodes > 1]}{detail}"
    return f"{_count(tally.nodes, 'node')}: {_count(tally.devices, 'device')} {_OF_DEVICES[tally.reason](tally)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _verb(tally: _Tally, one: str, many: str) -> str:
    return one if tally.devices == 1 else many


_OF_NODES = {
    Reason.UNREGISTERED: ("has no inventory", "have no inventory"),
    Reason.NO_DEVICES: ("has no devices", "have no devices"),
    Reason.KUBELET_BUSY: ("has pods on their way", "have pods on their way"),
    Reason.KUBELET_REFUSES: ("has a kubelet that would refuse the pod", "have kubelets that would refuse the pod"),
}

_OF_DEVICES: dict[Reason, Callable[[_Tally], str]] = {
    Reason.NOT_HEALTHY: lambda t: _verb(t, "is unhealthy", "are unhealthy"),
    Reason.CORDONED: lambda t: _verb(t, "is cordoned", "are cordoned"),
    Reason.TYPE_MISMATCH: lambda t: _verb(t, "is", "are") + " of another model or mode than asked for",
    Reason.UUID_MISMATCH: lambda t: _verb(t, "is", "are") + " excluded by the pod's choice of uuids",
    Reason.NUMA_NOT_FIT: lambda t: (
        _verb(t, "suits", "suit") + f", but no {t.count_needed} of them are on one NUMA node"
    ),
    Reason.SLOTS_EXHAUSTED: lambda t: _verb(t, "has", "have") + " no free slot",
    Reason.EXCLUSIVE_CONFLICT: lambda t: _verb(t, "is", "are") + " in use where one side wants to be alone",
    Reason.QUOTA_NOT_FIT: lambda t: "would exceed the namespace's quota",
    Reason.INSUFFICIENT_MEMORY: lambda t: (
        _verb(t, "has", "have") + f" less than {t.memory_needed_mib} MiB free (most: {t.memory_free_mib} MiB)"
    ),
    Reason.INSUFFICIENT_CORES: lambda t: (
        _verb(t, "has", "have")
        + f" less than {t.cores_needed_percent} percent of compute free (most: {t.cores_free_percent} percent)"
    ),
    Reason.CORES_EXHAUSTED: lambda t: _verb(t, "has", "have") + " no compute left",
    Reason.MIG_INFEASIBLE: lambda t: _verb(t, "has", "have") + " no room for a MIG profile that is large enough",
    Reason.TOO_FEW_CARDS: lambda t: _verb(t, "suits", "suit") + f", fewer than the {t.count_needed} needed on one node",
}
