"""MIG on a simulated node: which instances there are, and the file that remembers them.

The file ``node.mig`` is written by all processes that create or destroy instances, Python and the C library, under the
lock of ``node.lock``: instances outlive the process that made them. Profiles are NVML's numbers in it::

    mode 0 1 1            GPU, its MIG mode, and the one after its next reset
    instance 0 9 0 2      GPU, id of the GPU instance, its profile, the memory slice at which it begins
    compute 0 9 0 0 0     GPU, GPU instance, id of the compute instance, its profile, the slice at which it begins

Functions are pure and raise `MigRefusedError` with NVML's code.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce

import msgspec
import pynvml
from msgspec.structs import replace

from purser.core.mig.profiles import MAX_MEMORY_SLICES
from purser.lab.driver.migprofiles import ComputeProfile, InstanceProfile, instance_profiles
from purser.lab.driver.state import GpuState

MIG_FILE = "node.mig"

_WORDS = {
    pynvml.NVML_ERROR_IN_USE: "the GPU or MIG instance is in use by a process or another MIG instance",
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: "there is not enough free space for the MIG instance",
    pynvml.NVML_ERROR_NOT_FOUND: "the MIG instance does not exist",
}
_FNV_START, _FNV_PRIME = 14695981039346656037, 1099511628211
_64_BITS = (1 << 64) - 1


class MigRefusedError(Exception):
    """The driver refuses. ``code``: NVML's."""

    def __init__(self, code: int) -> None:
        super().__init__(_WORDS[code])
        self.code = code


class ComputeInstanceState(msgspec.Struct, frozen=True):
    """A compute instance, as its profile's NVML number has it."""

    profile: int
    start: int


class GpuInstanceState(msgspec.Struct, frozen=True):
    """A GPU instance."""

    profile: int
    start: int
    compute: Mapping[int, ComputeInstanceState] = {}
    """By id."""


class MigState(msgspec.Struct, frozen=True):
    """MIG on one GPU."""

    enabled: bool = False
    pending: bool = False
    """After the next reset."""
    instances: Mapping[int, GpuInstanceState] = {}
    """By id."""

    @property
    def devices(self) -> list[tuple[int, int]]:
        """Ids of GPU and compute instance of each MIG device, in NVML's order."""
        return [(one, two) for one in sorted(self.instances) for two in sorted(self.instances[one].compute)]


@lru_cache(maxsize=64)  # a driver in Python reads the file at every call, and it seldom changes
def parse_mig(text: str, gpus: int) -> tuple[MigState, ...]:
    """MIG on each of the first ``gpus`` GPUs, as the text of ``node.mig`` says; lines on others are passed over."""
    found = [MigState()] * gpus
    for line in text.splitlines():
        kind, *words = line.split()
        gpu, *numbers = map(int, words)
        if gpu >= gpus:
            continue
        if kind == "mode":
            found[gpu] = replace(found[gpu], enabled=bool(numbers[0]), pending=bool(numbers[1]))
        elif kind == "instance":
            found[gpu] = _with_instance(found[gpu], numbers[0], GpuInstanceState(numbers[1], numbers[2]))
        else:
            instance, compute, *rest = numbers
            found[gpu] = _with_compute(found[gpu], instance, compute, ComputeInstanceState(*rest))
    return tuple(found)


def write_mig(states: Sequence[MigState]) -> str:
    """The text of ``node.mig`` for these GPUs, in the order of the profile."""
    return "".join(f"{line}\n" for gpu, state in enumerate(states) for line in _lines(gpu, state))


def _lines(gpu: int, state: MigState) -> Iterator[str]:
    if state.enabled or state.pending:
        yield f"mode {gpu} {int(state.enabled)} {int(state.pending)}"
    for one, instance in sorted(state.instances.items()):
        yield f"instance {gpu} {one} {instance.profile} {instance.start}"
        for two, compute in sorted(instance.compute.items()):
            yield f"compute {gpu} {one} {two} {compute.profile} {compute.start}"


def mig_uuid(gpu_uuid: str, instance: int, compute: int) -> str:
    """The uuid of a MIG device: always the same one at the same place."""
    text = f"{gpu_uuid}/{instance}/{compute}".encode()
    high, low = _hash(text, 0), _hash(text, 1)
    digits = f"{high:016x}{low:016x}"
    return f"MIG-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _hash(text: bytes, seed: int) -> int:
    """FNV-1a: the C library has no other one at hand."""
    return reduce(lambda value, byte: (value ^ byte) * _FNV_PRIME & _64_BITS, text, _FNV_START ^ seed)


def profile_by_number(gpu: GpuState, number: int) -> InstanceProfile | None:
    """By NVML's number."""
    return next((each for each in instance_profiles(gpu.model) if each.number == number), None)


def profile_of(gpu: GpuState, mig: MigState, instance: int) -> InstanceProfile:
    """Of an instance that is there. Raises MigRefusedError."""
    there = mig.instances.get(instance)
    found = None if there is None else profile_by_number(gpu, there.profile)
    if found is None:
        raise MigRefusedError(pynvml.NVML_ERROR_NOT_FOUND)
    return found


def offered_profile(gpu: GpuState, mig: MigState, name: str, start: int | None) -> InstanceProfile:
    """By name. Raises ValueError for what can never be: no MIG mode, no such profile, no such place."""
    offered = {each.name: each for each in instance_profiles(gpu.model)}
    if not mig.enabled:
        raise ValueError(f"{gpu.uuid} is not in MIG mode")
    if name not in offered:
        raise ValueError(
            f"{gpu.model.name} does not support {name}: it supports {', '.join(offered) or 'no MIG profiles'}"
        )
    if start is not None and start not in offered[name].starts:
        starts = ", ".join(map(str, sorted(offered[name].starts)))
        raise ValueError(f"{name} cannot start at memory slice {start}: must start at {starts}")
    return offered[name]


def compute_profile(profile: InstanceProfile, number: int) -> ComputeProfile | None:
    """By NVML's number."""
    return next((each for each in profile.compute if each.number == number), None)


def compute_of(gpu: GpuState, mig: MigState, instance: int, compute: int) -> ComputeProfile:
    """Of a compute instance that is there. Raises MigRefusedError."""
    profile = profile_of(gpu, mig, instance)
    there = mig.instances[instance].compute.get(compute)
    found = None if there is None else compute_profile(profile, there.profile)
    if found is None:
        raise MigRefusedError(pynvml.NVML_ERROR_NOT_FOUND)
    return found


def device_name(gpu: GpuState, mig: MigState, instance: int, compute: int) -> str:
    """The profile of a MIG device as NVML spells it: ``3g.20gb``, ``1c.3g.20gb``."""
    profile, part = profile_of(gpu, mig, instance), compute_of(gpu, mig, instance, compute)
    return profile.name if part.slices == profile.slices else f"{part.slices}c.{profile.name}"


def free_starts_of(gpu: GpuState, mig: MigState, profile: InstanceProfile) -> list[int]:
    """Where one more may begin, the driver's favourite first."""
    taken = 0
    for instance in mig.instances.values():
        if (other := profile_by_number(gpu, instance.profile)) is not None:
            taken |= _bits(other, instance.start)
    return [start for start in profile.starts if not taken & _bits(profile, start)]


def free_compute_starts(gpu: GpuState, mig: MigState, instance: int, profile: ComputeProfile) -> list[int]:
    """Where one more may begin in a GPU instance."""
    taken = 0
    for number, compute in mig.instances[instance].compute.items():
        taken |= ((1 << compute_of(gpu, mig, instance, number).slices) - 1) << compute.start
    return [start for start in profile.starts if not taken & ((1 << profile.slices) - 1) << start]


def remaining(gpu: GpuState, mig: MigState, profile: InstanceProfile) -> int:
    """How many more fit at once: places of one profile never overlap, but there is one media extension."""
    free = len(free_starts_of(gpu, mig, profile))
    return min(free, 1) if profile.takes_media else free


def create_instance(
    gpu: GpuState, mig: MigState, profile: InstanceProfile, start: int | None = None
) -> tuple[MigState, int]:
    """One more GPU instance, where it is wanted or where the driver likes, and its id. Raises MigRefusedError."""
    free = free_starts_of(gpu, mig, profile)
    if not free or (start is not None and start not in free):
        raise MigRefusedError(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
    start = free[0] if start is None else start
    # Ids are places in a tree: the whole GPU, its halves, their halves, and so on.
    slices = max(each.size for each in instance_profiles(gpu.model))
    number = slices // profile.size - 1 + start // profile.size
    return _with_instance(mig, number, GpuInstanceState(profile.number, start)), number


def create_compute(
    gpu: GpuState, mig: MigState, instance: int, profile: ComputeProfile, start: int | None = None
) -> tuple[MigState, int]:
    """One more compute instance, and its id. Raises MigRefusedError."""
    free = free_compute_starts(gpu, mig, instance, profile)
    if not free or (start is not None and start not in free):
        raise MigRefusedError(pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
    start = free[0] if start is None else start
    number = next(id_ for id_ in range(MAX_MEMORY_SLICES) if id_ not in mig.instances[instance].compute)
    return _with_compute(mig, instance, number, ComputeInstanceState(profile.number, start)), number


def destroy_instance(gpu: GpuState, mig: MigState, instance: int) -> MigState:
    """Without a GPU instance. Raises MigRefusedError while something is in it."""
    there = mig.instances.get(instance)
    if there is None:
        raise MigRefusedError(pynvml.NVML_ERROR_NOT_FOUND)
    if there.compute or any(each.gpu_instance == instance for each in gpu.processes):
        raise MigRefusedError(pynvml.NVML_ERROR_IN_USE)
    return replace(mig, instances={number: each for number, each in mig.instances.items() if number != instance})


def destroy_compute(gpu: GpuState, mig: MigState, instance: int, compute: int) -> MigState:
    """Without a compute instance. Raises MigRefusedError while processes are in it."""
    there = mig.instances.get(instance)
    if there is None or compute not in there.compute:
        raise MigRefusedError(pynvml.NVML_ERROR_NOT_FOUND)
    if any((each.gpu_instance, each.compute_instance) == (instance, compute) for each in gpu.processes):
        raise MigRefusedError(pynvml.NVML_ERROR_IN_USE)
    left = {number: each for number, each in there.compute.items() if number != compute}
    return _with_instance(mig, instance, replace(there, compute=left))


def switched(gpu: GpuState, mig: MigState, *, enabled: bool) -> tuple[MigState, int]:
    """MIG mode on or off, and NVML's code: on a GPU in use it waits for a reset."""
    if enabled != mig.enabled and (gpu.processes or mig.instances):
        return replace(mig, pending=enabled), int(pynvml.NVML_ERROR_IN_USE)
    return replace(mig, enabled=enabled, pending=enabled), int(pynvml.NVML_SUCCESS)


def after_reset(mig: MigState) -> MigState:
    """The mode that waited for it is in force, and all instances are gone."""
    return MigState(mig.pending, mig.pending)


def _bits(profile: InstanceProfile, start: int) -> int:
    """Memory slices, and one more bit for the media extension."""
    return ((1 << profile.size) - 1) << start | profile.takes_media << MAX_MEMORY_SLICES


def _with_instance(mig: MigState, number: int, instance: GpuInstanceState) -> MigState:
    return replace(mig, instances={**mig.instances, number: instance})


def _with_compute(mig: MigState, instance: int, number: int, compute: ComputeInstanceState) -> MigState:
    there = mig.instances[instance]
    return _with_instance(mig, instance, replace(there, compute={**there.compute, number: compute}))
