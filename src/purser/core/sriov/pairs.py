"""GPUs and network devices under the same PCIe switch: which of both a container gets, so that as many GPUs as there
can be have one of the container's network devices near them.

A device of a pool and a GPU are a pair if they share a switch: the bridges above them begin alike. What is found is a
maximum: a GPU for which there seems to be none is tried with other devices for the GPUs before it (augmenting paths,
as in any maximum flow). So the GPUs that are paired are a maximum, and the first of those in the order in which they
come.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from purser.core.model import ContainerGrant, Device, Grant, NodePool, PcieSwitches, PoolShare
from purser.core.pod.phases import phases
from purser.core.wording import portion

TakenDevices = Mapping[tuple[str, str], int]
"""By pool and place, how many of its devices grants have."""


class FreePlace(msgspec.Struct, frozen=True):
    """Where devices of a pool are to be had."""

    resource: str
    place: str
    switches: PcieSwitches
    free: int


class PoolAsk(msgspec.Struct, frozen=True):
    """What a container asks of one pool, and what there is."""

    resource: str
    count: int
    places: tuple[FreePlace, ...]


def pairing_depth(one: PcieSwitches, other: PcieSwitches) -> int:
    """How many switches, or ports of them, two devices share: the more, the nearer. 0: they are no pair."""
    depth = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        depth += 1
    return depth


class Pairing:
    """The pairs of one container, while its GPUs are chosen one after another."""

    def __init__(self, asked: Sequence[PoolAsk]) -> None:
        self._asked = asked
        self._wanted = {ask.resource: ask.count for ask in asked}
        self._places = {(each.resource, each.place): each for ask in asked for each in ask.places if each.free > 0}
        self._distinct = {each.switches for each in self._places.values()}
        self._near: dict[PcieSwitches, list[tuple[str, str]]] = {}
        self._hopeless: set[PcieSwitches] = set()
        self._gpus: list[PcieSwitches] = []
        self._place_of: dict[int, tuple[str, str]] = {}
        self._used = Counter[tuple[str, str]]()
        self._of_pool = Counter[str]()

    @property
    def count(self) -> int:
        """How many pairs there are."""
        return len(self._place_of)

    def is_near(self, gpu: PcieSwitches) -> bool:
        """Whether a GPU below these switches has any free device near it."""
        return bool(self._places_near(gpu))

    def add(self, gpu: PcieSwitches) -> bool:
        """One GPU more; whether it gets a device, while all that had one still have one."""
        number = len(self._gpus)
        self._gpus.append(gpu)
        if self.count >= sum(self._wanted.values()) or gpu in self._hopeless or not self.is_near(gpu):
            return False
        direct = next((key for key in self._places_near(gpu) if self._has_room(key)), None)
        path = self._path(number) if direct is None else {number: direct}
        if not path:
            self._hopeless.add(gpu)  # what could not be had once can never be had: no pair is given up
        self._place_of.update(path)
        self._used = Counter(self._place_of.values())
        self._of_pool = Counter(resource for resource, _ in self._place_of.values())
        return bool(path)

    def _has_room(self, key: tuple[str, str]) -> bool:
        return self._used[key] < self._places[key].free and self._of_pool[key[0]] < self._wanted[key[0]]

    def shares(self, container: str) -> tuple[PoolShare, ...]:
        """Where the container's devices come from, beside those of pairs those that are nearest to its GPUs."""
        taken = Counter(self._place_of.values())
        gpus = set(self._gpus)
        depths = {each: max((pairing_depth(gpu, each) for gpu in gpus), default=0) for each in self._distinct}
        for ask in self._asked:
            missing = ask.count - self._of_pool[ask.resource]
            free = [place for place in ask.places if place.free > 0]
            for place in sorted(free, key=lambda each: (-depths[each.switches], -each.free, each.place)):
                key = place.resource, place.place
                more = max(0, min(missing, place.free - taken[key]))
                taken[key] += more
                missing -= more
        return tuple(PoolShare(container, *key, count) for key, count in sorted(taken.items()) if count)

    def _places_near(self, gpu: PcieSwitches) -> list[tuple[str, str]]:
        """Places near a GPU, the nearest first."""
        if gpu not in self._near:
            depths = {switches: pairing_depth(gpu, switches) for switches in self._distinct}
            near = {key: depth for key, each in self._places.items() if (depth := depths[each.switches])}
            self._near[gpu] = sorted(near, key=lambda key: (-near[key], key))
        return self._near[gpu]

    def _path(self, first: int) -> dict[int, tuple[str, str]]:
        """Which GPUs get a device of which place instead, so that the first one gets one, too; empty: none do."""
        at: dict[tuple[str, str], list[int]] = {}
        for gpu, key in self._place_of.items():
            at.setdefault(key, []).append(gpu)
        newcomer: dict[tuple[str, str], int] = {}
        """By place, the GPU that is to get a device there."""
        next_place: dict[int, tuple[str, str]] = {}
        """By GPU that is to get another device: the place whose newcomer needs that."""
        reached, pools = deque([first]), set[str]()
        while reached:
            gpu = reached.popleft()
            for key in self._places_near(self._gpus[gpu]):
                if key in newcomer:
                    continue
                newcomer[key], resource = gpu, key[0]
                if self._has_room(key):
                    return _augment_path(key, first, newcomer, next_place)
                leaving = at.get(key, [])
                if (
                    self._used[key] < self._places[key].free and resource not in pools
                ):  # any other GPU with a device of the pool may leave that
                    pools.add(resource)
                    leaving = [each for place, those in at.items() if place[0] == resource for each in those]
                for each in leaving:
                    if each not in next_place:
                        next_place[each] = key
                        reached.append(each)
        return {}


def _augment_path(
    last: tuple[str, str],
    first: int,
    newcomer: Mapping[tuple[str, str], int],
    next_place: Mapping[int, tuple[str, str]],
) -> dict[int, tuple[str, str]]:
    changed: dict[int, tuple[str, str]] = {}
    key = last
    while (gpu := newcomer[key]) != first:
        changed[gpu] = key
        key = next_place[gpu]
    changed[first] = key
    return changed


class ContainerPairs(msgspec.Struct, frozen=True):
    """How a container with GPUs and network devices is off."""

    container: str
    gpus: int
    nics: int
    """Devices of SR-IOV pools."""
    pairs: int

    @property
    def most(self) -> int:
        """As many pairs as it could have."""
        return min(self.gpus, self.nics)


def pairs_of(grant: Grant, switches: Mapping[str, PcieSwitches], pools: Sequence[NodePool]) -> list[ContainerPairs]:
    """Of each container that a grant gives both. ``switches``: above the node's GPUs, by uuid."""
    places = {(pool.resource, each.id): each.switches for pool in pools for each in pool.places}
    found = []
    for part in grant.containers:
        shares = [share for share in grant.pools if share.container == part.container]
        if shares:
            free = [
                FreePlace(each.resource, each.place, places.get((each.resource, each.place), ()), each.count)
                for each in shares
            ]
            found.append(container_pairs(part, free, switches))
    return found


def pairs_sentence(found: Sequence[ContainerPairs]) -> str:
    """Such as ``2 of 2 GPUs have their network device under the same PCIe switch``. Of a pod with fewer network devices
    than GPUs it is these that are counted."""
    gpus, nics = sum(each.gpus for each in found), sum(each.nics for each in found)
    pairs = sum(each.pairs for each in found)
    if sum(each.most for each in found) < gpus:
        found_pairs = portion(pairs, nics, "network device", "has", "have")
        return f"{found_pairs} {'its' if nics == 1 else 'a'} GPU under the same PCIe switch"
    return f"{portion(pairs, gpus, 'GPU', 'has its', 'have their')} network device under the same PCIe switch"


def container_pairs(
    part: ContainerGrant, held: Sequence[FreePlace], switches: Mapping[str, PcieSwitches]
) -> ContainerPairs:
    """Of a container that has just these network devices."""
    by_pool = Counter[str]()
    for each in held:
        by_pool[each.resource] += each.free
    pairing = Pairing(
        [PoolAsk(name, count, tuple(each for each in held if each.resource == name)) for name, count in by_pool.items()]
    )
    for uuid in part.uuids:
        pairing.add(switches.get(uuid, ()))
    return ContainerPairs(part.container, len(part.shares), sum(by_pool.values()), pairing.count)


def switches_of(devices: Iterable[Device]) -> dict[str, PcieSwitches]:
    """Above these GPUs, by uuid."""
    return {device.uuid: device.pcie for device in devices}


def taken_by_grants(grants: Iterable[Grant]) -> dict[tuple[str, str], int]:
    """By pool and place, how many devices these grants have. What init containers get is handed on to those after them:
    it counts as far as it is more."""
    taken = Counter[tuple[str, str]]()
    for grant in grants:
        if grant.pools:
            peak = Counter[tuple[str, str]]()
            for phase in phases(grant.containers):
                peak |= _pool_usage({part.container for part in phase}, grant)
            taken += peak
    return dict(taken)


def _pool_usage(containers: Collection[str], grant: Grant) -> "Counter[tuple[str, str]]":
    found = Counter[tuple[str, str]]()
    for share in grant.pools:
        if share.container in containers:
            found[share.resource, share.place] += share.count
    return found
