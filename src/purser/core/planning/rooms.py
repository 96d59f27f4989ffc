"""Where room can be made: GPUs of one node, and the pods that hold them."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, count

import msgspec

from purser.core.device.ids import MAX_NODE_DEVICES
from purser.core.fleet import DeviceState, NodeState
from purser.core.model import NVIDIA, DeviceMode
from purser.core.names import GPU_RESOURCE
from purser.core.planning.model import GpuPod, Occupancy, Room, RoomRequest

MAX_SETS = 20_000
"""Sets of GPUs of one node that are looked at: 8 of 16 are 12 870."""

MAX_KEPT_SITES = 128
"""Of these, the cheapest."""


class Site(msgspec.Struct, frozen=True):
    """A room, and the pods that have to leave it."""

    price: int
    """What their evictions cost at least."""
    room: Room
    uids: frozenset[str]


class Sites(msgspec.Struct, frozen=True):
    """All of a fleet's sites, the cheapest first."""

    by_price: tuple[Site, ...]
    complete_below: float
    """No site that costs less is missing."""


def usable(state: DeviceState) -> bool:
    """Whether a pod that asks for whole GPUs can have this one once it is idle."""
    device = state.device
    is_plain = device.replicas == 1 and not device.mig_kind and device.mode is not DeviceMode.MIG
    return not state.closed and is_plain and device.vendor == NVIDIA and device.resource == GPU_RESOURCE


def usable_gpus(occupancy: Occupancy) -> dict[str, int]:
    """How many GPUs a node could have free if all pods went, by node that takes new pods."""
    nodes = (node for node in occupancy.fleet if node.name not in occupancy.closed)
    return {node.name: sum(map(usable, node.devices[:MAX_NODE_DEVICES])) for node in nodes}


def holders(occupancy: Occupancy, node: str) -> dict[str, frozenset[str]]:
    """By uuid of a node's devices, the uids of the pods that hold something of it."""
    ledger, found = occupancy.fleet.ledger, defaultdict(set)
    for grant in ledger.grants(node):
        for uuid in ledger.held(grant.pod_uid):
            found[uuid].add(grant.pod_uid)
    return {uuid: frozenset(uids) for uuid, uids in found.items()}


def evictable_pod(occupancy: Occupancy, uid: str) -> GpuPod | None:
    """The pod, where it may be evicted."""
    pod = occupancy.pods.get(uid)
    if pod is None or pod.stay_reason or (pod.budget and occupancy.allowed.get(pod.budget, 0) < 1):
        return None
    return pod


def sites(occupancy: Occupancy, gpus: int) -> Sites:
    """The sites of so many GPUs on every node."""
    found: list[Site] = []
    complete = math.inf
    for node in (node for node in occupancy.fleet if node.name not in occupancy.closed):
        here, below = _on_node(occupancy, node, gpus)
        found += here
        complete = min(complete, below)
    found.sort(key=lambda site: (site.price, len(site.uids), site.room))
    return Sites(tuple(found), complete)


def _on_node(occupancy: Occupancy, node: NodeState, gpus: int) -> tuple[list[Site], float]:
    held = holders(occupancy, node.name)
    prices: dict[str, int] = {}
    freeable_gpus: list[str] = []
    for uuid in (state.device.uuid for state in node.devices[:MAX_NODE_DEVICES] if usable(state)):
        pods = {uid: evictable_pod(occupancy, uid) for uid in held.get(uuid, ())}
        if all(pods.values()):
            freeable_gpus.append(uuid)
            prices |= {uid: pod.least_price for uid, pod in pods.items() if pod is not None}
    if len(freeable_gpus) < gpus:
        return [], math.inf
    is_all = math.comb(len(freeable_gpus), gpus) <= MAX_SETS
    if not is_all:  # the GPUs that are cheapest by themselves
        alone = {uuid: sum(prices[uid] for uid in held.get(uuid, ())) for uuid in freeable_gpus}
        kept = set(sorted(freeable_gpus, key=alone.__getitem__)[:gpus])
        freeable_gpus = [uuid for uuid in freeable_gpus if uuid in kept]
    found = [_site(node.name, uuids, held, prices) for uuids in combinations(freeable_gpus, gpus)]
    found.sort(key=lambda site: (site.price, len(site.uids), site.room))
    left_out = found[MAX_KEPT_SITES].price if len(found) > MAX_KEPT_SITES else math.inf
    return found[:MAX_KEPT_SITES], left_out if is_all else 0


def _site(node: str, uuids: Sequence[str], held: Mapping[str, frozenset[str]], prices: Mapping[str, int]) -> Site:
    uids = frozenset().union(*(held.get(uuid, frozenset()) for uuid in uuids))
    return Site(sum(map(prices.__getitem__, uids)), Room(node, tuple(uuids)), uids)


def choices_by_price(found: Sequence[Site], wish: RoomRequest) -> Iterator[tuple[int, tuple[Site, ...]]]:
    """Every choice of sites on as many different nodes as wanted with what it costs at least, the cheapest first.
    ``found``: the cheapest first. What is kept in memory grows with the choices that are taken."""
    by_node: dict[str, list[Site]] = {}
    for site in found:
        by_node.setdefault(site.room.node, []).append(site)
    nodes = list(by_node.values())
    if len(nodes) < wish.nodes:
        return
    tie_breaker = count()
    first = tuple((node, 0) for node in range(wish.nodes))
    heap = [(_price(nodes, first), next(tie_breaker), first)]
    seen = {first}
    while heap:
        price, _, choice = heapq.heappop(heap)
        yield price, tuple(nodes[node][at] for node, at in choice)
        for after in _next_choices(nodes, choice):
            if after not in seen:
                seen.add(after)
                heapq.heappush(heap, (_price(nodes, after), next(tie_breaker), after))


_SiteChoice = tuple[tuple[int, int], ...]
"""Of nodes, in the order of their cheapest sites, each with the number of its site."""


def _price(nodes: Sequence[Sequence[Site]], choice: _SiteChoice) -> int:
    return sum(nodes[node][at].price for node, at in choice)


def _next_choices(nodes: Sequence[Sequence[Site]], choice: _SiteChoice) -> Iterator[_SiteChoice]:
    """What is next to a choice: a node's next site, or the next node's first instead of a node's first. So each is
    reached, and never by one that costs more."""
    taken = {node for node, _ in choice}
    for number, (node, at) in enumerate(choice):
        if at + 1 < len(nodes[node]):
            yield (*choice[:number], (node, at + 1), *choice[number + 1 :])
        if not at and node + 1 < len(nodes) and node + 1 not in taken:
            yield (*choice[:number], (node + 1, 0), *choice[number + 1 :])
