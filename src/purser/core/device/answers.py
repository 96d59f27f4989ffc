"""What the agent answers when kubelet asks for a container's devices. Pure.

The agent answers with it and placement foretells with it, so that what is foretold is what happens.
"""

from collections import Counter
from collections.abc import Collection

from purser.core.device.ids import id_sort_key, uuid_of, uuids_of


def preferred_ids(
    granted: Collection[str],
    size: int,
    available: Collection[str],
    must_include: Collection[str],
    held: Collection[str] = (),
) -> tuple[str, ...] | None:
    """GetPreferredAllocation for ``size`` ids: one for each of the granted devices, in their order. They are uuids; one
    of which the container has two parts appears twice.

    Of the ids of a device it is those that must be included, then the lowest slots that are available, those in
    ``held`` last: containers hold them, though kubelet offers them. It forgets an id that it is about to give out when
    somebody lists PodResources at that moment and a pod has ended since (ManagerImpl.UpdateAllocatedDevices, 1.20 to
    1.37, https://github.com/kubernetes/kubernetes/pull/137534). None where the ids cannot be those of the grant: it has
    another number of devices, ids of others or too many of one must be included, or a device has too few ids to be had.
    """
    if len(granted) != size or Counter(uuids_of(must_include)) - Counter(granted):
        return None
    ids: dict[str, list[str]] = {}
    free = sorted(available, key=lambda each: (each in held, *id_sort_key(each)))
    for id_ in dict.fromkeys((*sorted(must_include, key=id_sort_key), *free)):
        ids.setdefault(uuid_of(id_), []).append(id_)
    chosen = [ids[uuid].pop(0) if ids.get(uuid) else "" for uuid in granted]
    return tuple(chosen) if all(chosen) else None


def least_wanted_ids(
    size: int, available: Collection[str], must_include: Collection[str], held: Collection[str] = ()
) -> tuple[str, ...]:
    """GetPreferredAllocation for a container that gets no device: what is taken anyhow, then all that is left of the
    devices with the fewest ids to be had, so that as many devices as can be keep theirs for others.

    Fewer than ``size`` where there are fewer. ``held``: as for `preferred_ids`.
    """
    chosen = sorted(set(must_include), key=id_sort_key)
    left = Counter(map(uuid_of, set(available).difference(held)))
    taken = set(map(uuid_of, chosen))

    def order(id_: str) -> tuple[object, ...]:
        return id_ in held, uuid_of(id_) not in taken, left[uuid_of(id_)], *id_sort_key(id_)

    chosen += sorted(set(available).difference(chosen), key=order)
    return tuple(chosen[:size])


def are_granted_devices(granted: Collection[str], ids: Collection[str]) -> bool:
    """Allocate, PreStartContainer: whether kubelet took ids of exactly the granted devices, as many of each."""
    return Counter(uuids_of(ids)) == Counter(granted)
