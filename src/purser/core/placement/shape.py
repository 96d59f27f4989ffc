"""What a pod is to a policy: its size, not who it is. Pods of one shape share everything that is computed for them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.device.slicing import SliceAsk, counted_percent, slice_profile_for
from purser.core.fleet import rule
from purser.core.fleet.arrays import POD_KINDS, FleetArrays, Model, Rows
from purser.core.fleet.facts import Take
from purser.core.fleet.free_resources import MANY
from purser.core.fleet.rule import FleetColumns, GpuDemand
from purser.core.mig import MIG_KINDS, MigProfile
from purser.core.mig.choice import chooser
from purser.core.mig.on_demand import asked_profile, can_use_instances, instance_share, profile_for
from purser.core.mig.profiles import MAX_MASKS
from purser.core.model import (
    NVIDIA,
    WHOLE_MILLI,
    WHOLE_PERCENT,
    Device,
    DeviceMode,
    DeviceRequest,
    DeviceShare,
    PodRequest,
)
from purser.core.names import GPU_RESOURCE
from purser.core.placement import kernels
from purser.core.placement.kernels.arguments import Bools, Ints

Counts = npt.NDArray[np.int16]

_NO_MASKS: Counts = np.zeros((0, 0), np.int16)

_MAX_AMOUNT = 2 * MANY
"""More than any node has: larger requests are treated alike, and no sum overflows the kernels' integers."""


class PodShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pod, as far as it decides where it may go and what it leaves behind.

    At most one of ``gpu_memory_mib`` and ``gpu_memory_percent`` is set; both, and the compute, are of each GPU.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_count: int = 0
    gpu_memory_mib: int = 0
    gpu_memory_percent: int = 0
    gpu_cores_percent: int = 0
    """0: not limited, and not counted; at most `WHOLE_PERCENT`."""
    models: tuple[str, ...] = ()
    """Words of which one must name the model, see `names_model`. Empty: any model."""
    models_denied: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    """Empty: any mode."""
    resource: str = GPU_RESOURCE
    """Of kubelet, under which the GPUs are listed."""
    held_by: tuple[str, ...] = ()
    """Of what must hold its shares, any; empty: nothing need."""
    mig_profiles: tuple[str, ...] = ()
    """See `DeviceRequest.mig_profiles`."""

    @property
    def is_alone(self) -> bool:
        """Whether its GPUs are exclusive."""
        return self.gpu_cores_percent >= WHOLE_PERCENT

    def takes_model(self, model: str) -> bool:
        """Whether the pod may run on this model."""
        return takes_model(self.models, self.models_denied, model)

    @property
    def is_plain(self) -> bool:
        """Whether it names no amounts: a part of a GPU that is divided will do as well."""
        return self.is_alone and self.gpu_memory_percent == WHOLE_PERCENT

    def takes(self, model: Model) -> bool:
        """Whether the pod may run on this model in this mode, listed and divided like this, with what holds shares."""
        return self.obstacles(model) == 0

    def obstacles(self, model: Model) -> int:
        """What stands between it and a model, as bits; see `purser.core.fleet.rule`."""
        fits = (
            (self._has_instances(model) if model.mig_kind else model.resource == self.resource)
            and (model.replicas == 1 or (self.is_plain and not (model.one_each and self.gpu_count > 1)))
            and (model.memory_mib > 0 or model.resource != GPU_RESOURCE or self.is_plain)
            and (not (self.models or self.models_denied) or self.takes_model(model.name))
            and (not self.modes or model.mode in self.modes)
        )
        is_shared = model.replicas > 1 or not self.is_alone or bool(model.mig_kind)
        is_unenforced = bool(self.held_by) and is_shared and model.enforcement not in self.held_by
        return (not fits) * rule.OTHER_MODEL | is_unenforced * rule.UNENFORCED

    def _has_instances(self, model: Model) -> bool:
        """Whether it gets any of a model that is cut on demand."""
        return can_use_instances(self.resource, self.gpu_count, self.modes) and self.profile(model) is not None

    def profile(self, model: Model) -> MigProfile | None:
        """The profile that it gets of a model that is cut on demand; None: none will do."""
        amounts = (self.gpu_memory_mib, self.gpu_memory_percent, self.gpu_cores_percent)
        return profile_for(model.mig_kind, self.resource, *amounts, self.mig_profiles)


def takes_model(allowed: Collection[str], denied: Collection[str], model: str) -> bool:
    """Whether words of selectors let a pod run on a model; none are ``allowed``: any are."""
    if any(names_model(word, model) for word in denied):
        return False
    return not allowed or any(names_model(word, model) for word in allowed)


def names_model(word: str, model: str) -> bool:
    """Whether a word of a selector means a model: it is in the model's name, case aside; after ``=`` it is the name.

    HAMi registers each model of NVIDIA's with its vendor in front (``NVIDIA-Tesla T4``, ``NVIDIA-NVIDIA H20-3e``), and
    its users' selectors are written for that.
    """
    return word[1:] == model if word.startswith("=") else word.lower() in f"nvidia-{model}".lower()


def depends_on_combination(asked: DeviceRequest) -> bool:
    """Whether it matters which devices are chosen together, beside how many fit."""
    return asked.numa_bind or bool(asked.linked)


def can_read_from_arrays(asked: DeviceRequest) -> bool:
    """Whether all that a container asks for of devices, beside their uuids, can be read from the fleet as arrays."""
    return not (depends_on_combination(asked) or asked.alike or asked.slices is not None or asked.soft_split)


def shape_of(request: PodRequest) -> PodShape | None:
    """The shape of a request that is nothing but a size: one container, any device of the models and modes it allows.

    None for one that names uuids, or to which it matters what is together, or that has several containers with devices.
    """
    if len(request.containers) != 1:
        return None
    asked = request.containers[0].devices
    if asked.uuids_allowed or asked.uuids_denied or asked.uuids_required or not can_read_from_arrays(asked):
        return None
    return container_shape(asked, request)


def largest_shape(request: PodRequest) -> PodShape:
    """The shape of the container that asks for the most, with what the whole pod asks of CPU and memory."""
    shapes = (container_shape(container.devices, request) for container in request.containers)
    return max(shapes, key=_size)


def container_shape(asked: DeviceRequest, request: PodRequest) -> PodShape:
    """What one container asks of devices, with what the whole pod asks of CPU and memory."""
    return PodShape(
        min(request.cpu_milli, _MAX_AMOUNT),
        min(request.memory_mib, _MAX_AMOUNT),
        min(asked.count, _MAX_AMOUNT),
        min(asked.memory_mib or 0, _MAX_AMOUNT),
        asked.memory_percent or 0,
        asked.cores_percent,
        asked.models_allowed,
        asked.models_denied,
        tuple(asked.modes_allowed),
        asked.resource,
        tuple(asked.held_by),
        asked.mig_profiles,
    )


def share_of(device: Device, request: DeviceRequest) -> DeviceShare:
    """What the request takes of this device; of one that is divided a part, of one that is cut on demand an instance.

    Time-slicing limits no compute, and so counts none; with MPS a part has its part of it.
    """
    if device.mig_kind and (profile := asked_profile(device, request)) is not None:
        return instance_share(device, profile)
    if device.replicas > 1:
        cores_percent = WHOLE_PERCENT // device.replicas if device.mode is DeviceMode.MPS else 0
        return DeviceShare(device.uuid, device.replica_mib, cores_percent)
    if request.slices is not None:
        return _profile_share(device, request.slices)
    memory_mib: int = rule.memory_asked(device.memory_mib, request.memory_mib or 0, request.memory_percent or 0)
    family = "" if device.vendor == NVIDIA else device.resource
    return DeviceShare(device.uuid, memory_mib, request.cores_percent, family=family, alike=request.alike)


def _profile_share(device: Device, ask: SliceAsk) -> DeviceShare:
    """Of a device that has no such profile nothing."""
    profile = None if device.slicing is None else slice_profile_for(device.slicing, ask)
    if device.slicing is None or profile is None:
        return DeviceShare(device.uuid, 0, 0, family=device.resource)
    percent = counted_percent(device.slicing, profile)
    return DeviceShare(device.uuid, profile.memory_mib, percent, family=device.resource, profile=profile.name)


_COMMON_MIB = 80 * 1024
"""Of a GPU, where percentages are to be compared with MiB."""


def _size(shape: PodShape) -> tuple[int, ...]:
    return (shape.gpu_count, memory_of(shape, _COMMON_MIB), shape.gpu_cores_percent)


@dataclass(frozen=True, slots=True)
class View:
    """Rows of the fleet, as one shape finds them. GPU arrays are [GPUs, rows] as in `FleetArrays`."""

    fleet: FleetArrays
    shape: PodShape
    rows: Rows
    left: Ints
    """What is left of each GPU, in thousandths."""
    after: Ints
    """What would be left of it if the pod took its share there; as it is where it cannot."""
    takes: Bools
    """Whether the GPU has what the pod asks of one."""
    fits: Bools
    """Whether the node has all that the pod asks for."""
    cpu_free_milli: Ints
    model: Ints
    """Place in the fleet's models: that of most of the node's GPUs."""

    @property
    def idle(self) -> Ints:
        """What is left of each node's GPUs together."""
        total: Ints = self.left.sum(axis=0)
        return total

    @property
    def demand(self) -> Ints:
        """What the pod would take of each node's GPUs together."""
        most: Ints = (self.left - self.after).max(axis=0)
        return most * self.shape.gpu_count


def view(fleet: FleetArrays, shape: PodShape, rows: Rows) -> View:
    """What a shape finds on these rows."""
    demand = demand_of(shape, fleet.models)
    left, after, takes, fits = kernels.used.look(columns_of(fleet), rows, demand)
    model = fleet.node_model[rows].astype(np.int64)
    return View(fleet, shape, rows, left, after, takes, fits, fleet.cpu_free_milli[rows], model)


def resources_taken(fleet: FleetArrays, shape: PodShape, row: int, gpus: tuple[int, ...]) -> Take:
    """What a pod of this shape takes of a node when it is given these GPUs; one that is cut on demand is there once for
    each instance."""
    taken = _take(shape, bool(gpus) and is_share(shape, int(fleet.memory_mib[gpus[0], row])))
    if not fleet.has_partitioned_gpus or not gpus:
        return taken
    return msgspec.structs.replace(taken, mig_bits=tuple(_mig_bits(fleet, shape, row, gpus)))


def _mig_bits(fleet: FleetArrays, shape: PodShape, row: int, gpus: tuple[int, ...]) -> Iterator[int]:
    masks = {gpu: int(fleet.mig_mask[gpu, row]) for gpu in gpus}
    for gpu in gpus:
        model = fleet.models[fleet.gpu_model[gpu, row]]
        if masks[gpu] < 0 or (profile := shape.profile(model)) is None:
            yield 0
            continue
        tables = chooser(MIG_KINDS[model.mig_kind])
        then = int(tables.then[masks[gpu], tables.column(profile.name)])
        yield then ^ masks[gpu]
        masks[gpu] = then


@lru_cache(1024)
def _take(shape: PodShape, share: bool) -> Take:
    return Take(
        shape.cpu_milli,
        shape.memory_mib,
        shape.gpu_memory_mib,
        shape.gpu_memory_percent,
        shape.gpu_cores_percent,
        shape.is_alone,
        (0 if share else shape.gpu_count) if shape.gpu_count else None,
    )


def memory_of(shape: PodShape, memory_mib: int) -> int:
    """What the shape asks of a GPU with so much memory, in MiB."""
    asked: int = rule.memory_asked(memory_mib, shape.gpu_memory_mib, shape.gpu_memory_percent)
    return asked


def is_share(shape: PodShape, memory_mib: int) -> bool:
    """Whether it wants one GPU, of so much memory, and leaves room on it for others."""
    return shape.gpu_count == 1 and not shape.is_alone and memory_of(shape, memory_mib) < memory_mib


def kind_by_row(view: View) -> Ints:
    """The kind (see `Take.kind`) that the shape would be on each row, by the memory of the node's first GPU."""
    whole = min(view.shape.gpu_count, POD_KINDS - 1)
    of_model = (0 if is_share(view.shape, model.memory_mib) else whole for model in view.fleet.models)
    return np.array([*of_model, whole], np.int64)[view.model]  # the last for nodes without GPUs


def need_milli(shape: PodShape, memory_mib: int) -> int:
    """What it takes of an idle GPU with so much memory, in thousandths, rounded up; above 1000: more than there is."""
    if shape.is_alone:
        return WHOLE_MILLI
    of_memory = -(-WHOLE_MILLI * memory_of(shape, memory_mib) // max(memory_mib, 1))
    return max(of_memory, shape.gpu_cores_percent * WHOLE_MILLI // WHOLE_PERCENT)


def need_of(shape: PodShape, model: Model) -> int:
    """What must be left of a GPU of the model, in thousandths; of one that is cut on demand, that no GPU has less left
    which has a place for the instance."""
    if not model.mig_kind:
        return need_milli(shape, model.memory_mib)
    if (profile := shape.profile(model)) is None:
        return WHOLE_MILLI
    tables = chooser(MIG_KINDS[model.mig_kind])
    return int(tables.left_milli[tables.counts[:, tables.column(profile.name)] > 0].min())


def columns_of(fleet: FleetArrays) -> FleetColumns:
    """For kernels."""
    return FleetColumns(
        fleet.closed,
        fleet.memory_mib,
        fleet.memory_free_mib,
        fleet.cores_percent,
        fleet.cores_free_percent,
        fleet.slots,
        fleet.slots_free,
        fleet.alone,
        fleet.gpu_model,
        fleet.left_milli,
        fleet.live,
        fleet.pods_free,
        fleet.cpu_free_milli,
        fleet.memory_free_mib_of_node,
        fleet.mig_mask if fleet.has_partitioned_gpus else _NO_MASKS,
    )


@lru_cache(4096)
def demand_of(shape: PodShape, models: tuple[Model, ...], idle_only: bool = False) -> GpuDemand:
    """For kernels. One model more than there are, so that there is one to look up where there is no GPU."""
    of_model = np.array([*map(shape.obstacles, models), rule.OTHER_MODEL], np.int16)
    return GpuDemand(
        shape.cpu_milli,
        shape.memory_mib,
        shape.gpu_count,
        shape.gpu_memory_mib,
        shape.gpu_memory_percent,
        shape.gpu_cores_percent,
        shape.is_alone,
        idle_only,
        of_model,
        *mig_tables(tuple((model.mig_kind, shape.profile(model)) if model.mig_kind else None for model in models)),
    )


@lru_cache(256)
def mig_tables(profiles: tuple[tuple[str, MigProfile | None] | None, ...]) -> tuple[Rows, Counts, Counts]:
    """By model, the kind of those that are cut on demand and the profile there: see `GpuDemand`."""
    wanted = list(dict.fromkeys(each for each in profiles if each is not None))
    numbers = {each: number for number, each in enumerate(wanted)}
    rows = np.array([*(-1 if each is None else numbers[each] for each in profiles), -1], np.intp)
    counts, after = np.zeros((2, len(wanted), MAX_MASKS), np.int16)
    for number, (name, profile) in enumerate(wanted):
        if profile is not None:
            tables = chooser(MIG_KINDS[name])
            masks, column = tables.kind.masks, tables.column(profile.name)
            counts[number, :masks] = tables.counts[:, column]
            after[number, :masks] = tables.left_milli[tables.then[:, column]]
    return rows, counts, after
