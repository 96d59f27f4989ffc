"""GPUs that are cut on demand, as the books have them: which profile a request gets, and what is taken of a GPU."""

from collections.abc import Collection, Iterable
from functools import lru_cache

from purser.core.device.resources import mig_resource
from purser.core.mig.geometry import MigGeometryError, bits_of
from purser.core.mig.profiles import MIG_KINDS, MigKind, MigProfile
from purser.core.model import WHOLE_PERCENT, Device, DeviceMode, DeviceRequest, DeviceShare, MigPlacement
from purser.core.names import GPU_RESOURCE


def kind_of(device: Device) -> MigKind | None:
    """How a GPU is cut on demand; None: it is not, or by unknown tables, and then it takes no pods."""
    return MIG_KINDS.get(device.mig_kind) if device.mig_kind else None


@lru_cache(4096)
def profile_for(
    kind: str,
    resource: str,
    memory_mib: int,
    memory_percent: int,
    cores_percent: int,
    preferred: tuple[str, ...] = (),
) -> MigProfile | None:
    """The profile that a request gets of GPUs of a kind; None: none will do.

    By name, of ``nvidia.com/mig-1g.5gb``. Else of those that have the memory (in percent: that share of the memory
    slices) and the compute asked for the first that is preferred (see `DeviceRequest.mig_profiles`), else the smallest,
    by memory and then by compute slices; never one with the media extension. Who names no amounts gets the largest. One
    of ``memory_mib`` and ``memory_percent`` is 0.
    """
    if (known := MIG_KINDS.get(kind)) is None:
        return None
    if resource != GPU_RESOURCE:
        return next((each for each in known.profiles if mig_resource(each.name) == resource), None)
    enough = [
        each
        for each in sorted(known.profiles, key=lambda each: (each.memory_slices, each.compute_slices))
        if not each.takes_media
        and each.memory_mib >= memory_mib
        and WHOLE_PERCENT * each.memory_slices >= memory_percent * known.slices
        and compute_percent(known, each) >= cores_percent
    ]
    preferred_profiles = (
        each for word in preferred for each in enough if word in (each.name, each.name.partition(".")[0])
    )
    return next(preferred_profiles, enough[0] if enough else None)


def asked_profile(device: Device, asked: DeviceRequest) -> MigProfile | None:
    """The profile that a container gets of a GPU that is cut on demand; None: none will do."""
    if kind_of(device) is None:
        return None
    amounts = (asked.memory_mib or 0, asked.memory_percent or 0, asked.cores_percent)
    return profile_for(device.mig_kind, asked.resource, *amounts, asked.mig_profiles)


def can_use_instances(resource: str, count: int, modes: Collection[str]) -> bool:
    """Whether a container may have GPU instances, of GPUs that are cut on demand: who asks for several GPUs wants them
    to work together, and may have instances only by asking for MIG devices, by profile or by mode.

    CUDA shows a process one MIG device and no GPU beside it with drivers before R570, and with later ones all; with
    none of them can it pass data from one to the other but through the host (NVIDIA's MIG user guide, "CUDA Device
    Enumeration", and its list of what MIG does not support).
    """
    return count <= 1 or resource != GPU_RESOURCE or set(modes) == {DeviceMode.MIG}


def compute_percent(kind: MigKind, profile: MigProfile) -> int:
    """Of the compute that the GPU's largest instance has, rounded down."""
    return WHOLE_PERCENT * profile.compute_slices // kind.compute_slices


def instance_share(device: Device, profile: MigProfile) -> DeviceShare:
    """What the container holds that gets such an instance, wherever it lies."""
    return DeviceShare(device.uuid, profile.memory_mib, compute_percent(MIG_KINDS[device.mig_kind], profile))


def taken_mask(device: Device, instances: Iterable[MigPlacement]) -> int:
    """The occupied part of a GPU: the administrator's instances and these. All of it where that is not known."""
    kind = kind_of(device)
    if kind is None:
        return 0
    mask = 0
    for each in (*device.mig_held, *instances):
        try:
            mask |= bits_of(kind, each)
        except MigGeometryError:
            return kind.masks - 1
    return mask


def overlap(device: Device, instances: Iterable[MigPlacement]) -> str:
    """Why these instances cannot be on a GPU together, beside its administrator's; empty: they can."""
    kind = kind_of(device)
    if kind is None:
        return f"GPU kind {device.mig_kind} is unknown"
    mask, there = taken_mask(device, ()), {each: _bits(kind, each) for each in device.mig_held}
    for each in instances:
        try:
            bits = bits_of(kind, each)
        except MigGeometryError as error:
            return str(error)
        if mask & bits:
            others = [named(other) for other, taken in there.items() if taken & bits]
            return f"{named(each)} overlaps with {', '.join(others) or 'instances that an administrator created'}"
        mask |= bits
        there[each] = bits
    return ""


def _bits(kind: MigKind, placement: MigPlacement) -> int:
    """What an instance takes; 0 where that is not known."""
    try:
        return bits_of(kind, placement)
    except MigGeometryError:
        return 0


def named(placement: MigPlacement) -> str:
    """Such as ``1g.5gb at 3``."""
    return f"{placement.profile} at {placement.start}"
