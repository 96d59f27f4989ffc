"""Who holds which devices."""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from purser.core.kubelet.state import Allocation, ContainerKey, DeviceManagerState, PluginResource
from purser.core.kubelet.versions import Behaviour

Held = Mapping[ContainerKey, Mapping[str, Allocation]]


def held_by(state: DeviceManagerState, key: ContainerKey) -> Mapping[str, Allocation]:
    """The allocations of one container, by resource."""
    return state.held.get(key, {})


def held_by_pod(state: DeviceManagerState, uid: str, resource: str) -> frozenset[str]:
    """What all containers of a pod hold of a resource."""
    ids = [held[resource].device_ids for key, held in state.held.items() if key[0] == uid and resource in held]
    return frozenset().union(*ids)


def free_all_but(state: DeviceManagerState, active_uids: Collection[str]) -> DeviceManagerState:
    """Take the devices of pods that are gone (UpdateAllocatedDevices).

    kubelet does this lazily, whenever it needs to know, and only once all its pod sources are ready. Only where a pod
    is gone it counts again, and thereby frees what failed admissions left taken.
    """
    active = frozenset(active_uids)
    kept = {key: held for key, held in state.held.items() if key[0] in active}
    return state if len(kept) == len(state.held) else replace(state, held=kept, allocated=counted(kept))


def hold(
    behaviour: Behaviour,
    state: DeviceManagerState,
    key: ContainerKey,
    resource: str,
    ids: Collection[str],
    response: bytes,
) -> DeviceManagerState:
    """Record what a container holds after its Allocate succeeded."""
    known = state.resources.get(resource, PluginResource())
    new = Allocation(per_numa(behaviour, known, ids), response)
    return replace(state, held={**state.held, key: {**held_by(state, key), resource: new}})


def recount_allocated(state: DeviceManagerState) -> DeviceManagerState:
    """Only held devices are allocated."""
    return replace(state, allocated=counted(state.held))


def counted(held: Held) -> dict[str, frozenset[str]]:
    """All devices that are held, by resource."""
    taken: dict[str, set[str]] = {}
    for of_container in held.values():
        for resource, allocation in of_container.items():
            taken.setdefault(resource, set()).update(allocation.device_ids)
    return {resource: frozenset(ids) for resource, ids in taken.items()}


def per_numa(behaviour: Behaviour, resource: PluginResource, ids: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Devices as kubelet files them: under each NUMA node of theirs."""
    found: dict[int, list[str]] = {}
    for id_ in sorted(ids):
        device = resource.devices.get(id_)
        for node in (device.numa_nodes if device else None) or (behaviour.no_topology_key,):
            found.setdefault(node, []).append(id_)
    return {node: tuple(of_node) for node, of_node in sorted(found.items())}
