"""Topology hints of device resources: on which sets of NUMA nodes a request can be met."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

from purser.core.kubelet.devicemanager.holdings import held_by, held_by_pod
from purser.core.kubelet.devicemanager.requests import container_request, pod_request
from purser.core.kubelet.hints import Hint, ResourceHints
from purser.core.kubelet.masks import Mask, mask_of, masks_up_to_limit, nodes_of
from purser.core.kubelet.pod import KubeletContainer, KubeletPod
from purser.core.kubelet.state import DeviceManagerState, KubeletNode, PluginDevice, PluginResource
from purser.core.kubelet.versions import Behaviour, behaviour

Reusable = Mapping[str, frozenset[str]]
"""By resource: the devices of init containers that ended, which the next containers of the same pod may have."""

Hints = tuple[Hint, ...]

Placements = list[tuple[Mask, int]]
"""Distinct sets of NUMA nodes, and how many devices are at each."""

_DEFAULT_MAX_NODES = 8
"""kubelet's default limit, beyond which it does not start with any policy but none."""


def hints(
    node: KubeletNode, state: DeviceManagerState, pod: KubeletPod, container: KubeletContainer, reusable: Reusable
) -> ResourceHints:
    """The hints for one container (GetTopologyHints)."""
    held = held_by(state, (pod.uid, container.name))
    return {
        name: _resource_hints(
            node,
            state,
            name,
            n,
            held[name].device_ids if name in held else frozenset(),
            reusable.get(name, frozenset()),
        )
        for name, n in container_request(state, container).items()
    }


def pod_hints(node: KubeletNode, state: DeviceManagerState, pod: KubeletPod) -> ResourceHints:
    """The hints for a pod as a whole (GetPodTopologyHints)."""
    request = pod_request(_behaviour(node), state, pod)
    return {
        name: _resource_hints(node, state, name, n, held_by_pod(state, pod.uid, name), frozenset())
        for name, n in request.items()
    }


def _resource_hints(
    node: KubeletNode,
    state: DeviceManagerState,
    name: str,
    request: int,
    held: frozenset[str],
    reusable: frozenset[str],
) -> Hints | None:
    """None: no preference, for no device has a NUMA node. Empty: the request cannot be met."""
    resource = state.resources.get(name, PluginResource())
    if not has_topology(_behaviour(node), resource):
        return None
    if held:
        return generate_hints(node, resource, held, frozenset(), request) if len(held) == request else ()
    available = resource.healthy - state.allocated.get(name, frozenset())
    if len(available | reusable) < request:
        return ()
    return generate_hints(node, resource, available, reusable, request)


def has_topology(rules: Behaviour, resource: PluginResource) -> bool:
    """Whether any device has a NUMA node; for older kubelets an empty topology does as well."""
    nodes = (device.numa_nodes for device in resource.devices.values())
    return any(nodes) if rules.needs_a_node_for_topology else any(of_device is not None for of_device in nodes)


def generate_hints(
    node: KubeletNode, resource: PluginResource, available: Iterable[str], reusable: Iterable[str], request: int
) -> Hints:
    """Every set of NUMA nodes on which a request can be met; preferred are those as small as the hardware allows.

    In kubelet's order: by width, then by nodes. Preferred is about all devices of the resource, healthy and free or
    not. A set that leaves a reusable device out is none. Costs what the number of sets and of distinct device
    placements cost, not the number of devices: those are counted once.

    Which sets: of all NUMA nodes, or, since PR 138244, of those that hold the resource. Where a machine has more than 8
    nodes the latter holds here for older kubelets too (they only start there with max-allowable-numa-nodes, and then
    compute for hours): what is left out are sets with nodes that hold none of it, which are never preferred but for a
    request of 0, so that only a merged hint that is not preferred can come out narrower than that kubelet's. Where so
    many nodes hold the resource that there are more than `MAX_MASKS` sets, the narrow ones are looked at, width by
    width, and the widest (which is preferred where none of the narrow ones holds enough).
    """
    everything = _placements(node, resource.devices.values())
    free = _placements(node, _listed(resource, available))
    bound = [device for device in _listed(resource, reusable) if device.numa_nodes is not None]
    needed = frozenset(_known_mask(node, device.numa_nodes) for device in bound)
    nodes = _nodes_to_enumerate(node, everything)
    smallest = len(nodes)
    found: list[Mask] = []
    for mask in masks_up_to_limit(nodes):
        width = mask.bit_count()
        if width < smallest and _count(everything, mask) >= request:
            smallest = width
        if all(mask & required_mask for required_mask in needed) and len(bound) + _count(free, mask) >= request:
            found.append(mask)
    return tuple(Hint(mask, mask.bit_count() == smallest) for mask in found)


def _nodes_to_enumerate(node: KubeletNode, everything: Placements) -> tuple[int, ...]:
    machine = node.machine.numa_nodes
    if _behaviour(node).enumerates_bearing_nodes_only or len(machine) > _DEFAULT_MAX_NODES:
        return nodes_of(reduce(or_, (mask for mask, _ in everything), 0))
    return tuple(numa.node for numa in machine)


def _listed(resource: PluginResource, ids: Iterable[str]) -> list[PluginDevice]:
    return [device for id_ in ids if (device := resource.devices.get(id_)) is not None]


def _placements(node: KubeletNode, devices: Iterable[PluginDevice]) -> Placements:
    """How many devices there are at each distinct set of NUMA nodes; devices without one never count."""
    by_nodes = Counter([device.numa_nodes for device in devices])
    by_mask: Counter[Mask] = Counter()
    for nodes, n in by_nodes.items():
        by_mask[_known_mask(node, nodes)] += n
    return [(mask, n) for mask, n in by_mask.items() if mask]


def _known_mask(node: KubeletNode, nodes: tuple[int, ...] | None) -> Mask:
    """Without nodes that the machine does not have: a plugin may name any number."""
    machine = node.machine.nodes_mask
    return mask_of(n for n in nodes or () if 0 <= n < machine.bit_length() and machine >> n & 1)


def _count(placements: Placements, mask: Mask) -> int:
    return sum(n for of_device, n in placements if of_device & mask)


def _behaviour(node: KubeletNode) -> Behaviour:
    return behaviour(node.config.parsed_version)
