"""What a node has and what is taken of it, as `purser.core.fleet.arrays` takes it in."""

import msgspec

from purser.core.fleet.free_resources import MANY
from purser.core.interconnect import Topology
from purser.core.names import GPU_RESOURCE

UNHEALTHY, CORDONED, DISPUTED, ABSENT = 1, 2, 4, 8
"""Why a GPU takes no new pods; the last one where the node has no such GPU."""


class GpuFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU of a node, and what is taken of it."""

    model: str
    memory_mib: int
    slots: int
    cores_percent: int = 100
    mode: str = ""
    enforcement: str = ""
    closed: int = 0
    """Why it takes no new pods, as bits: `UNHEALTHY`, `CORDONED`, `DISPUTED`; 0: it does."""
    memory_taken_mib: int = 0
    cores_taken_percent: int = 0
    slots_taken: int = 0
    alone: int = 0
    """How many pods hold it alone."""
    resource: str = GPU_RESOURCE
    replicas: int = 1
    """See `purser.core.model.Device.replicas`. Where it is more than one, the amounts here are those of its next part,
    which is free or is not: to a container that is another device."""
    one_each: bool = False
    parts_free: int = 1
    """How many devices of one container it could be: of one that is divided, so many of its parts."""
    mig_kind: str = ""
    """See `purser.core.model.Device.mig_kind`."""
    mig_mask: int = -1
    """What is taken of one that is cut on demand; -1: it is not."""
    mig_held: int = -1
    """What its administrator took of it."""
    gpu_part: float = 1.0
    """See `purser.core.model.Device.gpu_part`."""


class FleetNodeFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node: what is free of CPU, memory and pods, and its GPUs."""

    name: str
    gpus: tuple[GpuFacts, ...]
    cpu_free_milli: int = MANY
    memory_free_mib: int = MANY
    pods_free: int = MANY
    kinds: tuple[tuple[int, int], ...] = ()
    """How many pods of each kind with GPUs it has, see `Take.kind`; for the clustering policy alone."""
    links: Topology | None = None
    """How its GPUs are connected, by their places; None: unknown."""


class Take(msgspec.Struct, frozen=True):
    """What a pod takes of a node, and of each of the GPUs it is given."""

    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    gpu_memory_percent: int = 0
    """Of the memory of whichever GPU, rounded down; beside it ``gpu_memory_mib`` is 0."""
    gpu_cores_percent: int = 0
    alone: bool = False
    """Whether the GPUs are exclusive to this container."""
    kind: int | None = None
    """0 for a share of one GPU, n for n GPUs, None without GPUs."""
    mig_bits: tuple[int, ...] = ()
    """Where GPUs are cut on demand: by GPU what its instance takes of the mask, 0 of others, which the amounts are of.
    Empty: none is."""
