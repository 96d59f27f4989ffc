"""What device plugins report to kubelet, and what the node reports of it: registration, device lists, the grace period.

These functions change `DeviceManagerState.resources` and ``removed`` only, and
`purser.core.kubelet.devicemanager.allocation` changes ``held`` and ``allocated`` only. A caller that runs both at once
merges the two halves (`with_plugins_of`) without loss.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from purser.core.kubelet.devicemanager.holdings import counted
from purser.core.kubelet.state import (
    Allocation,
    ContainerKey,
    DeviceManagerState,
    PluginDevice,
    PluginOptions,
    PluginResource,
)

ENDPOINT_STOP_GRACE_PERIOD_S = 300.0
"""How long a resource without a plugin keeps its devices (as unhealthy ones) before kubelet forgets it."""


class Capacity(msgspec.Struct, frozen=True):
    """What the node's status says of device resources; a removed one is set to 0, not left out."""

    capacity: Mapping[str, int]
    """Devices, healthy or not."""
    allocatable: Mapping[str, int]
    """Healthy devices; those that are held count."""
    removed: tuple[str, ...]


def with_plugins_of(state: DeviceManagerState, source: DeviceManagerState) -> DeviceManagerState:
    """The state with the half of another that plugins change."""
    return replace(state, resources=source.resources, removed=source.removed)


def register(state: DeviceManagerState, resource: str, options: PluginOptions) -> DeviceManagerState:
    """A plugin registered; the newest registration of a resource replaces the one before."""
    known = state.resources.get(resource, PluginResource())
    state = _with_resource(state, resource, replace(known, options=options, stopped_at=None))
    return replace(state, removed=state.removed - {resource})


def update(state: DeviceManagerState, resource: str, devices: Iterable[PluginDevice]) -> DeviceManagerState:
    """A ListAndWatch message: the complete list replaces the one before.

    As in kubelet the last of two devices with one id counts, but where their health differs the id is in both sets.
    """
    listed = tuple(devices)
    known = state.resources.get(resource, PluginResource())
    new = replace(
        known,
        devices={device.id: device for device in listed},
        healthy=frozenset(device.id for device in listed if device.healthy),
        unhealthy=frozenset(device.id for device in listed if not device.healthy),
        is_listed=True,
    )
    return _with_resource(state, resource, new)


def stop(state: DeviceManagerState, resource: str, now: float) -> DeviceManagerState:
    """The stream of the resource's newest plugin ended: all its devices are unhealthy and the time of grace begins.

    The end of a stream that a newer registration had replaced is none of this; ``now`` is in seconds.
    """
    known = state.resources.get(resource)
    if known is None:
        return state
    gone = replace(known, healthy=frozenset(), unhealthy=known.unhealthy | known.healthy, stopped_at=now)
    return _with_resource(state, resource, gone)


def capacity(state: DeviceManagerState, now: float) -> tuple[DeviceManagerState, Capacity]:
    """What the node has; forgets those resources whose plugin stayed away for longer than the grace."""
    for name, known in state.resources.items():
        if known.is_listed and known.stopped_at is not None and now - known.stopped_at > ENDPOINT_STOP_GRACE_PERIOD_S:
            state = _forget_plugin(state, name, known)
    listed = {name: known for name, known in state.resources.items() if known.is_listed}
    gone = dict.fromkeys(sorted(state.removed), 0)
    found = Capacity(
        gone | {name: len(known.healthy) + len(known.unhealthy) for name, known in listed.items()},
        gone | {name: len(known.healthy) for name, known in listed.items()},
        tuple(gone),
    )
    return state, found


def is_device_resource(state: DeviceManagerState, resource: str) -> bool:
    """Whether kubelet allocates this resource: it was listed, or some of it is held."""
    known = state.resources.get(resource)
    return (known is not None and known.is_listed) or resource in state.allocated


def allocatable(state: DeviceManagerState) -> dict[str, tuple[PluginDevice, ...]]:
    """The healthy devices of every resource, held or not, as GetAllocatableResources lists them (GetAllocatableDevices,
    of healthy ones since 1.23, when that call was on by default)."""
    listed = {name: known for name, known in state.resources.items() if known.is_listed}
    return {
        name: tuple(device for device in known.devices.values() if device.id in known.healthy)
        for name, known in listed.items()
    }


def registered(state: DeviceManagerState) -> dict[str, tuple[str, ...]]:
    """The healthy devices of every resource, for the checkpoint."""
    return {name: tuple(sorted(known.healthy)) for name, known in state.resources.items() if known.is_listed}


def restore(
    held: Mapping[ContainerKey, Mapping[str, Allocation]], resources: Iterable[str], now: float
) -> DeviceManagerState:
    """Start from a checkpoint: allocations as they were, and of no resource any device until its plugin is back.

    Its time of grace begins at ``now`` (seconds). The same in all versions.
    """
    waiting = PluginResource(is_listed=True, stopped_at=now)
    return DeviceManagerState(resources=dict.fromkeys(resources, waiting), held=held, allocated=counted(held))


def _forget_plugin(state: DeviceManagerState, name: str, known: PluginResource) -> DeviceManagerState:
    """Out of the grace. The devices stay known by id, as in kubelet: a pod that wants them gets topology hints still
    (none that could be met)."""
    empty = replace(known, healthy=frozenset(), unhealthy=frozenset(), is_listed=False, options=PluginOptions())
    return replace(_with_resource(state, name, empty), removed=state.removed | {name})


def _with_resource(state: DeviceManagerState, name: str, resource: PluginResource) -> DeviceManagerState:
    return replace(state, resources={**state.resources, name: resource})
