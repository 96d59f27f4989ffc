"""Which MIG instances a simulated GPU offers, with NVML's numbers: `purser.core.mig` has the geometry, this adds what
only a driver reports."""

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from purser.core.mig import MigKind, MigProfile, kind_of_device
from purser.core.mig.choice import room_table
from purser.core.mig.profiles import seven_slice_kind
from purser.lab.driver.profiles import GpuModel, MigShape

_IDS = {
    8: {0: 19, 7: 20, 9: 15, 1: 14, 2: 9, 3: 5, 4: 0},
    4: {0: 14, 7: 21, 1: 5, 8: 6, 3: 0},
}
"""What nvidia-smi calls a profile's id, by memory slices of the GPU and NVML's number of the profile."""

_COMPUTE = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""NVML's number of compute instances (NVML_COMPUTE_INSTANCE_PROFILE_*), by their slices."""

_DECODERS = {8: {1: 0, 2: 1, 3: 2, 4: 2, 7: 5}, 4: {1: 0, 2: 2, 4: 4}}
"""Of A100 and A30, by slices."""
_FIRST_WITH_MORE_ENGINES = 9
"""Compute capability of GPUs with a decoder and a JPEG engine for each slice."""


class MigEngines(msgspec.Struct, frozen=True):
    """Engines of an instance beside its multiprocessors."""

    copy: int
    decoders: int
    encoders: int
    jpeg: int
    ofa: int


class ComputeProfile(msgspec.Struct, frozen=True):
    """A size of compute instance in a GPU instance."""

    number: int
    """NVML's, and its id as well."""
    slices: int
    most: int
    multiprocessors: int
    starts: tuple[int, ...]


class InstanceProfile(msgspec.Struct, frozen=True):
    """A size of GPU instance that a GPU offers."""

    number: int
    """NVML's, of NVML_GPU_INSTANCE_PROFILE_*."""
    id: int
    name: str
    slices: int
    size: int
    """Memory slices."""
    most: int
    takes_media: bool
    memory_mib: int
    multiprocessors: int
    engines: MigEngines
    starts: tuple[int, ...]
    """Memory slices at which it may begin, the driver's favourites first."""
    compute: tuple[ComputeProfile, ...]

    @property
    def whole(self) -> ComputeProfile:
        """The compute instance that fills it."""
        return next(each for each in self.compute if each.slices == self.slices)


def mig_kind(model: GpuModel) -> MigKind | None:
    """The MIG profiles of a model; None: it has none, or they are unknown."""
    if model.mig is not None:
        return _kind(model.name, model.mig)
    return kind_of_device(f"{model.pci_device_id >> 16:04x}") if model.mig_devices else None


def _kind(name: str, shape: MigShape) -> MigKind:
    """Raises ValueError where the shape's numbers are not of one GPU."""
    if len(shape.gigabytes) == 4:
        return seven_slice_kind(name, shape.gigabytes, shape.memory_mib, shape.multiprocessors)
    sizes = zip((0, 7, 1, 3), (1, 1, 2, 4), (0, 0, 1, 2), shape.multiprocessors, strict=True)
    return MigKind(
        name,
        4,
        tuple(
            MigProfile(
                f"{slices}g.{shape.gigabytes[place]}gb{'+me' if number == 7 else ''}",
                number,
                slices,
                slices,
                tuple(range(0, 4, slices)),
                shape.memory_mib[place],
                processors,
                takes_media=number == 7,
            )
            for number, slices, place, processors in sizes
        ),
    )


def instance_profiles(model: GpuModel) -> tuple[InstanceProfile, ...]:
    """What a model offers."""
    kind = mig_kind(model)
    return () if kind is None else _profiles(kind, int(model.compute_capability.partition(".")[0]))


@lru_cache(maxsize=64)
def _profiles(kind: MigKind, capability: int) -> tuple[InstanceProfile, ...]:
    room = room_table(kind)[0]
    return tuple(
        InstanceProfile(
            number=profile.number,
            id=_IDS[kind.slices][profile.number],
            name=profile.name,
            slices=profile.compute_slices,
            size=profile.memory_slices,
            most=int(most),
            takes_media=profile.takes_media,
            memory_mib=profile.memory_mib,
            multiprocessors=profile.multiprocessors,
            engines=_engines(kind, profile, capability),
            starts=_ordered_starts(kind, profile),
            compute=tuple(_compute(profile)),
        )
        for profile, most in zip(kind.profiles, room, strict=True)
    )


def _ordered_starts(kind: MigKind, profile: MigProfile) -> tuple[int, ...]:
    """As drivers place them, by what NVIDIA's MIG user guide shows: the second half first, where what needs the first
    one finds it free, and there the odd seventh slice before the others."""
    half = kind.slices // 2
    return tuple(sorted(profile.starts, key=lambda start: (start < half, start != kind.slices - 2, start)))


def _engines(kind: MigKind, profile: MigProfile, capability: int) -> MigEngines:
    """As `nvidia-smi mig -lgip` lists them for A30, A100 and H100; for others by the rule of their generation."""
    slices, is_whole = profile.compute_slices, profile.memory_slices == kind.slices
    media = int(profile.takes_media or is_whole)
    if capability >= _FIRST_WITH_MORE_ENGINES:
        return MigEngines(copy=slices + is_whole, decoders=slices, encoders=0, jpeg=slices, ofa=media)
    decoders = _DECODERS[kind.slices][slices] + profile.takes_media
    return MigEngines(copy=slices, decoders=decoders, encoders=0, jpeg=media, ofa=media)


def _compute(profile: MigProfile) -> Iterator[ComputeProfile]:
    """Three slices may begin at 4, beside four others, and are no part of four."""
    whole = profile.compute_slices
    for slices, number in _COMPUTE.items():
        starts = tuple(range(0, whole - slices + 1, 4 if slices == 3 else slices))
        if starts and (whole, slices) != (4, 3):
            yield ComputeProfile(number, slices, len(starts), profile.multiprocessors * slices // whole, starts)
