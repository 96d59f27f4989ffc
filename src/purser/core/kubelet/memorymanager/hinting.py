"""Topology hints of the memory manager: the sets of NUMA nodes that a request can be met from."""

from collections.abc import Iterable, Mapping, Sequence

from purser.core.kubelet.hints import Hint, ProviderHints
from purser.core.kubelet.masks import Mask, masks_up_to_limit
from purser.core.kubelet.memorymanager.asked import Amounts, of_container, of_pod
from purser.core.kubelet.memorymanager.tables import Nodes, allocatable_bytes, free_bytes, violates_groups
from purser.core.kubelet.pod import MEMORY, KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.state import KubeletNode, MemoryBlock, MemoryState
from purser.core.kubelet.versions import behaviour

Reusable = Mapping[tuple[Mask, str], int]
"""What finished init containers of the pod under admission left behind: bytes by node set and resource."""

MAX_NODES_ENUMERATED = 8
"""On machines with more NUMA nodes only those count that could add memory or are in a group. kubelet itself goes
through all 2^n sets (and would not end with 34 nodes); what is left out are wider sets than necessary, none of them
preferred. Of many nodes that count, see `purser.core.kubelet.masks.masks_up_to_limit`."""


def hints(
    node: KubeletNode, state: MemoryState, pod: KubeletPod, container: KubeletContainer, reusable: Reusable
) -> ProviderHints:
    """Hints for one container, by memory resource; None: no opinion. An empty mapping, which the topology manager
    takes for no opinion as well, is what kubelet says of a request that no set of nodes can meet: only `allocate`
    fails then."""
    if pod.qos is not QosClass.GUARANTEED:
        return None
    asked = of_container(container)
    held = state.blocks.get((pod.uid, container.name))
    return calculate_hints(state.nodes, asked, reusable) if held is None else _hints_from_blocks(held, asked)


def pod_hints(node: KubeletNode, state: MemoryState, pod: KubeletPod) -> ProviderHints:
    """Hints for a pod as a whole (scope pod). Once any container holds memory, its blocks are what counts."""
    if pod.qos is not QosClass.GUARANTEED:
        return None
    asked = of_pod(behaviour(node.config.parsed_version), pod)
    for container in pod.containers:
        held = state.blocks.get((pod.uid, container.name))
        if held is not None:
            return _hints_from_blocks(held, asked)
    return calculate_hints(state.nodes, asked, {})


def _hints_from_blocks(blocks: Sequence[MemoryBlock], asked: Amounts) -> ProviderHints:
    """The nodes that are held already (regenerateHints); None where something else is asked for than is held."""
    if len(blocks) != len(asked) or any(asked.get(block.resource) != block.size for block in blocks):
        return None
    return {block.resource: (Hint(block.nodes, True),) for block in blocks}


def calculate_hints(nodes: Nodes, asked: Amounts, reusable: Reusable) -> dict[str, tuple[Hint, ...]]:
    """The hints for a request, the same for each resource (calculateHints): sets of nodes with enough free of all,
    preferred when no smaller set could ever have enough."""
    widths = [
        (mask, mask.bit_count())
        for mask in masks_up_to_limit(_relevant_nodes(nodes, asked))
        if all(allocatable_bytes(nodes, mask, resource) >= size for resource, size in asked.items())
    ]
    if not widths or not asked:
        return {}
    narrowest = widths[0][1]  # masks come by width
    found = tuple(
        Hint(mask, width == narrowest) for mask, width in widths if _is_possible(nodes, mask, asked, reusable)
    )
    return dict.fromkeys(asked, found) if found else {}


def _relevant_nodes(nodes: Nodes, asked: Amounts) -> list[int]:
    if len(nodes) <= MAX_NODES_ENUMERATED:
        return sorted(nodes)
    return [n for n in sorted(nodes) if nodes[n].assignments or any(allocatable_bytes(nodes, 1 << n, r) for r in asked)]


def _is_possible(nodes: Nodes, mask: Mask, asked: Amounts, reusable: Reusable) -> bool:
    """Whether a set respects the groups and has enough free, counting what this very set may use again."""
    is_single = mask.bit_count() == 1
    if violates_groups(nodes, mask) or (is_single and nodes[mask.bit_length() - 1].group != mask):
        return False
    return all(free_bytes(nodes, mask, name) + reusable.get((mask, name), 0) >= size for name, size in asked.items())


def best(found: Iterable[Hint]) -> Hint | None:
    """Preferred first, then few nodes, then low ones (findBestHint)."""
    return min(found, key=lambda hint: (not hint.preferred, *_width(hint)), default=None)


def _width(hint: Hint) -> tuple[int, int]:
    mask = hint.mask or 0
    return mask.bit_count(), mask


def of_memory(found: Mapping[str, tuple[Hint, ...]]) -> tuple[Hint, ...]:
    """All resources have the same hints; kubelet looks at those of regular memory."""
    return found.get(MEMORY, ())
