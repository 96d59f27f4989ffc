"""Capacity of the whole fleet, what is granted to whom, and why the rest is unavailable: sums, computed node by node
and grant by grant, so that other requests can be served in between.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from purser.core.fleet import rule
from purser.core.fleet.facts import CORDONED, DISPUTED, UNHEALTHY
from purser.core.fleet.fleet import DeviceState, NodeState
from purser.core.ledger import NO_USAGE, Usage
from purser.core.mig.choice import chooser
from purser.core.mig.on_demand import kind_of
from purser.core.model import WHOLE_PERCENT, Device

_Amount = TypeVar("_Amount", int, float)

OTHER_NAMESPACES = "(others)"
"""Stands for the namespaces that are not named one by one, as no namespace can be called."""


_UNKNOWN_DEVICE = Device("", 0, "", 0)
"""Stands for GPUs that no node reports any more."""


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


_CLOSED_USES = {GpuUse.UNHEALTHY: UNHEALTHY, GpuUse.DISPUTED: DISPUTED, GpuUse.CORDONED: CORDONED}
"""The first that holds counts."""


def gpu_use(state: DeviceState) -> GpuUse:
    """The state of one GPU, or of one MIG device."""
    for word, bit in _CLOSED_USES.items():
        if state.closed & bit:
            return word
    device, usage = state.device, state.usage
    if usage == NO_USAGE and not device.mig_held:
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


def partitioned_gpu_use(uses: Collection[GpuUse]) -> GpuUse:
    """The state of a GPU with MIG devices in these states: closed as any of them, else idle or full as all of them."""
    if closed := next((word for word in _CLOSED_USES if word in uses), None):
        return closed
    return next((word for word in (GpuUse.IDLE, GpuUse.FULL) if all(use is word for use in uses)), GpuUse.SHARED)


def gpu_cores_percent(device: Device, usage: Usage) -> float:
    """What is taken of a device, in percent of its GPU's compute: instances and MIG devices count by their slices."""
    if (kind := kind_of(device)) is not None:
        profiles = filter(None, (kind.profile(each.profile) for each in usage.instances))
        return WHOLE_PERCENT * sum(each.compute_slices for each in profiles) / kind.compute_slices
    return device.gpu_part * usage.cores_percent


class HeldBy(NamedTuple):
    """The pods of which a sum is made."""

    namespace: str
    model: str
    """Of the GPUs that they hold; empty: these are gone."""
    policy: str
    """`purser.core.dialects.policies.node_policy_word`."""


class Totals:
    """Sums over a fleet, GPU by GPU: MIG devices are parts of theirs. Memory in MiB, compute in percent of a GPU."""

    def __init__(self) -> None:
        self.gpus: Counter[tuple[str, GpuUse]] = Counter()
        """By model and state."""
        self.memory_mib: Counter[str] = Counter()
        """By model."""
        self.granted_memory_mib: Counter[HeldBy] = Counter()
        self.granted_cores_percent: defaultdict[HeldBy, float] = defaultdict(float)
        """Shares without a limit of compute count as 0."""
        self.granted_gpus: Counter[HeldBy] = Counter()
        """A share of a GPU counts as one."""
        self._devices: dict[str, Device] = {}

    def add_node(self, node: NodeState) -> None:
        """Count a node's GPUs. Nodes come before grants."""
        parts: defaultdict[str, list[DeviceState]] = defaultdict(list)
        for state in node.devices:
            device = state.device
            self._devices[device.uuid] = device
            if device.parent:
                parts[device.parent].append(state)
            else:
                self._add_gpu(device.model, gpu_use(state), device.memory_mib)
        for gpu in node.inventory.cut:
            uses = {gpu_use(state) for state in parts.pop(gpu.uuid, ())}
            self._add_gpu(gpu.model, partitioned_gpu_use(uses) if gpu.healthy else GpuUse.UNHEALTHY, gpu.memory_mib)
        for states in parts.values():  # of an agent that does not list these GPUs
            memory = sum(state.device.memory_mib for state in states)
            self._add_gpu(states[0].device.model, partitioned_gpu_use({gpu_use(state) for state in states}), memory)

    def _add_gpu(self, model: str, use: GpuUse, memory_mib: int) -> None:
        self.gpus[model, use] += 1
        self.memory_mib[model] += memory_mib

    def add_pod(self, namespace: str, policy: str, held: Mapping[str, Usage]) -> None:
        """Count what a pod holds, by uuid, as the ledger counts it."""
        for uuid, usage in held.items():
            device = self._devices.get(uuid, _UNKNOWN_DEVICE)
            key = HeldBy(namespace, device.model, policy)
            self.granted_memory_mib[key] += usage.memory_mib
            self.granted_cores_percent[key] += gpu_cores_percent(device, usage)
            self.granted_gpus[key] += usage.slots


def merge_namespaces(amounts: Mapping[HeldBy, _Amount], kept: Iterable[str]) -> dict[HeldBy, _Amount]:
    """The same with all namespaces but these as `OTHER_NAMESPACES`: users who can create namespaces must not create
    unbounded series."""
    named = frozenset(kept)
    found: dict[HeldBy, _Amount] = {}
    for held_by, amount in amounts.items():
        key = held_by if held_by.namespace in named else held_by._replace(namespace=OTHER_NAMESPACES)
        found[key] = found[key] + amount if key in found else amount
    return found
