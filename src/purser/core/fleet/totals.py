"""Capacity of the whole fleet, what is granted to whom, and why the rest is unavailable: sums, computed node by node
and grant by grant, so that other requests can be served in between.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from purser.core.fleet import rule
from purser.core.fleet.facts import CORDONED, DISPUTED, UNHEALTHY
from purser.core.fleet.fleet import DeviceState, NodeState
from purser.core.ledger import UNUSED, Usage
from purser.core.mig.choice import chooser
from purser.core.mig.on_demand import kind_of

OTHERS = "(others)"
"""Stands for the namespaces that are not named one by one, as no namespace can be called."""


class GpuUse(StrEnum):
    """Each GPU is in one state: the first of these that holds."""

    UNHEALTHY = "unhealthy"
    DISPUTED = "disputed"
    CORDONED = "cordoned"
    IDLE = "idle"
    """No pod holds anything of it."""
    FULL = "full"
    """Nothing is left for another pod: no slot, no memory or no compute, no place for a GPU instance."""
    SHARED = "shared"
    """Pods hold a part of it."""


def gpu_use(state: DeviceState) -> GpuUse:
    """The state of one GPU."""
    for bit, word in ((UNHEALTHY, GpuUse.UNHEALTHY), (DISPUTED, GpuUse.DISPUTED), (CORDONED, GpuUse.CORDONED)):
        if state.closed & bit:
            return word
    device, usage = state.device, state.usage
    if usage == UNUSED and not device.mig_held:
        return GpuUse.IDLE
    if device.mig_kind:
        return GpuUse.SHARED if _has_place(state) else GpuUse.FULL
    left = rule.left_milli(
        device.memory_mib,
        device.memory_mib - usage.memory_mib,
        device.cores_percent,
        device.cores_percent - usage.cores_percent,
        device.slots - usage.slots,
        usage.exclusive,
    )
    return GpuUse.FULL if left <= 0 else GpuUse.SHARED


def _has_place(state: DeviceState) -> bool:
    """Whether any instance more can be on a GPU that is cut on demand."""
    kind = kind_of(state.device)
    return kind is not None and bool(chooser(kind).counts[state.mig_mask].any())


class Totals:
    """Sums over a fleet. Memory in MiB, compute in percent of a GPU."""

    def __init__(self) -> None:
        self.gpus: Counter[tuple[str, GpuUse]] = Counter()
        """By model and state."""
        self.memory_mib: Counter[str] = Counter()
        """By model."""
        self.granted_memory_mib: Counter[tuple[str, str]] = Counter()
        """By namespace and model."""
        self.granted_cores_percent: Counter[tuple[str, str]] = Counter()
        """By namespace and model; shares without a limit of compute count as 0."""
        self._model_of: dict[str, str] = {}

    def add_node(self, node: NodeState) -> None:
        """Count a node's GPUs. Nodes come before grants."""
        for state in node.devices:
            device = state.device
            self._model_of[device.uuid] = device.model
            self.gpus[device.model, gpu_use(state)] += 1
            self.memory_mib[device.model] += device.memory_mib

    def add_pod(self, namespace: str, held: Mapping[str, Usage]) -> None:
        """Count what a pod holds, by uuid, as the ledger counts it. GPUs that are gone have an empty model."""
        for uuid, usage in held.items():
            key = (namespace, self._model_of.get(uuid, ""))
            self.granted_memory_mib[key] += usage.memory_mib
            self.granted_cores_percent[key] += usage.cores_percent


def fewer_namespaces(amounts: Counter[tuple[str, str]], kept: Iterable[str]) -> dict[tuple[str, str], int]:
    """The same with all namespaces but these as `OTHERS`: users who can create namespaces must not create unbounded
    series."""
    named = frozenset(kept)
    found: Counter[tuple[str, str]] = Counter()
    for (namespace, model), amount in amounts.items():
        found[namespace if namespace in named else OTHERS, model] += amount
    return dict(found)
