"""Gives up the ids of devices where only their number counts, so that a node with thousands has a short report.

The twin still predicts how many devices a pod gets and from which NUMA nodes; what a plugin's GetPreferredAllocation
would choose it cannot predict without the ids that the plugin knows.
"""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from purser.core.kubelet.state import Allocation, DeviceManagerState, KubeletState, PluginResource


def compact_state(state: KubeletState, keep: Collection[str] = ()) -> KubeletState:
    """The state with the devices of every resource but those in ``keep`` renamed to 0, 1, 2 and so on, in an order
    that makes ranges of those that are alike and held together."""
    names = {resource: _new_names(state.devices, resource) for resource in _held_or_listed(state.devices) - set(keep)}
    devices = replace(
        state.devices,
        resources={name: _rename_devices(of, names.get(name)) for name, of in state.devices.resources.items()},
        held={
            key: {name: _renamed_allocation(of, names.get(name)) for name, of in held.items()}
            for key, held in state.devices.held.items()
        },
        allocated={
            name: frozenset(names[name].get(id_, id_) for id_ in ids) if name in names else ids
            for name, ids in state.devices.allocated.items()
        },
    )
    return replace(state, devices=devices)


def _held_or_listed(devices: DeviceManagerState) -> set[str]:
    return {*devices.resources, *(resource for held in devices.held.values() for resource in held)}


def _new_names(devices: DeviceManagerState, resource: str) -> dict[str, str]:
    holder = {
        id_: key for key, held in sorted(devices.held.items()) if resource in held for id_ in held[resource].device_ids
    }
    listed = devices.resources.get(resource, PluginResource())
    known = {id_: (device.numa_nodes or (), id_ in listed.healthy) for id_, device in listed.devices.items()}
    last: tuple[tuple[int, ...], bool] = ((), False)
    order = sorted({*known, *holder}, key=lambda i: (i not in known, known.get(i, last), holder.get(i, ("", "")), i))
    return {id_: str(number) for number, id_ in enumerate(order)}


def _rename_devices(resource: PluginResource, names: Mapping[str, str] | None) -> PluginResource:
    if names is None:
        return resource
    return replace(
        resource,
        devices={names[id_]: replace(device, id=names[id_]) for id_, device in resource.devices.items()},
        healthy=frozenset(names[id_] for id_ in resource.healthy if id_ in names),
        unhealthy=frozenset(names[id_] for id_ in resource.unhealthy if id_ in names),
    )


def _renamed_allocation(allocation: Allocation, names: Mapping[str, str] | None) -> Allocation:
    if names is None:
        return allocation
    per_numa = {node: tuple(sorted(names[id_] for id_ in ids)) for node, ids in allocation.devices_per_numa.items()}
    return replace(allocation, devices_per_numa=per_numa)
