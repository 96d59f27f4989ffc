"""Sets of NUMA nodes in records: MessagePack's integers end at 64 bits, and Linux can be built for 1024 nodes."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from purser.core.kubelet.hints import Hint
from purser.core.kubelet.masks import MAX_NUMA_NODE, Mask
from purser.core.kubelet.state import KubeletState, MemoryState

_PLAIN_BITS = 64
_MAX_MASK_BYTES = (MAX_NUMA_NODE + 1) // 8


def without_wide_masks(state: KubeletState) -> tuple[KubeletState, tuple[bytes, ...]]:
    """A kubelet's state as a record can hold it, and the masks that it lacks then: all, once one of them is too long.

    They are 0 in the state, which no kubelet reports: who does not look for them elsewhere takes it for damaged.
    """
    found: list[Mask] = []

    def remove_mask(mask: Mask) -> Mask:
        found.append(mask)
        return 0

    stripped = _with_masks(state, remove_mask)
    if all(mask.bit_length() <= _PLAIN_BITS for mask in found):
        return state, ()
    return stripped, tuple(mask.to_bytes((mask.bit_length() + 7) // 8, "little") for mask in found)


def with_wide_masks(state: KubeletState, masks: Sequence[bytes]) -> KubeletState:
    """The state with the masks that a record has beside it. Raises ValueError for others."""
    if not masks:
        return state
    left = iter(masks)

    def restore_mask(mask: Mask) -> Mask:
        content = next(left, None)
        if content is None or len(content) > _MAX_MASK_BYTES:
            raise ValueError(f"a set of NUMA nodes is missing, or has more than {_MAX_MASK_BYTES} bytes")
        return int.from_bytes(content, "little")

    whole = _with_masks(state, restore_mask)
    if next(left, None) is not None:
        raise ValueError("there are more sets of NUMA nodes than kubelet's state uses")
    return whole


def _with_masks(state: KubeletState, change: Callable[[Mask], Mask]) -> KubeletState:
    """Each mask changed, in the order of the state."""
    hints = {
        key: hint if hint.mask is None else Hint(change(hint.mask), hint.preferred) for key, hint in state.hints.items()
    }
    memory = state.memory
    if memory is not None:
        nodes = {number: replace(node, group=change(node.group)) for number, node in memory.nodes.items()}
        blocks = {
            key: tuple(replace(block, nodes=change(block.nodes)) for block in held)
            for key, held in memory.blocks.items()
        }
        memory = MemoryState(nodes, blocks)
    return replace(state, hints=hints, memory=memory)
