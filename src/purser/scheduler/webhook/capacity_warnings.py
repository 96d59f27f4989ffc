"""Warnings about what no node's GPUs can give a container, even if nothing were taken of them."""

from collections.abc import Iterator

import msgspec

from purser.core.decoding import brief
from purser.core.device.modes import modes_text
from purser.core.device.resources import is_gpu_resource
from purser.core.dialects.selectors import MIG_PREFERENCE
from purser.core.mig.on_demand import can_use_instances
from purser.core.model import DeviceMode, DeviceRequest, PodRequest
from purser.core.names import GPU_RESOURCE
from purser.core.placement.offers import FleetOffers

_MAX_NAMED = 8
"""Profiles in a sentence."""


def capacity_warnings(request: PodRequest, there: FleetOffers) -> tuple[str, ...]:
    """A sentence for each thing that keeps the pod Pending until there are other GPUs, each once."""
    asked = [part.devices for part in request.containers]
    each = (
        warning
        for devices in asked
        for warning in (
            *_mode_warnings(devices, there),
            *_size_warnings(devices, there),
            *_count_warnings(devices, there),
        )
    )
    return tuple(dict.fromkeys((*each, *_preference(asked, there))))


def _mode_warnings(asked: DeviceRequest, there: FleetOffers) -> Iterator[str]:
    wanted, modes = frozenset(asked.modes_allowed), there.modes.get(asked.resource, frozenset())
    if not wanted or not modes or not wanted.isdisjoint(modes):
        return
    of = "GPUs" if asked.resource == GPU_RESOURCE else brief(asked.resource, 63)
    instead = f"To get {of} in any mode, remove the annotation that sets the mode"
    if DeviceMode.MIG in wanted and there.mig_resources:
        instead = f"Request MIG devices by profile: {_listed(there.mig_resources[:1])}"
    yield (
        f"the pod asks for {of} in mode {modes_text(wanted)}, but no node offers this mode (available: "
        f"{modes_text(modes)}), so the pod stays Pending. {instead}"
    )


def _size_warnings(asked: DeviceRequest, there: FleetOffers) -> Iterator[str]:
    largest = there.largest_of(asked.modes_allowed)
    if not is_gpu_resource(asked.resource):
        return  # other vendors' devices are of all sizes
    if asked.memory_mib is None or asked.memory_mib <= largest or (asked.modes_allowed and not largest):
        return
    what = "GPU instance" if there.is_partitioned(asked.modes_allowed) else "GPU"
    yield _too_large_text(f"{asked.memory_mib} MiB of GPU memory", what, f"{largest} MiB")


def _count_warnings(asked: DeviceRequest, there: FleetOffers) -> Iterator[str]:
    """Resources that no node offers have a message of their own, with what to request instead."""
    most = there.most_of(asked)
    if asked.count <= most or not (most or asked.resource == GPU_RESOURCE):
        return
    of_any_size = _max_count_of_any_size(asked, there)
    if not most and of_any_size:
        return  # amounts or modes are in the way, and not the number
    if there.profiles and not can_use_instances(asked.resource, asked.count, asked.modes_allowed):
        found = f"more than {most}" if most else "any outside MIG mode"
        yield (
            f"a container requests {asked.count} GPUs, but no node can provide {found}: a container gets one GPU "
            f"instance in MIG mode, or several if it requests {there.mig_resources[0]}"
        )
        return
    if not most:
        instead = f". Request MIG devices by profile: {there.mig_resources[0]}" if there.mig_resources else ""
        yield (
            f"a container requests {asked.resource}, but no node offers it, so the pod stays Pending until one does"
            f"{instead}"
        )
        return
    noun = "GPUs" if asked.resource == GPU_RESOURCE else brief(asked.resource, 63)
    size = "" if of_any_size < asked.count else " of this size"
    yield _too_large_text(f"{asked.count} {noun}{size}", "node", str(most))


def _max_count_of_any_size(asked: DeviceRequest, there: FleetOffers) -> int:
    """Of the container's mode, or of any."""
    small = msgspec.structs.replace(asked, memory_mib=1, memory_percent=None, cores_percent=0, mig_profiles=())
    return max(there.most_of(small), there.most_of(msgspec.structs.replace(small, modes_allowed=())))


def _preference(asked: list[DeviceRequest], there: FleetOffers) -> Iterator[str]:
    words = dict.fromkeys(word for devices in asked for word in devices.mig_profiles)
    known = {*there.profiles, *(each.partition(".")[0] for each in there.profiles)}
    unknown = [word for word in words if word not in known]
    if not unknown:
        return
    missing, available = _listed(tuple(unknown)), _listed(tuple(sorted(there.profiles)))
    has, it = ("has", "it") if len(unknown) == 1 else ("have", "them")
    why = f"no GPU offers {it} (available: {available})" if available else "no GPU is partitioned on demand"
    yield f"annotation {MIG_PREFERENCE}: {missing} {has} no effect: {why}"


def _too_large_text(wanted: str, place: str, largest: str) -> str:
    return (
        f"a container requests {wanted}, but the largest {place} has {largest}, so the pod stays Pending until "
        f"there is a larger {place}"
    )


def _listed(words: tuple[str, ...]) -> str:
    more = ", ..." if len(words) > _MAX_NAMED else ""
    return ", ".join(brief(word, 63) for word in words[:_MAX_NAMED]) + more
