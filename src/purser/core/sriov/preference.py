"""Which of a pool's free devices a container had better get: of as few NUMA nodes as possible, and of as many ports.

VFs of one port share its bandwidth. So each is taken of the port with the most free ones, and several of different
ports while there are any.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from purser.core.sriov.devices import SriovDevice


def preferred_devices(
    size: int,
    available: Sequence[str],
    must_include: Sequence[str],
    devices: Mapping[str, SriovDevice],
    places: Mapping[str, int] = MappingProxyType({}),
    place_of: Callable[[SriovDevice], str] = lambda device: "",
    *,
    held: Collection[str] = (),
) -> list[str]:
    """``size`` ids of ``available``, with all of ``must_include``; fewer where there are not so many.

    ``devices``: by id; an id that is not there is taken last. ``places``: how many are to be of which place, by the
    pod's grant; ``place_of`` says where a device is. ``held``: ids that containers hold, as far as is known; of a place
    they are taken last. kubelet may offer one that it has given out (`purser.core.device.answers.preferred_ids`).
    """
    chosen = list(dict.fromkeys(must_include))[:size]
    free = [each for each in dict.fromkeys(available) if each not in chosen]
    place = {id_: place_of(devices[id_]) for id_ in (*chosen, *free) if id_ in devices}
    missing = Counter(places)
    missing.subtract(place[id_] for id_ in chosen if id_ in place)
    while free and len(chosen) < size:
        granted = [id_ for id_ in free if id_ in place and missing[place[id_]] > 0]
        best = min(granted or free, key=_penalty_key(chosen, free, devices, held))
        missing[place.get(best, "")] -= 1
        chosen.append(best)
        free.remove(best)
    return chosen


def _penalty_key(
    chosen: Sequence[str], free: Sequence[str], devices: Mapping[str, SriovDevice], held: Collection[str]
) -> Callable[[str], tuple[bool, bool, bool, int, int, int, str]]:
    """How much worse one of the free ids is than the others, beside those that are chosen."""
    free_of_port = Counter(_port(devices.get(each)) for each in free if each not in held)
    free_on_node = Counter(_node(devices.get(each)) for each in free if each not in held)
    chosen_of_port = Counter(_port(devices.get(each)) for each in chosen)
    nodes = {_node(devices.get(each)) for each in chosen}

    def badness(id_: str) -> tuple[bool, bool, bool, int, int, int, str]:
        device = devices.get(id_)
        port, node = _port(device), _node(device)
        elsewhere = bool(nodes) and node not in nodes
        return (
            id_ in held,
            device is None,
            elsewhere,
            -free_on_node[node],
            chosen_of_port[port],
            -free_of_port[port],
            id_,
        )

    return badness


def _port(device: SriovDevice | None) -> str:
    return "" if device is None else device.pf_address or device.address


def _node(device: SriovDevice | None) -> int | None:
    return None if device is None else device.numa_node
