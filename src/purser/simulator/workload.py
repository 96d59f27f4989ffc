"""What is simulated: nodes, pods, and the order in which they come."""

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import FleetNodeFacts
from purser.core.mig.on_demand import profile_for
from purser.core.mig.profiles import MIG_KINDS
from purser.core.model import WHOLE_MILLI
from purser.core.names import GPU_RESOURCE
from purser.core.placement.shape import PodShape, is_share, need_milli
from purser.core.vendors.catalogue import BY_RESOURCE

SLOTS = 1000
"""Of a GPU in a list that says nothing of slots: as many as there are thousandths."""

PODS_PER_NODE = 1001
"""Of a list that says nothing of it: as many as the published runs of FGD allowed."""


class SimPod(msgspec.Struct, frozen=True, gc=False):
    """A pod of the list."""

    name: str
    shape: PodShape
    arrives_s: float | None = None
    """Seconds since the list's beginning; None where the list has no times."""
    lasts_s: float | None = None
    """How long it runs once it is placed; None where the list has no times."""


class SimWorkload(msgspec.Struct, frozen=True):
    """A list of nodes and one of pods. Where the list gives thousandths, a GPU has 1000 MiB."""

    title: str
    nodes: tuple[FleetNodeFacts, ...]
    pods: tuple[SimPod, ...]
    notes: tuple[str, ...] = ()
    """What a reader of the results must know of where these lists come from."""

    @property
    def gpus(self) -> int:
        """How many there are."""
        return sum(len(node.gpus) for node in self.nodes)

    @property
    def capacity_milli(self) -> int:
        """All GPUs, in thousandths."""
        return WHOLE_MILLI * self.gpus

    @property
    def has_times(self) -> bool:
        """Whether every pod says when it comes and how long it stays."""
        return all(pod.arrives_s is not None and pod.lasts_s is not None for pod in self.pods)


class SimNodeChange(msgspec.Struct, frozen=True):
    """A node comes, or takes no more pods: those that it has run to their end."""

    at_s: float
    node: str
    is_open: bool


class Order(msgspec.Struct, frozen=True):
    """One sequence of events on a workload."""

    label: str
    """What people call it: the file it is from, or its seed."""
    seed: int
    """For policies that choose at random."""
    pods: npt.NDArray[np.int64]
    """Which pod of the workload arrives, one after the other."""
    ranks: tuple[int, ...]
    """Of the nodes: of equally good ones the one with the smallest is taken."""
    arrives_s: npt.NDArray[np.float64] | None = None
    """When each arrives; None where pods only arrive, one after the other."""
    end_s: float | None = None
    """When time ends; None: with the last departure as if no pod waited."""
    left_out: int = 0
    """Pods of the list that do not come, as together they ask for more than the load."""
    changes: tuple[SimNodeChange, ...] = ()
    """Of nodes, the first one first. Nodes that none is about are open all the time."""


def common_memory_mib(nodes: tuple[FleetNodeFacts, ...]) -> int:
    """The most common GPU size; a pod's request is in thousandths of it before it is placed."""
    sizes = [gpu.memory_mib for node in nodes for gpu in node.gpus]
    return max(set(sizes), key=lambda size: (sizes.count(size), size)) if sizes else WHOLE_MILLI


def mig_kinds(nodes: tuple[FleetNodeFacts, ...]) -> tuple[str, ...]:
    """Of the GPUs that are cut on demand."""
    return tuple(sorted({gpu.mig_kind for node in nodes for gpu in node.gpus if gpu.mig_kind}))


def has_bounds(nodes: tuple[FleetNodeFacts, ...]) -> bool:
    """Whether upper bounds can be computed: all GPUs are NVIDIA's, and none is cut on demand."""
    return not mig_kinds(nodes) and not any(gpu.resource in BY_RESOURCE for node in nodes for gpu in node.gpus)


def demand_milli(shape: PodShape, memory_mib: int, kinds: tuple[str, ...] = ()) -> int:
    """What a pod asks for, of GPUs with so much memory, all together; by MIG profile, of GPUs of the first of these
    kinds that offers it."""
    if shape.resource == GPU_RESOURCE:
        return shape.gpu_count * need_milli(shape, memory_mib) if shape.gpu_count else 0
    for kind in kinds:
        if (profile := profile_for(kind, shape.resource, 0, 0, 0)) is not None:
            return shape.gpu_count * (WHOLE_MILLI * profile.memory_slices // MIG_KINDS[kind].slices)
    return shape.gpu_count * WHOLE_MILLI


def class_of(shape: PodShape, memory_mib: int) -> str:
    """The class that a pod is counted in: ``CPU-only``, ``share``, ``1-GPU``, ``2-GPU``, ..., ``mig-1g.5gb``, ..."""
    if not shape.gpu_count:
        return "CPU-only"
    if shape.resource != GPU_RESOURCE:
        return shape.resource.partition("/")[2]
    return "share" if is_share(shape, memory_mib) else f"{shape.gpu_count}-GPU"


def ranked(workload: SimWorkload, order: Order) -> list[tuple[int, FleetNodeFacts]]:
    """The nodes with their ranks, in the order of both: numpy finds the first of equals where it looks first."""
    return sorted(zip(order.ranks, workload.nodes, strict=True), key=lambda pair: (pair[0], pair[1].name))


def fleet_of(workload: SimWorkload, order: Order) -> FleetArrays:
    """The nodes with nothing on them."""
    fleet = FleetArrays()
    for rank, node in ranked(workload, order):
        fleet.put_node(node, rank)
    return fleet
