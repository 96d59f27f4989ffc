"""Searches over plain values, that the changes of a cluster and those of a decision log share: the largest amount, the
fewest holders, a set of which nobody can stay."""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from typing import TypeVar

from purser.core.fleet import NodeState, rule
from purser.core.grant.quota import Demand, QuotaLimits, remaining_quota
from purser.core.ledger import NO_USAGE, pod_usage
from purser.core.model import DeviceRequest, Grant

HolderT = TypeVar("HolderT")
T = TypeVar("T")

MAX_TRIED = 64
"""Numbers that are tried one by one."""

LackingAmounts = tuple[int, dict[str, tuple[int, int]]]
"""How many GPUs have the amounts, and of each other one how much memory and compute it lacks."""


Steps = Generator[None, None, T]
"""Pauses after each verdict, for who has something else to do meanwhile, and returns what was found."""


def at_once(steps: Steps[T]) -> T:
    """What is found without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


def largest_that_fits(values: Sequence[int], fits: Callable[[int], bool], *, is_tried: bool) -> Steps[int | None]:
    """Of ascending values; None: none of them. Not ``is_tried``: where one fits, all before it do."""
    if is_tried:
        for value in reversed(values):
            does_fit = fits(value)
            yield
            if does_fit:
                return value
        return None
    low, high = -1, len(values)
    middle = 0  # the smallest first: most often it does not fit either
    while high - low > 1:
        low, high = (middle, high) if fits(values[middle]) else (low, middle)
        yield
        middle = (low + high) // 2
    return values[low] if low >= 0 else None


def fewer_cpus(amount_milli: int) -> list[int]:
    """Where a kubelet aligns CPUs, less is not always easier: the static policy gives whole CPUs to a container, and
    shares the rest. Whole numbers are taken first, and what is shared only where none of them fits. Ascending in that
    sense, in thousandths."""
    whole = range(1000, amount_milli, 1000)[-MAX_TRIED:]
    shared = [each - 1 for each in (*whole, amount_milli)]
    return [*shared, *whole]


def fewest_holders(held: Sequence[tuple[HolderT, Demand]], left: QuotaLimits, demand: Demand) -> list[HolderT] | None:
    """Those who use of a quota, by whose end it leaves room for so much: one where one suffices, else some of whom none
    can stay. ``held``: those who use most first. None: the end of all is not enough."""
    for who, freed in held:
        if remaining_quota(left, Demand() - freed).holds(demand):
            return [who]
    gone: list[tuple[HolderT, Demand]] = []
    total = Demand()
    for each in held:
        gone.append(each)
        total += each[1]
        if remaining_quota(left, Demand() - total).holds(demand):
            break
    else:
        return None
    for each in tuple(reversed(gone)):
        if remaining_quota(left, Demand() - (total - each[1])).holds(demand):
            gone.remove(each)
            total -= each[1]
    return [who for who, _ in gone]


def pods_to_remove(uids: Iterable[str], fits_without: Callable[[Collection[str]], bool]) -> list[str] | None:
    """Pods without which a pod fits, those spared first that come first; None: it does not fit without any of them."""
    gone = dict.fromkeys(uids)
    if not fits_without(gone.keys()):
        return None
    for uid in tuple(gone):
        if fits_without(gone.keys() - {uid}):
            del gone[uid]
    return list(gone)


def lacking(node: NodeState, asked: DeviceRequest) -> LackingAmounts | None:
    """None where amounts say too little, of GPUs in parts or instances."""
    if any(each.device.replicas > 1 or each.device.mig_kind for each in node.devices):
        return None
    enough, lacks = 0, {}
    for each in node.devices:
        device, usage = each.device, each.usage
        needed = rule.memory_asked(device.memory_mib, asked.memory_mib or 0, asked.memory_percent or 0)
        memory = needed - (device.memory_mib - usage.memory_mib)
        cores = asked.cores_percent - (device.cores_percent - usage.cores_percent)
        lacks[device.uuid] = (memory, cores)
        enough += memory <= 0 and cores <= 0
    return enough, lacks


def can_suffice(grant: Grant, asked: DeviceRequest, lacks: LackingAmounts) -> bool:
    """Whether what a pod holds alone may be enough: a quick look, which passes over nobody whose end suffices."""
    held = pod_usage(grant)
    enough, by_uuid = lacks
    freed = 0
    for uuid, (memory, cores) in by_uuid.items():
        usage = held.get(uuid, NO_USAGE)
        if (memory > 0 or cores > 0) and usage.memory_mib >= memory and usage.cores_percent >= cores:
            freed += 1
    return enough + freed >= asked.count
