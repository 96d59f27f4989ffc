"""What a node has and what is taken of it, as `purser.core.fleet.arrays` takes it in."""

import msgspec

from purser.core.fleet.fleet import DeviceState, NodeState
from purser.core.fleet.room import MANY, NO_LIMIT, NodeRoom
from purser.core.interconnect import Topology, topology

UNHEALTHY, CORDONED, DISPUTED, ABSENT = 1, 2, 4, 8
"""Why a GPU takes no new pods; the last one where the node has no such GPU."""


class GpuFacts(msgspec.Struct, frozen=True):
    """One GPU of a node, and what is taken of it."""

    model: str
    memory_mib: int
    slots: int
    cores_percent: int = 100
    mode: str = ""
    closed: int = 0
    """Why it takes no new pods, as bits: `UNHEALTHY`, `CORDONED`, `DISPUTED`; 0: it does."""
    memory_taken_mib: int = 0
    cores_taken_percent: int = 0
    slots_taken: int = 0
    alone: int = 0
    """How many pods hold it alone."""


class FleetNodeFacts(msgspec.Struct, frozen=True):
    """One node: what is free of CPU, memory and pods, and its GPUs."""

    name: str
    gpus: tuple[GpuFacts, ...]
    cpu_free_milli: int = MANY
    memory_free_mib: int = MANY
    pods_free: int = MANY
    kinds: tuple[tuple[int, int], ...] = ()
    """How many pods of each kind with GPUs it has, see `Take.kind`; for the clustering policy alone."""
    links: Topology | None = None
    """How its GPUs are connected, by their places; None where nobody knows."""


class Take(msgspec.Struct, frozen=True):
    """What a pod takes of a node, and of each of the GPUs it is given."""

    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    gpu_memory_percent: int = 0
    """Of the memory of whichever GPU, rounded down; beside it ``gpu_memory_mib`` is 0."""
    gpu_cores_percent: int = 0
    alone: bool = False
    """Nobody else may use these GPUs meanwhile."""
    kind: int | None = None
    """0 for a share of one GPU, n for n GPUs, None without GPUs."""


def node_facts(
    node: NodeState,
    room: NodeRoom = NO_LIMIT,
    kinds: tuple[tuple[int, int], ...] = (),
    links: Topology | None = None,
) -> FleetNodeFacts:
    """A live node with what is left of it; without a word on that, only its GPUs are limited."""
    return FleetNodeFacts(
        node.name,
        tuple(map(gpu_facts, node.devices)),
        _bounded(room.cpu_free_milli),
        _bounded(room.memory_free_mib),
        _bounded(room.pods_free),
        kinds,
        links,
    )


def links_of(node: NodeState) -> Topology | None:
    """How a node's devices are connected, None where that is not known."""
    devices = [state.device for state in node.devices]
    return topology(devices) if any(device.links for device in devices) else None


def gpu_facts(state: DeviceState) -> GpuFacts:
    """One device, and what is taken of it."""
    device, used = state.device, state.usage
    return GpuFacts(
        device.model,
        _bounded(device.memory_mib),
        _bounded(device.slots),
        _bounded(device.cores_percent),
        device.mode,
        (not device.healthy) * UNHEALTHY | state.cordoned * CORDONED | bool(state.disputed) * DISPUTED,
        _bounded(used.memory_mib),
        _bounded(used.cores_percent),
        _bounded(used.slots),
        _bounded(min(used.exclusive, used.slots, 1000)),
    )


def _bounded(amount: int) -> int:
    """What nodes say of themselves may be anything."""
    return max(0, min(amount, MANY))
