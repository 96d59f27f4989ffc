"""Devices that are divided by profiles that their node lists: which one a container gets, and what it takes.

Facts are those of HAMi v2.10 for Enflame (``enflame/device.go``, ``selectProfileByRequest``): a profile is a number of
a device's slices with memory of its own, such as ``3g.20gb``.
"""

from typing import Annotated

import msgspec

_MIB_OF_GIB = 1024
_WHOLE_PERCENT = 100

Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 30)]
"""Of slices, of memory in MiB or in units of pods, or of percent."""


class SliceProfile(msgspec.Struct, frozen=True, gc=False):
    """A size into which the devices of a node are divided."""

    name: str
    number: str
    """By which the vendor's driver knows it."""
    slices: Amount
    memory_mib: Amount


class Slicing(msgspec.Struct, frozen=True, gc=False):
    """How a device is divided."""

    minor: str
    """Of its device file."""
    profiles: Annotated[tuple[SliceProfile, ...], msgspec.Meta(min_length=1, max_length=64)]
    """The smallest first, by slices and then by memory."""

    @property
    def slices(self) -> int:
        """Of the whole device: as many as the largest profile has."""
        return self.profiles[-1].slices

    def profile(self, name: str) -> SliceProfile | None:
        """The profile of that name; None: the device is not divided so."""
        return next((each for each in self.profiles if each.name == name), None)


class SliceAsk(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a container asks of such a device: a number of slices, or amounts that its profile must have."""

    slices: Amount = 0
    """0: it names amounts."""
    memory: Amount = 0
    """In GiB; what is more than twice the memory of the largest profile is in MiB. 0: any."""
    cores_percent: Amount = 0
    """0: any."""


def slice_profile_for(slicing: Slicing, ask: SliceAsk) -> SliceProfile | None:
    """The profile with so many slices, or the smallest one with as much of both amounts; None: there is none."""
    if ask.slices:
        return next((each for each in slicing.profiles if each.slices == ask.slices), None)
    in_mib = ask.memory > 2 * slicing.profiles[-1].memory_mib // _MIB_OF_GIB
    # HAMi rounds MiB up to GiB, and all profiles are of whole GiB.
    memory_mib = ask.memory if in_mib else ask.memory * _MIB_OF_GIB
    enough = (
        each
        for each in slicing.profiles
        if each.memory_mib >= memory_mib and compute_percent(slicing, each) >= ask.cores_percent
    )
    return next(enough, None)


def compute_percent(slicing: Slicing, profile: SliceProfile) -> int:
    """A profile's part of a device, rounded up as HAMi writes it."""
    return -(-_WHOLE_PERCENT * profile.slices // slicing.slices)


def counted_percent(slicing: Slicing, profile: SliceProfile) -> int:
    """The same rounded down, as the book counts it: as many profiles go beside one another as have slices there. With
    HAMi, which counts what it writes, the last of six single slices never finds room."""
    return _WHOLE_PERCENT * profile.slices // slicing.slices
