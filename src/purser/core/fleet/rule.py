"""Whether a GPU takes a container, and what is left of it then: the one rule of filter, bind, scores and reasons.

`obstacles` is arithmetic on the amounts of one GPU: `purser.core.placement.place` asks it of a node's GPUs, one by one.
numpy does it for the GPUs of all nodes at once (`look`); numba compiles it, and goes from one to the next
(`judge_one_by_one`). The order of the obstacles is that of HAMi's ``Fit`` for NVIDIA: the first one is the reason that
is given. NUMA binding is not here: it concerns sets of devices (`purser.core.placement.choice`).
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Obstacles = npt.NDArray[np.int16]
"""Bits."""

A = TypeVar("A", int, Obstacles)
F = TypeVar("F", bound=Callable[..., Any])

# The lower bits are of `purser.core.fleet.facts`. numba keeps compiled code on disk, and looks at this file alone to
# see whether it is outdated: so all that the code depends on is written here, the fields of its arguments too.
OTHER_MODEL = 1 << 4
OTHER_UUID = 1 << 5
UNENFORCED = 1 << 6
NO_SLOT = 1 << 7
NOT_IDLE = 1 << 8
OVER_QUOTA = 1 << 9
SHORT_OF_MEMORY = 1 << 10
SHORT_OF_CORES = 1 << 11
NO_COMPUTE = 1 << 12
NOT_ALONE = 1 << 13
NO_MIG_PLACEMENT = 1 << 14
UNLIKE_OTHERS = 1 << 15
"""Of single devices alone (`purser.core.placement.place`): arrays have no room for the bit, and do not know of it."""


class FleetColumns(NamedTuple):
    """What there is: arrays per GPU, then per node, as `purser.core.fleet.arrays.FleetArrays` has them."""

    closed: Obstacles
    memory_mib: npt.NDArray[np.int32]
    memory_free_mib: npt.NDArray[np.int32]
    cores_percent: npt.NDArray[np.int32]
    cores_free_percent: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]
    slots_free: npt.NDArray[np.int32]
    alone: npt.NDArray[np.int16]
    gpu_model: npt.NDArray[np.int16]
    left_milli: npt.NDArray[np.int16]
    live: Bools
    pods_free: Ints
    cpu_free_milli: Ints
    memory_free_mib_of_node: Ints
    mig_mask: npt.NDArray[np.int16]
    """Of fleets without GPUs that are cut on demand empty."""


class GpuDemand(NamedTuple):
    """What a pod asks of a node and of each GPU."""

    cpu_milli: int
    memory_mib_of_node: int
    gpu_count: int
    memory_mib: int
    memory_percent: int
    """0: the memory is in MiB."""
    cores_percent: int
    alone: bool
    idle_only: bool
    """Only unused GPUs."""
    of_model: Obstacles
    """By model, `OTHER_MODEL` and `UNENFORCED`."""
    mig_row: npt.NDArray[np.intp]
    """By model that is cut on demand, its row in the tables below; -1 for others."""
    mig_counts: npt.NDArray[np.int16]
    """[rows, masks]: how many instances it can have."""
    mig_after: npt.NDArray[np.int16]
    """[rows, masks]: what is left with one more, in thousandths."""


def bound(function: F, **others: Any) -> F:
    """The same function, to whom some of the functions that it calls are others: of arrays, or compiled ones."""
    return cast(F, FunctionType(function.__code__, {**function.__globals__, **others}, function.__name__))


def obstacles(
    closed: Any,
    also: Any,
    of_model: Any,
    slots: Any,
    slots_free: Any,
    alone: Any,
    memory_free: Any,
    memory: Any,
    cores: Any,
    cores_free: Any,
    cores_asked: Any,
    whole: Any,
    idle: Any,
) -> Any:
    """Everything that keeps a container off a GPU, as bits; 0: it fits. For one GPU, or for arrays of GPUs.

    ``closed``: why the GPU takes no pods (see `purser.core.fleet.facts`). ``also``: further obstacles, `OTHER_UUID` and
    `OVER_QUOTA`. ``of_model``: see `GpuDemand`. ``alone``: how many pods hold it exclusively. ``whole``: the container
    wants it exclusively; ``idle``: it has to be unused.
    """
    used = slots_free < slots
    return (
        closed
        | also
        | of_model
        | (slots_free <= 0) * NO_SLOT
        | (used & idle) * NOT_IDLE
        | (memory_free < memory) * SHORT_OF_MEMORY
        | (cores_free < cores_asked) * SHORT_OF_CORES
        | ((cores_asked == 0) & (cores > 0) & (cores_free <= 0)) * NO_COMPUTE
        # Held alone is only reached where a device's compute is over-booked (more than 100 percent): else all is taken.
        | ((used & whole) | (alone > 0)) * NOT_ALONE
    )


def partition_obstacles(
    closed: Any, also: Any, of_model: Any, slots: Any, slots_free: Any, idle: Any, places: Any
) -> Any:
    """As `obstacles`, of GPUs that are cut on demand: ``places`` says how many instances the container can have there,
    and amounts decide which (`purser.core.mig.on_demand.profile_for`)."""
    return (
        closed
        | also
        | of_model
        | (slots_free <= 0) * NO_SLOT
        | ((slots_free < slots) & idle) * NOT_IDLE
        | (places <= 0) * NO_MIG_PLACEMENT
    )


def left_milli(memory: Any, memory_free: Any, cores: Any, cores_free: Any, slots_free: Any, held: Any) -> Any:
    """How much of a GPU a next pod could have, in thousandths: of memory or compute, whichever is less. Of one GPU; of
    arrays of GPUs it is `left_after`. ``held``: not 0 where it is held exclusively.
    """
    less = min(1000 * memory_free // max(memory, 1), 1000 * cores_free // max(cores, 1))
    return max(less, 0) * ((slots_free > 0) & (memory > 0) & (cores > 0) & (held == 0))


left_after = bound(left_milli, min=np.minimum, max=np.maximum)


def memory_asked(memory: Any, mib: Any, percent: Any) -> Any:
    """What a container asks of a GPU with so much memory, in MiB, percentages rounded down; 0 percent: it asks in MiB.
    Of one GPU, or of an array of GPUs."""
    return memory * percent // 100 if percent else mib


def first(found: A) -> A:
    """Of several obstacles the one that is given as the reason."""
    return found & -found


def look(columns: FleetColumns, rows: npt.NDArray[np.intp], demand: GpuDemand) -> tuple[Ints, Ints, Bools, Bools]:
    """By GPU and row: what is left of it, what would be after it took the container (as it is where it does not),
    whether it takes it; by row, whether the node has all that the pod asks for."""
    here = of_rows(columns, rows)
    takes: Bools = judge(here, demand) == 0
    left, asked = here.left_milli.astype(np.int64), _memory_asked(here, demand)
    then: Ints = left_after(
        here.memory_mib,
        here.memory_free_mib - asked,
        here.cores_percent,
        here.cores_free_percent - np.int64(demand.cores_percent),
        here.slots_free - 1,
        demand.alone,
    )
    fits = here.live & (here.pods_free > 0) & (here.cpu_free_milli >= demand.cpu_milli)
    fits &= here.memory_free_mib_of_node >= demand.memory_mib_of_node
    taking = takes.sum(axis=0)
    if len(demand.mig_counts):
        is_partitioned, rows_of = here.mig_mask >= 0, demand.mig_row[here.gpu_model]
        then = np.where(is_partitioned, demand.mig_after[rows_of, here.mig_mask], then)
        taking = (takes * np.where(is_partitioned, places(here, demand), 1)).sum(axis=0)
    return left, np.where(takes, then, left), takes, fits & (taking >= demand.gpu_count)


def judge(here: FleetColumns, demand: GpuDemand, also: "Obstacles | int" = 0) -> Obstacles:
    """What stands between GPUs and a container; ``also``: see `obstacles`."""
    found: Obstacles = obstacles(
        closed=here.closed,
        also=also,
        of_model=demand.of_model[here.gpu_model],
        slots=here.slots,
        slots_free=here.slots_free,
        alone=here.alone,
        memory_free=here.memory_free_mib,
        memory=_memory_asked(here, demand),
        cores=here.cores_percent,
        cores_free=here.cores_free_percent,
        cores_asked=demand.cores_percent,
        whole=demand.alone,
        idle=demand.idle_only,
    ).astype(np.int16)
    if len(demand.mig_counts):
        cut = partition_obstacles(
            closed=here.closed,
            also=also,
            of_model=demand.of_model[here.gpu_model],
            slots=here.slots,
            slots_free=here.slots_free,
            idle=demand.idle_only,
            places=places(here, demand),
        ).astype(np.int16)
        found = np.where(here.mig_mask >= 0, cut, found)
    return found


def places(here: FleetColumns, demand: GpuDemand) -> Ints:
    """By GPU that is cut on demand, how many instances the container can have there; of others it may be anything."""
    found: Ints = np.minimum(demand.mig_counts[demand.mig_row[here.gpu_model], here.mig_mask], here.slots_free)
    return found


def of_rows(columns: FleetColumns, rows: npt.NDArray[np.intp]) -> FleetColumns:
    """These rows of all columns. ``take`` leaves them row-wise in memory, where picking by index would not."""
    return FleetColumns._make(column.take(rows, axis=-1) if column.size else column for column in columns)


def without_usage(here: FleetColumns, mig_held: npt.NDArray[np.int16]) -> FleetColumns:
    """The same GPUs with nothing taken of them, but what administrators hold of those that are cut on demand."""
    return here._replace(
        mig_mask=mig_held,
        memory_free_mib=here.memory_mib,
        cores_free_percent=here.cores_percent,
        slots_free=here.slots,
        alone=np.zeros_like(here.alone),
    )


def _memory_asked(here: FleetColumns, demand: GpuDemand) -> Any:
    return memory_asked(here.memory_mib, np.int64(demand.memory_mib), np.int64(demand.memory_percent))


def judge_one_by_one(rows: Any, *flat: Any) -> Any:
    """As `look`, one GPU after the other: for numba. ``flat``: the fields of `FleetColumns`, then those of `GpuDemand`.

    numba would take the named tuples themselves, but needs 3 microseconds more for each call, a third of what it takes
    to look at one node; to make them of their fields costs compiled code nothing.
    """
    there, demand = FleetColumns(*flat[:_COLUMNS]), GpuDemand(*flat[_COLUMNS:])
    gpus, nodes = there.memory_mib.shape[0], len(rows)
    before, after = np.empty((gpus, nodes), np.int64), np.empty((gpus, nodes), np.int64)
    takes, fits = np.empty((gpus, nodes), np.bool_), np.empty(nodes, np.bool_)
    taking = np.zeros(nodes, np.int64)
    some_are_partitioned = len(demand.mig_counts) > 0
    for g in range(gpus):
        for n in range(nodes):
            row = rows[n]
            closed, of_model = there.closed[g, row], demand.of_model[there.gpu_model[g, row]]
            slots, slots_free = there.slots[g, row], there.slots_free[g, row]
            before[g, n] = after[g, n] = there.left_milli[g, row]
            if some_are_partitioned and there.mig_mask[g, row] >= 0:
                table, mask = demand.mig_row[there.gpu_model[g, row]], there.mig_mask[g, row]
                places = min(np.int64(demand.mig_counts[table, mask]), np.int64(slots_free))
                takes[g, n] = partition_obstacles(closed, 0, of_model, slots, slots_free, demand.idle_only, places) == 0
                if takes[g, n]:
                    taking[n] += places
                    after[g, n] = demand.mig_after[table, mask]
                continue
            memory, memory_free = np.int64(there.memory_mib[g, row]), np.int64(there.memory_free_mib[g, row])
            cores, cores_free = np.int64(there.cores_percent[g, row]), np.int64(there.cores_free_percent[g, row])
            asked = memory_asked(memory, demand.memory_mib, demand.memory_percent)
            found = obstacles(
                closed,
                0,
                of_model,
                slots,
                slots_free,
                there.alone[g, row],
                memory_free,
                asked,
                cores,
                cores_free,
                demand.cores_percent,
                demand.alone,
                demand.idle_only,
            )
            takes[g, n] = found == 0
            if takes[g, n]:
                taking[n] += 1
                after[g, n] = left_milli(
                    memory, memory_free - asked, cores, cores_free - demand.cores_percent, slots_free - 1, demand.alone
                )
    for n in range(nodes):
        row = rows[n]
        has_room = (
            there.cpu_free_milli[row] >= demand.cpu_milli
            and there.memory_free_mib_of_node[row] >= demand.memory_mib_of_node
        )
        fits[n] = there.live[row] and there.pods_free[row] > 0 and has_room and taking[n] >= demand.gpu_count
    return before, after, takes, fits


_COLUMNS = len(FleetColumns._fields)
