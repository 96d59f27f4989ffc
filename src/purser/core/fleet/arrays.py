"""The fleet as a structure of arrays: one row per node, the GPU axis first, so that numpy runs along the nodes.

Every change touches one row and stamps it, so that caches computed from rows (`purser.core.placement.table`) know which
ones to recompute. Policies read ``left_milli``: how much of each GPU a new pod could still have, in thousandths.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from purser.core.fleet import rule
from purser.core.fleet.facts import ABSENT, CORDONED, FleetNodeFacts, Take
from purser.core.interconnect import Topology
from purser.core.mig import MIG_KINDS
from purser.core.mig.choice import chooser
from purser.core.names import GPU_RESOURCE

Rows = npt.NDArray[np.intp]
"""Row numbers."""

MAX_NUMBERED_MODELS = 256
"""Nodes say of themselves what they have, and may say something new each time."""

POD_KINDS = 17
"""Of pods by what they take: a share, 1 to 15 GPUs, and more."""

_PER_GPU: dict[str, npt.DTypeLike] = {
    "memory_mib": np.int32,
    "memory_free_mib": np.int32,
    "cores_percent": np.int32,
    "cores_free_percent": np.int32,
    "slots": np.int32,
    "slots_free": np.int32,
    "alone": np.int16,
    "parts_free": np.int16,
    "closed": np.int16,
    "gpu_model": np.int16,
    "left_milli": np.int16,
}
_PER_PARTITIONED_GPU: dict[str, npt.DTypeLike] = {"mig_mask": np.int16, "mig_held": np.int16}
_EMPTY = {"closed": ABSENT, **dict.fromkeys(_PER_PARTITIONED_GPU, -1)}
"""What stands where a node has no such GPU; else 0."""
_PER_NODE: dict[str, npt.DTypeLike] = {
    "gpu_count": np.int16,
    "node_model": np.int16,
    "cpu_free_milli": np.int64,
    "memory_free_mib_of_node": np.int64,
    "pods_free": np.int64,
    "live": np.bool_,
    "rank": np.int64,
    "changed_at": np.int64,
    "came_at": np.int64,
}


class Model(NamedTuple):
    """One kind of GPU."""

    name: str
    memory_mib: int
    """Of one part, where it is divided."""
    mode: str = ""
    resource: str = GPU_RESOURCE
    replicas: int = 1
    one_each: bool = False
    enforcement: str = ""
    """What holds shares of it."""
    mig_kind: str = ""
    """Of those that are cut on demand."""
    gpu_part: float = 1.0
    """See `purser.core.model.Device.gpu_part`."""


class FleetArrays:
    """Rows of nodes. The arrays are for reading; they are replaced when the fleet outgrows them.

    Per GPU, shape [GPUs, rows], 0 where a node has no such GPU: ``memory_mib``, ``memory_free_mib``, ``cores_percent``,
    ``cores_free_percent``, ``slots``, ``slots_free``, ``alone`` (how many hold it alone), ``parts_free`` (see
    `purser.core.fleet.facts.GpuFacts`), ``closed`` (why it takes no new pods, see `purser.core.fleet.facts`; `ABSENT`
    where a node has no such GPU), ``gpu_model`` (place in ``models``), ``left_milli`` (see
    `purser.core.fleet.rule.left_milli`), ``mig_mask`` and ``mig_held`` (what is taken of a GPU that is cut on demand,
    and what of that by its administrator; -1 for others).

    Per node, shape [rows]: ``gpu_count``, ``node_model`` (that which most of its GPUs' memory is of, -1 without any),
    ``cpu_free_milli``, ``memory_free_mib_of_node``, ``pods_free``, ``live`` (whether the row is a node), ``rank`` (see
    `order`), ``changed_at`` (the clock at its last change), ``came_at`` (the clock when the node came to the row).

    ``pods_of_kind``, shape [`POD_KINDS`, rows]: how many pods with GPUs a node has of each kind (see `Take.kind`).
    """

    memory_mib: npt.NDArray[np.int32]
    memory_free_mib: npt.NDArray[np.int32]
    cores_percent: npt.NDArray[np.int32]
    cores_free_percent: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int32]
    slots_free: npt.NDArray[np.int32]
    alone: npt.NDArray[np.int16]
    parts_free: npt.NDArray[np.int16]
    closed: npt.NDArray[np.int16]
    gpu_model: npt.NDArray[np.int16]
    left_milli: npt.NDArray[np.int16]
    mig_mask: npt.NDArray[np.int16]
    mig_held: npt.NDArray[np.int16]
    gpu_count: npt.NDArray[np.int16]
    node_model: npt.NDArray[np.int16]
    cpu_free_milli: npt.NDArray[np.int64]
    memory_free_mib_of_node: npt.NDArray[np.int64]
    pods_free: npt.NDArray[np.int64]
    live: npt.NDArray[np.bool_]
    rank: npt.NDArray[np.int64]
    changed_at: npt.NDArray[np.int64]
    came_at: npt.NDArray[np.int64]
    pods_of_kind: npt.NDArray[np.int32]

    def __init__(self) -> None:
        self.clock = 0
        """Grows with every change."""
        self.moves = 0
        """Grows whenever a node comes to a row, or leaves it."""
        self.last_came_at = 0
        """The clock when a node came to a row last."""
        self.names: list[str] = []
        """Of the rows; empty for a row that is not a node."""
        self.models: tuple[Model, ...] = ()
        """Another tuple whenever one of them is another."""
        self.has_partitioned_gpus = False
        """Whether any of them is cut on demand."""
        self.links: list[Topology | None] = []
        """Of the rows: how their GPUs are connected, by their places."""
        self._row_of: dict[str, int] = {}
        self._spare: list[int] = []
        self._model_numbers: dict[Model, int] = {}
        self._order: npt.NDArray[np.int64] | None = None
        self._allocate(8, 16)

    @property
    def rows(self) -> Mapping[str, int]:
        """The row of each node."""
        return self._row_of

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The place of every row when nodes are sorted by rank, then by name: of equally good ones the first is taken.

        Row numbers carry no meaning: they depend on which nodes were added and removed before.
        """
        if self._order is None:
            rows = sorted(self._row_of.values(), key=lambda row: (self.rank[row], self.names[row]))
            self._order = np.full(len(self.live), len(rows), np.int64)
            self._order[rows] = np.arange(len(rows))
        return self._order

    def put_node(self, node: FleetNodeFacts, rank: int = 0) -> int:
        """Add a node, or take it as it now is. Returns its row."""
        row = self._row_of.get(node.name)
        if row is None:
            row = self._spare.pop() if self._spare else self._new_row()
            self._row_of[node.name] = row
            self.names[row] = node.name
            self.moves += 1
        if row >= len(self.live) or len(node.gpus) > len(self.memory_mib):
            self._enlarge(len(node.gpus), row)
        if not self.live[row] or self.rank[row] != rank:
            self._order = None
        if not self.live[row]:
            self.last_came_at = self.clock + 1
        came_at = int(self.came_at[row]) if self.live[row] else self.last_came_at
        self._clear(row)
        self._write_row(row, node, rank)
        self._mark_changed(row)
        self.came_at[row] = came_at
        return row

    def remove_node(self, name: str) -> None:
        """Forget a node; its row is used again."""
        row = self._row_of.pop(name, None)
        if row is not None:
            self.names[row] = ""
            self.moves += 1
            self._clear(row)
            self._spare.append(row)
            self._order = None
            self._mark_changed(row)

    def assign_model_numbers(self, models: Sequence[Model]) -> None:
        """Give these models their numbers, in this order, before any node has one of them."""
        for model in models[:MAX_NUMBERED_MODELS]:
            self._model_number(model)

    def rank_nodes(self, ranks: Mapping[str, int]) -> None:
        """Order the nodes by these ranks; those that are not named stay as they are."""
        for name, rank in ranks.items():
            if (row := self._row_of.get(name)) is not None:
                self.rank[row] = rank
        self._order = None

    def contents(self, row: int) -> dict[str, object]:
        """All that is known of a row's node: equal for equal nodes, whatever their rows and their models' numbers."""
        count, per_gpu = int(self.gpu_count[row]), (_PER_GPU | _PER_PARTITIONED_GPU).keys() - {"gpu_model"}
        known: dict[str, object] = {field: getattr(self, field)[:count, row].tolist() for field in sorted(per_gpu)}
        known |= {
            f: getattr(self, f)[row].item() for f in _PER_NODE if f not in ("node_model", "changed_at", "came_at")
        }
        known["gpu_model"] = [self.models[number] for number in self.gpu_model[:count, row].tolist()]
        known["node_model"] = self.models[self.node_model[row]] if self.node_model[row] >= 0 else None
        known["pods_of_kind"], known["links"] = self.pods_of_kind[:, row].tolist(), self.links[row]
        beyond = (getattr(self, field)[count:, row] == _EMPTY.get(field, 0) for field in per_gpu)
        known["beyond"] = "" if all(each.all() for each in beyond) else "GPUs that the node does not have"
        return known

    def take(self, row: int, gpus: Sequence[int], taken: Take) -> None:
        """A pod takes its share of some GPUs of a node, by their places."""
        self._add(row, gpus, taken, -1)

    def release(self, row: int, gpus: Sequence[int], taken: Take) -> None:
        """It gives them back."""
        self._add(row, gpus, taken, 1)

    def set_gpus_open(self, row: int, *, is_open: bool) -> None:
        """The GPUs of a node take new pods from now on, or take none as if they were cordoned; what is taken stays."""
        for gpu in range(int(self.gpu_count[row])):
            self.closed[gpu, row] = self.closed[gpu, row] & ~CORDONED if is_open else self.closed[gpu, row] | CORDONED
            self._write_remaining(gpu, row)
        self._mark_changed(row)

    def _add(self, row: int, gpus: Sequence[int], taken: Take, sign: int) -> None:
        self.cpu_free_milli[row] += sign * taken.cpu_milli
        self.memory_free_mib_of_node[row] += sign * taken.memory_mib
        self.pods_free[row] += sign
        if taken.kind is not None:
            self.pods_of_kind[min(taken.kind, POD_KINDS - 1), row] -= sign
        for gpu, bits in zip(gpus, taken.mig_bits or (0,) * len(gpus), strict=True):
            self.slots_free[gpu, row] += sign
            if bits:
                assert bool(self.mig_mask[gpu, row] & bits) is (sign > 0)
                self.mig_mask[gpu, row] ^= bits
                self._write_remaining(gpu, row)
                continue
            memory = rule.memory_asked(int(self.memory_mib[gpu, row]), taken.gpu_memory_mib, taken.gpu_memory_percent)
            self.memory_free_mib[gpu, row] += sign * memory
            self.cores_free_percent[gpu, row] += sign * taken.gpu_cores_percent
            if taken.alone:
                self.alone[gpu, row] -= sign
            self._write_remaining(gpu, row)
        self._mark_changed(row)

    def _write_remaining(self, gpu: int, row: int) -> None:
        """What is left of a GPU: a policy sees no more of it than that."""
        if self.has_partitioned_gpus and self.mig_mask[gpu, row] >= 0:
            is_open = not self.closed[gpu, row] and self.slots_free[gpu, row] > 0
            kind = MIG_KINDS.get(self.models[self.gpu_model[gpu, row]].mig_kind)
            left = chooser(kind).left_milli[self.mig_mask[gpu, row]] if is_open and kind is not None else 0
            self.left_milli[gpu, row] = left
            return
        self.left_milli[gpu, row] = rule.left_milli(
            int(self.memory_mib[gpu, row]),
            int(self.memory_free_mib[gpu, row]),
            int(self.cores_percent[gpu, row]),
            int(self.cores_free_percent[gpu, row]),
            int(self.slots_free[gpu, row]),
            int(self.closed[gpu, row]) | int(self.alone[gpu, row]),
        )

    def _write_row(self, row: int, node: FleetNodeFacts, rank: int) -> None:
        for place, gpu in enumerate(node.gpus):
            self.memory_mib[place, row] = gpu.memory_mib
            self.memory_free_mib[place, row] = gpu.memory_mib - gpu.memory_taken_mib
            self.cores_percent[place, row] = gpu.cores_percent
            self.cores_free_percent[place, row] = gpu.cores_percent - gpu.cores_taken_percent
            self.slots[place, row] = gpu.slots
            self.slots_free[place, row] = gpu.slots - gpu.slots_taken
            self.alone[place, row], self.closed[place, row] = gpu.alone, gpu.closed
            self.parts_free[place, row] = gpu.parts_free
            if gpu.mig_kind:
                self.mig_mask[place, row], self.mig_held[place, row] = gpu.mig_mask, gpu.mig_held
            handed_out = (gpu.mode, gpu.resource, gpu.replicas, gpu.one_each, gpu.enforcement, gpu.mig_kind)
            self.gpu_model[place, row] = self._model_number(Model(gpu.model, gpu.memory_mib, *handed_out, gpu.gpu_part))
            self._write_remaining(place, row)
        for kind, pods in node.kinds:
            self.pods_of_kind[min(kind, POD_KINDS - 1), row] += pods
        self.gpu_count[row] = len(node.gpus)
        self.node_model[row] = self._main_model(row, len(node.gpus))
        self.cpu_free_milli[row], self.memory_free_mib_of_node[row] = node.cpu_free_milli, node.memory_free_mib
        self.pods_free[row], self.links[row] = node.pods_free, node.links
        self.live[row], self.rank[row] = True, rank

    def _main_model(self, row: int, gpus: int) -> int:
        """The model of most of a node's GPUs, by memory: MIG devices may stand before GPUs. Of equals the first."""
        models: list[int] = self.gpu_model[:gpus, row].tolist()
        if len(set(models)) < 2:
            return models[0] if models else -1
        memory: Counter[int] = Counter()
        for number, mib in zip(models, self.memory_mib[:gpus, row].tolist(), strict=True):
            memory[number] += mib
        return memory.most_common(1)[0][0]

    def _model_number(self, model: Model) -> int:
        known = self._model_numbers.get(model)
        if known is not None:
            return known
        number = self._free_model_number()
        for before in self.models[number : number + 1]:
            del self._model_numbers[before]
        self._model_numbers[model] = number
        self.models = (*self.models[:number], model, *self.models[number + 1 :])
        self.has_partitioned_gpus = any(each.mig_kind for each in self.models)
        return number

    def _free_model_number(self) -> int:
        """The next one; where there are many, that of a model which no GPU is of any more."""
        if len(self.models) < MAX_NUMBERED_MODELS:
            return len(self.models)
        used = np.zeros(len(self.models) + 1, np.bool_)
        used[self.gpu_model] = True
        return int(used.argmin())

    def _clear(self, row: int) -> None:
        for field in (*_PER_GPU, *(_PER_PARTITIONED_GPU if self.has_partitioned_gpus else ()), "pods_of_kind"):
            getattr(self, field)[:, row] = _EMPTY.get(field, 0)
        for field in _PER_NODE:
            getattr(self, field)[row] = 0
        self.links[row] = None

    def _mark_changed(self, row: int) -> None:
        self.clock += 1
        self.changed_at[row] = self.clock

    def _new_row(self) -> int:
        self.names.append("")
        self.links.append(None)
        return len(self.names) - 1

    def _enlarge(self, gpus: int, row: int) -> None:
        """Twice as many as before, as often as needed."""
        most_gpus, most_rows = self.memory_mib.shape
        while most_gpus < gpus:
            most_gpus *= 2
        while most_rows <= row:
            most_rows *= 2
        self._allocate(most_gpus, most_rows)

    def _allocate(self, gpus: int, rows: int) -> None:
        """New arrays of this size with the contents of those that are there."""
        for field, kind in (_PER_GPU | _PER_PARTITIONED_GPU).items():
            self._replace_array(field, np.full((gpus, rows), _EMPTY.get(field, 0), kind))
        for field, kind in _PER_NODE.items():
            self._replace_array(field, np.zeros(rows, kind))
        self._replace_array("pods_of_kind", np.zeros((POD_KINDS, rows), np.int32))
        self._order = None

    def _replace_array(self, field: str, grown: npt.NDArray[Any]) -> None:
        old = getattr(self, field, None)
        if old is not None:
            grown[tuple(slice(length) for length in old.shape)] = old
        setattr(self, field, grown)
