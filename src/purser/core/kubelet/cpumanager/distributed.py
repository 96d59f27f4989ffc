"""Picks equal shares from several NUMA nodes: the option distribute-cpus-across-numa (KEP-2902, since 1.23).

The smallest number of NUMA nodes that can hold an even split wins; among the combinations of that size the one that
leaves the free CPUs of all nodes most alike (smallest standard deviation, three decimals); the first of equals. What an
even split leaves over goes to a subset of the chosen nodes by the same rule. When there is no split: packed.

Since 1.37 an even split is no more than the node with the fewest free CPUs has, and with align-by-socket,
nodes of one socket win over any others.

kubelet keeps the best combination as a slice whose array it goes on to write to (upstream PR 141238): when combinations
of at least four nodes are tried, the last node of the kept one may be replaced by that of a later one. `_combinations`
does the same.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from math import floor, inf, sqrt
from typing import NamedTuple

from purser.core.kubelet.cpumanager.packed import sorted_numa_nodes, take_packed
from purser.core.kubelet.cpumanager.taking import NotTakenError, Tally, shortage_error
from purser.core.kubelet.cpumanager.topology import CpuTopology
from purser.core.kubelet.cpuset import CpuSet

Take = Callable[[CpuSet, int], CpuSet]
"""The packed algorithm: some of these CPUs, as many as that. Raises `NotTakenError`."""

Balance = Callable[[int], float]
"""How unlike the NUMA nodes are, from the sum of the squares of their free CPUs: that of the free CPUs themselves is
the same for every choice."""


class _Choice(NamedTuple):
    balance: float = inf
    nodes: Sequence[int] = ()
    """Positions in the list of nodes; only the first ``width`` count, and they may change, see the module."""
    extra: Sequence[int] = ()
    """The same for what an even split leaves over."""
    extra_width: int = 0
    in_one_socket: bool = False
    """Only looked at with align-by-socket."""


class _Request(NamedTuple):
    cpus: int
    group: int
    """CPUs are handed out in groups of this size."""

    def share(self, width: int) -> int:
        """CPUs of each of ``width`` nodes in an even split."""
        return self.cpus // width // self.group * self.group

    def possible_share(self, free: Collection[int]) -> int:
        """The same for nodes with so many free CPUs each, as far as every one of them can give it."""
        return min(self.share(len(free)), *(cpus // self.group * self.group for cpus in free))


class _Nodes(NamedTuple):
    """The NUMA nodes with free CPUs, by position."""

    free: Sequence[int]
    """CPUs."""
    sockets: Sequence[frozenset[int]] | None
    """Of each node; None: without align-by-socket."""

    def in_one_socket(self, nodes: Sequence[int]) -> bool:
        """Whether these nodes are; False without align-by-socket."""
        return self.sockets is not None and len(frozenset().union(*(self.sockets[node] for node in nodes))) <= 1


def take_distributed(
    topology: CpuTopology,
    available: CpuSet,
    count: int,
    group: int,
    *,
    is_spread: bool = False,
    by_socket: bool = False,
    limits_shares: bool,
    counted_errors: bool,
) -> CpuSet:
    """``count`` of the available CPUs in groups of ``group`` (takeByTopologyNUMADistributed); ``limits_shares``:
    `Behaviour.limits_numa_shares`; ``by_socket``: align-by-socket, where kubelet heeds it here.

    Raises `NotTakenError`."""

    def take(cpus: CpuSet, some: int) -> CpuSet:
        return take_packed(topology, cpus, some, is_spread=is_spread, counted_errors=counted_errors)

    tally = Tally(topology, available, count)
    if count % group:
        return take(available, count)
    if tally.is_satisfied():
        return 0
    if tally.is_failed():
        raise shortage_error(count, available, counted=counted_errors)
    nodes = sorted_numa_nodes(tally)
    free = [(node & tally.free).bit_count() for node in nodes]
    sockets = [_sockets_of(topology, node) for node in nodes] if by_socket else None
    request = _Request(count, group)
    for width in _widths(topology, request, len(nodes)):
        choice = _best_choice(_Nodes(free, sockets), request, width)
        if choice.balance < inf:
            chosen = [free[node] for node in choice.nodes[:width]]
            share = request.possible_share(chosen) if limits_shares else request.share(width)
            _take_choice(tally, nodes, request, width, share, choice, take)
            return tally.taken
    return take(available, count)


def _sockets_of(topology: CpuTopology, cpus: CpuSet) -> frozenset[int]:
    return frozenset(socket for socket, of_socket in topology.machine.cpus_by_socket.items() if of_socket & cpus)


def _widths(topology: CpuTopology, request: _Request, free_nodes: int) -> range:
    """How many NUMA nodes can be enough, from the machine's averages."""
    groups = _ceil(len(topology.machine.cpus), request.group)
    groups_per_node = _ceil(groups, len(topology.machine.cpus_by_numa))
    needed = _ceil(request.cpus, request.group)
    return range(_ceil(needed, groups_per_node), min(needed, free_nodes) + 1)


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _best_choice(nodes: _Nodes, request: _Request, width: int) -> _Choice:
    """The best combination of ``width`` nodes."""
    best, free = _Choice(), nodes.free
    balance = _balance_of(len(free), sum(free) - request.cpus)
    squares = sum(cpus * cpus for cpus in free)
    for combination in _combinations(range(len(free)), width):
        if best.balance == 0 and (nodes.sockets is None or best.in_one_socket):
            break
        of_nodes = [free[node] for node in combination[:width]]
        share = request.share(width) if nodes.sockets is None else request.possible_share(of_nodes)
        if _can_split(of_nodes, request, share):
            choice = _extend_choice(free, squares, request, combination, width, share, balance)
            choice = choice._replace(in_one_socket=nodes.in_one_socket(combination[:width]))
            best = min(best, choice, key=lambda choice: (not choice.in_one_socket, choice.balance))
    return best


def _can_split(free: Sequence[int], request: _Request, share: int) -> bool:
    whole_groups = sum(cpus // request.group for cpus in free)
    return whole_groups * request.group >= request.cpus and all(cpus >= share for cpus in free)


def _extend_choice(
    free: Sequence[int],
    squares: int,
    request: _Request,
    combination: Sequence[int],
    width: int,
    share: int,
    balance: Balance,
) -> _Choice:
    """The combination with the best subset of it for what the even split leaves over: wide subsets first."""
    left = {node: free[node] - share for node in combination[:width]}
    squares += sum(cpus * cpus - (cpus + share) ** 2 for cpus in left.values())
    extra = request.cpus - share * width
    if not extra:
        return _Choice(balance(squares), combination)
    takers = [node for node, cpus in left.items() if cpus >= request.group]
    best = _Choice()
    for subset_width in range(len(takers), 0, -1):
        for subset in _combinations(takers, subset_width):
            change = _change_by_extra(left, subset[:subset_width], extra, request.group)
            if change is not None and balance(squares + change) < best.balance:
                best = _Choice(balance(squares + change), combination, subset, subset_width)
    return best


def _change_by_extra(left: Mapping[int, int], nodes: Sequence[int], extra: int, group: int) -> int | None:
    """By how much the sum of squares changes when these nodes give ``extra`` CPUs, a group each in turn. None when they
    cannot: kubelet would try for ever where only parts of groups are left."""
    if sum(left[node] // group for node in nodes) * group < extra:
        return None
    rest = {node: left[node] for node in nodes}
    while extra:
        for node in nodes:
            if extra and rest[node] >= group:
                rest[node] -= group
                extra -= group
    return sum(rest[node] ** 2 - left[node] ** 2 for node in nodes)


def _take_choice(
    tally: Tally, nodes: Sequence[CpuSet], request: _Request, width: int, share: int, choice: _Choice, take: Take
) -> None:
    for node in choice.nodes[:width]:
        _try_to_take(tally, nodes[node], share, take)
    extra = request.cpus - share * width
    takers = [nodes[node] for node in choice.extra[: choice.extra_width]]
    while extra and any((node & tally.free).bit_count() >= request.group for node in takers):
        for node in takers:
            if extra and (node & tally.free).bit_count() >= request.group:
                _try_to_take(tally, node, request.group, take)
                extra -= request.group
    if tally.needed:
        raise NotTakenError(f"accounting error, not enough CPUs allocated, remaining: {tally.needed}")


def _try_to_take(tally: Tally, node: CpuSet, count: int, take: Take) -> None:
    """Take none where there are too few, as on a node that replaced the intended one: the final check fails then."""
    try:
        tally.take(take(node & tally.free, count))
    except NotTakenError:
        return


def _balance_of(nodes: int, free: int) -> Balance:
    """The standard deviation of the free CPUs of ``nodes`` nodes that have ``free`` in sum; mean and result rounded to
    three decimals."""
    mean = _round3(free / nodes)

    @cache
    def balance(squares: int) -> float:
        return _round3(sqrt(max(squares - 2 * mean * free + nodes * mean * mean, 0) / nodes))

    return balance


def _round3(number: float) -> float:
    """Halves go up."""
    return floor(number * 1000 + 0.5) / 1000


def _combinations(items: Sequence[int], width: int) -> Iterator[list[int]]:
    """All combinations of some items in lexicographic order, each as the first ``width`` places of a list that later
    ones may overwrite: Go's append writes into the array of the shorter slice where that has room, and arrays grow to
    1, 2, 4 and 8 places."""

    def extend(prefix: list[int], length: int, start: int) -> Iterator[list[int]]:
        if length == width:
            yield prefix
            return
        for place in range(start, len(items) - (width - length) + 1):
            extended = prefix if len(prefix) > length else prefix + [0] * max(length, 1)
            extended[length] = items[place]
            yield from extend(extended, length + 1, place + 1)

    yield from extend([], 0, 0)
