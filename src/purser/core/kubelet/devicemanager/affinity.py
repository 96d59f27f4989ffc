"""Which free devices are on the NUMA nodes that the topology manager chose (filterByAffinity)."""

from typing import NamedTuple

from purser.core.kubelet.masks import Mask
from purser.core.kubelet.state import PluginDevice, PluginResource
from purser.core.kubelet.versions import Behaviour


class Groups(NamedTuple):
    """A partition of the free devices, best first."""

    aligned: frozenset[str]
    unaligned: frozenset[str]
    no_affinity: frozenset[str]
    """Those without a NUMA node; all of them where the topology manager has no wish."""


def filter_by_affinity(
    rules: Behaviour, resource: PluginResource, available: frozenset[str], mask: Mask | None
) -> Groups:
    """Partition free devices by the merged hint's mask.

    A device on several NUMA nodes is aligned when any of them is in the mask. Kubelets before 1.22 look at only one of
    them, whichever comes first in a node order that is random in effect (it is sorted, but not by what it should be);
    here that is the lowest.
    """
    if mask is None:
        return Groups(frozenset(), frozenset(), available)
    by_nodes: dict[tuple[int, ...], set[str]] = {}
    for id_ in available:
        by_nodes.setdefault(nodes_of_device(resource.devices.get(id_)), set()).add(id_)
    groups: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for nodes, ids in by_nodes.items():
        groups[_group_of(rules, nodes, mask)].update(ids)
    return Groups(*map(frozenset, groups))


def _group_of(rules: Behaviour, nodes: tuple[int, ...], mask: Mask) -> int:
    """The place in `Groups`. A plugin may name any number as a node: one that no machine has is in no mask."""
    if not nodes:
        return 2
    judged = nodes if rules.any_numa_node_aligns else (min(nodes),)
    return 0 if any(0 <= node < mask.bit_length() and mask >> node & 1 for node in judged) else 1


def nodes_of_device(device: PluginDevice | None) -> tuple[int, ...]:
    """The NUMA nodes that a plugin names for a device; none for a device that it no longer lists."""
    return device.numa_nodes or () if device is not None else ()
