"""Takes memory for a container, and gives it back."""

from collections.abc import Collection, Iterable, Sequence

from purser.core.kubelet.hints import Hint
from purser.core.kubelet.masks import Mask
from purser.core.kubelet.memorymanager.asked import Amounts, of_container
from purser.core.kubelet.memorymanager.hinting import Reusable, best, calculate_hints, of_memory
from purser.core.kubelet.memorymanager.tables import Nodes, assign, has_free, release, violates_groups
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass, releases_resources
from purser.core.kubelet.state import ContainerKey, KubeletNode, MemoryBlock, MemoryState
from purser.core.kubelet.versions import Behaviour, behaviour

Blocks = tuple[MemoryBlock, ...]


class _CannotAllocateError(Exception):
    """Ends an allocation; the message is kubelet's."""


def allocate(
    node: KubeletNode, state: MemoryState, pod: KubeletPod, container: KubeletContainer, hint: Hint, reusable: Reusable
) -> tuple[MemoryState, str | None, Reusable]:
    """Take one container's memory: the new state, kubelet's error text or None, and what may be used again by the
    pod's next container. On an error nothing is taken. ``hint`` is the topology manager's merged one (`NO_AFFINITY`
    where there is none), ``reusable`` empty for a pod's first container."""
    if pod.qos is not QosClass.GUARANTEED:
        return state, None, reusable
    switches = behaviour(node.config.parsed_version)
    held = state.blocks.get((pod.uid, container.name))
    if held is not None:
        return state, None, _reusable_after(switches, container, held, reusable)
    asked = of_container(container)
    try:
        mask = _choose(switches, state.nodes, asked, hint, reusable)
    except _CannotAllocateError as error:
        return state, str(error), reusable
    blocks = tuple(MemoryBlock(mask, resource, size) for resource, size in asked.items())
    taken = _take(state, (pod.uid, container.name), blocks, reusable)
    return (
        _shrink_init_blocks(switches, taken, pod, container, blocks),
        None,
        _reusable_after(switches, container, blocks, reusable),
    )


def _choose(switches: Behaviour, nodes: Nodes, asked: Amounts, hint: Hint, reusable: Reusable) -> Mask:
    """The nodes to take from: the hint's, or the default ones where it names none, widened until they suffice."""
    if hint.mask is None:
        hint = _default_hint(nodes, asked, hint, reusable)
    if not has_free(nodes, hint.mask or 0, asked):
        hint = _extend_hint(nodes, asked, hint, reusable)
    mask = hint.mask or 0
    if switches.guards_memory_groups and violates_groups(nodes, mask):
        raise _CannotAllocateError("[memorymanager] preferred hint violates NUMA node allocation")
    return mask


def _default_hint(nodes: Nodes, asked: Amounts, hint: Hint, reusable: Reusable) -> Hint:
    default = best(of_memory(calculate_hints(nodes, asked, reusable)))
    if default is None:
        raise _CannotAllocateError(
            "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
        )
    if hint.preferred and not default.preferred:
        raise _CannotAllocateError("[memorymanager] failed to find the default preferred hint")
    return default


def _extend_hint(nodes: Nodes, asked: Amounts, hint: Hint, reusable: Reusable) -> Hint:
    """The best set that has the hint's nodes among its own: the merge may have left only a part of our hint."""
    mask = hint.mask or 0
    found = of_memory(calculate_hints(nodes, asked, reusable))
    extended = best(wider for wider in found if (wider.mask or 0) & mask == mask)
    if extended is None:
        raise _CannotAllocateError("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
    if hint.preferred and not extended.preferred:
        raise _CannotAllocateError("[memorymanager] failed to find the extended preferred hint")
    return extended


def _take(state: MemoryState, key: ContainerKey, blocks: Blocks, reusable: Reusable) -> MemoryState:
    nodes = state.nodes
    for block in blocks:
        nodes = assign(nodes, block, max(0, block.size - reusable.get((block.nodes, block.resource), 0)))
    return MemoryState(nodes, {**state.blocks, key: blocks})


def _reusable_after(
    switches: Behaviour, container: KubeletContainer, blocks: Blocks, reusable: Reusable
) -> dict[tuple[Mask, str], int]:
    """An init container leaves the larger of what it and those before it had, everything else uses that up."""
    after = dict(reusable)
    is_init = releases_resources(switches, container)
    for block in blocks:
        key = (block.nodes, block.resource)
        left = after.get(key, 0)
        after[key] = max(left, block.size) if is_init else max(0, left - block.size)
    return {key: size for key, size in after.items() if size}


def _shrink_init_blocks(
    switches: Behaviour, state: MemoryState, pod: KubeletPod, container: KubeletContainer, blocks: Blocks
) -> MemoryState:
    """Blocks of earlier init containers lose what this container uses again, down to nothing, so that a pod's blocks
    add up to what it took (updateInitContainersMemoryBlocks)."""
    changed = dict(state.blocks)
    left = {(block.nodes, block.resource): block.size for block in blocks}
    for key in _init_keys_before(switches, pod, container):
        if key in changed:
            changed[key] = tuple(_shrink_block(block, left) for block in changed[key])
    return MemoryState(state.nodes, changed)


def _shrink_block(block: MemoryBlock, left: dict[tuple[Mask, str], int]) -> MemoryBlock:
    """The block without what is used again; ``left`` counts down."""
    key = (block.nodes, block.resource)
    used = min(block.size, left.get(key, 0))
    if used:
        left[key] -= used
    return MemoryBlock(block.nodes, block.resource, block.size - used)


def _init_keys_before(switches: Behaviour, pod: KubeletPod, container: KubeletContainer) -> Iterable[ContainerKey]:
    for earlier in pod.containers:
        if earlier.name == container.name:
            return
        if releases_resources(switches, earlier):
            yield pod.uid, earlier.name


def free_all_but(state: MemoryState, active_uids: Collection[str]) -> MemoryState:
    """The state without what pods hold that are no longer active (removeStaleState)."""
    return _without_containers(state, sorted(key for key in state.blocks if key[0] not in active_uids))


def remove(state: MemoryState, key: ContainerKey) -> MemoryState:
    """The state without what one container holds; the same state when it holds nothing."""
    return _without_containers(state, [key] if key in state.blocks else [])


def _without_containers(state: MemoryState, gone: Sequence[ContainerKey]) -> MemoryState:
    if not gone:
        return state
    nodes, ended = state.nodes, set(gone)
    for key in gone:
        for block in state.blocks[key]:
            nodes = release(nodes, block)
    return MemoryState(nodes, {key: blocks for key, blocks in state.blocks.items() if key not in ended})
