"""A lower bound of what any plan costs: a mixed-integer program that HiGHS solves (scipy, the extra ``simulator``).

Which nodes have room is decided exactly, and so is which pods on several GPUs have to leave. Where the pods land is
relaxed. Pods that want whole GPUs need as many of one node that are idle or become so. For others GPUs of one model and
size are one pool of memory, and pods are divisible there. A real plan obeys all of this as well.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from purser.core.fleet import DeviceState, NodeState
from purser.core.model import ContainerRequest, PodRequest
from purser.core.placement.shape import container_shape
from purser.core.planning.model import LOST_POD_PRICE, MOVED_POD_PRICE, WAITING_POD_PRICE, Occupancy, RoomRequest
from purser.core.planning.rooms import evictable_pod, holders, sites, usable

MAX_SECONDS = 20.0
"""For the solver; what it has proved by then is a bound as well."""


class _Pool(msgspec.Struct, frozen=True, order=True):
    """GPUs that are alike; their memory counts as one."""

    model: str
    memory_mib: int
    replicas: int
    is_partitioned: bool
    """Into GPU instances on demand: which one a pod gets is not looked at, and may be smaller than what it asks for."""


class NoBoundError(RuntimeError):
    """The solver is not installed, or gave no answer; the message says which."""


class _Need(msgspec.Struct, frozen=True):
    """What a pod takes of a pool that it may land in."""

    pool: _Pool
    mib: int
    whole: int
    """GPUs of one node, which have to be idle; 0 where it asks for shares."""


class _Kind(msgspec.Struct, frozen=True):
    """Pods that need the same, wherever they land."""

    needs: tuple[_Need, ...]


def least_cost(occupancy: Occupancy, wish: RoomRequest, known: int, max_seconds: float = MAX_SECONDS) -> int:
    """What a plan costs at least, at most ``known``, which is the cost of one. Raises `NoBoundError`."""
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_matrix
    except ImportError as error:
        raise NoBoundError("the bound needs scipy: run pip install scipy") from error
    program = _Program(occupancy, wish, known)
    if not program.has_rooms:
        return known
    matrix = csr_matrix(program.matrix, shape=(len(program.limits), len(program.prices)))
    found: Any = milp(
        np.array(program.prices),
        constraints=LinearConstraint(matrix, -np.inf, np.array(program.limits)),
        integrality=np.array(program.integral),
        bounds=Bounds(0, np.array(program.most)),
        options={"time_limit": max_seconds},
    )
    if found.status == 2:  # infeasible: what is cheaper than the known plan does not exist
        return known
    if found.mip_dual_bound is None or not math.isfinite(found.mip_dual_bound):
        raise NoBoundError(f"the bound could not be computed: {found.message}")
    least: int = math.ceil(found.mip_dual_bound - 1e-6)
    return max(0, min(known, least))


class _Program:
    """Minimal prices, where each row of the matrix is at most its limit."""

    def __init__(self, occupancy: Occupancy, wish: RoomRequest, known: int) -> None:
        self._occupancy = occupancy
        self._wish = wish
        self._pools = list(dict.fromkeys(_pool(state) for node in occupancy.fleet for state in node.devices))
        self.prices: list[float] = []
        self.integral: list[int] = []
        self.most: list[float] = []
        self.limits: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        self._capacity: defaultdict[_Pool, list[tuple[int, float]]] = defaultdict(list)
        self._flows: defaultdict[_Kind, list[int]] = defaultdict(list)
        """Who leaves, of each kind that returns."""
        self._rooms: list[int] = []
        self._places: defaultdict[tuple[_Pool, int], list[int]] = defaultdict(list)
        """For pods that want so many whole GPUs of a pool."""
        found = sites(occupancy, wish.gpus)
        nodes = {site.room.node for site in found.by_price if site.price < known}
        if found.complete_below < known:
            nodes = set(occupancy.fleet.names()) - occupancy.closed
        self.has_rooms = len(nodes) >= wish.nodes
        if self.has_rooms:
            self._fill(nodes)

    @property
    def matrix(self) -> tuple[list[float], tuple[list[int], list[int]]]:
        """As sparse matrices are made."""
        rows, columns, values = zip(*self._entries, strict=True)
        return list(values), (list(rows), list(columns))

    def _fill(self, nodes: set[str]) -> None:
        """``nodes``: where room may be made."""
        fleet = self._occupancy.fleet
        evictable = {
            uid: pod for uid in fleet.ledger.uids() if (pod := evictable_pod(self._occupancy, uid)) is not None
        }
        kinds = {uid: self._kind(pod.request) for uid, pod in evictable.items()}
        whole: defaultdict[_Pool, set[int]] = defaultdict(set)
        for need in {need for kind in kinds.values() for need in kind.needs if need.whole}:
            whole[need.pool].add(need.whole)
        free: Counter[_Pool] = Counter()
        for node in fleet:
            pools = {state.device.uuid: _pool(state) for state in node.devices if not state.closed}
            for state in node.devices:
                if not state.closed:
                    free[_pool(state)] += state.device.memory_mib - state.usage.memory_mib
            leaving: dict[str, int] = {}
            for uid in (grant.pod_uid for grant in fleet.ledger.grants(node.name) if grant.pod_uid in evictable):
                several = len(fleet.ledger.held(uid)) > 1  # else a part of it would leave a part of them
                leaving[uid] = self._add_variable(
                    WAITING_POD_PRICE if evictable[uid].returns else LOST_POD_PRICE, 1, is_integer=several
                )
                if evictable[uid].returns:
                    self._flows[kinds[uid]].append(leaving[uid])
                for pool, mib in self._held(uid, pools).items():
                    self._capacity[pool].append((leaving[uid], -float(mib)))
            self._empty(node, leaving, whole, node.name in nodes)
        self._add_limit([(room, -1.0) for room in self._rooms], -self._wish.nodes)
        self._assign_places()
        for pool, terms in self._capacity.items():
            self._add_limit(terms, free[pool])

    def _empty(
        self, node: NodeState, leaving: Mapping[str, int], whole: Mapping[_Pool, set[int]], can_hold_room: bool
    ) -> None:
        """What a node's idle GPUs, and those that become so, are for: room, or pods that want whole ones."""
        ledger, held = self._occupancy.fleet.ledger, holders(self._occupancy, node.name)
        idle, emptied = 0, []
        here: Counter[_Pool] = Counter()
        room_pools: list[tuple[_Pool, int | None]] = []
        for state in node.devices:
            uuid = state.device.uuid
            uids = {uid for uid in held.get(uuid, ()) if ledger.held(uid)[uuid].memory_mib}
            if state.closed or not uids <= leaving.keys():
                continue
            gpu = self._add_idle_gpu(leaving[uid] for uid in uids) if uids else None
            here[_pool(state)] += 1
            if gpu is None:
                idle += 1
            else:
                emptied.append(gpu)
            if usable(state):
                room_pools.append((_pool(state), gpu))
        takers = (
            [(self._wish.gpus, self._add_room(room_pools))]
            if can_hold_room and len(room_pools) >= self._wish.gpus
            else []
        )
        for pool, number in here.items():
            for count in sorted(count for count in whole.get(pool, ()) if count <= number):
                place = self._add_variable(0, number // count)
                self._places[pool, count].append(place)
                takers.append((count, place))
        self._distribute_gpus(takers, idle, emptied)

    def _add_idle_gpu(self, leaving: Iterable[int]) -> int:
        """Whether a GPU becomes idle: all who hold it leave."""
        gpu = self._add_variable(0, 1)
        for each in leaving:
            self._add_limit([(gpu, 1.0), (each, -1.0)], 0)
        return gpu

    def _distribute_gpus(self, takers: Sequence[tuple[int, int]], idle: int, emptied: Sequence[int]) -> None:
        """``takers``: how many GPUs each takes, and how many there are of it.

        As GPUs come whole, more than what is idle gives needs what is lacking for the next one, for each size and all
        that are larger (a mixed-integer rounding of the first rule): without that a third of a room would be free where
        a third of its GPUs is idle.
        """
        gained = [(gpu, -1.0) for gpu in emptied]
        self._add_limit([*((taker, float(count)) for count, taker in takers), *gained], idle)
        for least in sorted({count for count, _ in takers}):
            lacking = float(least - idle % least)
            larger = [(taker, lacking) for count, taker in takers if count >= least]
            self._add_limit([*larger, *gained], lacking * (idle // least))

    def _add_room(self, gpus: Sequence[tuple[_Pool, int | None]]) -> int:
        """Whether room is made on a node with these GPUs, None: idle ones."""
        room = self._add_variable(0, 1, is_integer=True)
        self._rooms.append(room)
        emptied = [gpu for _, gpu in gpus if gpu is not None]
        idle = len(gpus) - len(emptied)
        self._add_limit([(room, float(self._wish.gpus)), *((gpu, -1.0) for gpu in emptied)], idle)
        pool = gpus[0][0]
        if all(each == pool for each, _ in gpus):
            self._capacity[pool].append((room, float(self._wish.gpus * pool.memory_mib)))
        return room

    def _assign_places(self) -> None:
        """Who leaves and returns lands at most once, or waits."""
        landed: defaultdict[tuple[_Pool, int], list[int]] = defaultdict(list)
        for kind, sources in self._flows.items():
            landing = []
            for need in kind.needs:
                landing.append(self._add_variable(MOVED_POD_PRICE - WAITING_POD_PRICE, np.inf))
                self._capacity[need.pool].append((landing[-1], float(need.mib)))
                if need.whole:
                    landed[need.pool, need.whole].append(landing[-1])
            self._add_limit([*((each, 1.0) for each in landing), *((each, -1.0) for each in sources)], 0)
        for key, each in landed.items():
            self._add_limit([*((one, 1.0) for one in each), *((place, -1.0) for place in self._places[key])], 0)

    def _kind(self, request: PodRequest) -> _Kind:
        """By the one container that needs the most: where the others land counts for nothing."""
        each = [
            [need for pool in self._pools if (need := _need(container, request, pool)) is not None]
            for container in request.containers
        ]
        return _Kind(tuple(max(each, key=lambda found: sum(need.mib for need in found), default=())))

    def _held(self, uid: str, pools: dict[str, _Pool]) -> Counter[_Pool]:
        found: Counter[_Pool] = Counter()
        for uuid, usage in self._occupancy.fleet.ledger.held(uid).items():
            if uuid in pools:
                found[pools[uuid]] += usage.memory_mib
        return found

    def _add_variable(self, price: float, most: float, *, is_integer: bool = False) -> int:
        self.prices.append(price)
        self.most.append(most)
        self.integral.append(int(is_integer))
        return len(self.prices) - 1

    def _add_limit(self, terms: Iterable[tuple[int, float]], limit: float) -> None:
        self._entries += [(len(self.limits), place, value) for place, value in terms if value]
        self.limits.append(limit)


def _pool(state: DeviceState) -> _Pool:
    device = state.device
    return _Pool(device.model, device.memory_mib, device.replicas, bool(device.mig_kind))


def _need(container: ContainerRequest, request: PodRequest, pool: _Pool) -> _Need | None:
    """On a pool's GPUs; None where they cannot take it."""
    asked, memory = container.devices, pool.memory_mib
    if not container_shape(asked, request).takes_model(pool.model):
        return None
    if pool.is_partitioned:
        return _Need(pool, 0, 0)
    if pool.replicas > 1:
        return _Need(pool, asked.count * (memory // pool.replicas), 0)
    one = asked.memory_mib if asked.memory_mib is not None else memory * (asked.memory_percent or 0) // 100
    return _Need(pool, asked.count * one, asked.count if one == memory else 0) if one <= memory else None
