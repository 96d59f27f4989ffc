"""What the agent answers when kubelet asks for a container's devices. Pure.

The agent answers with it and placement foretells with it, so that what is foretold is what happens.
"""

from collections import Counter
from collections.abc import Collection

from purser.core.device.ids import id_order, uuid_of, uuids_of


def preferred_ids(
    granted: Collection[str], size: int, available: Collection[str], must_include: Collection[str]
) -> tuple[str, ...] | None:
    """GetPreferredAllocation for ``size`` ids: one on each of the granted devices (uuids), in their order.

    Of the ids of a device it is the one that must be included, else the lowest slot that is available. None where the
    ids cannot be those of the grant: it has another number of devices, ids of others or two of one must be included, or
    a device has no id to be had.
    """
    required = uuids_of(must_include)
    ranked = (*sorted(must_include, key=id_order), *sorted(available, key=id_order))
    first = {uuid_of(id_): id_ for id_ in reversed(ranked)}
    is_of_grant = len(required) == len(set(required)) and set(required) <= set(granted) <= first.keys()
    return tuple(first[uuid] for uuid in granted) if is_of_grant and len(granted) == size else None


def are_granted(granted: Collection[str], ids: Collection[str]) -> bool:
    """Allocate, PreStartContainer: whether the ids that kubelet took are on exactly the granted devices, one each."""
    return Counter(uuids_of(ids)) == Counter(granted)
