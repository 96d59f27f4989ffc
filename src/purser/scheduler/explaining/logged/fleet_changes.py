"""What could have been otherwise of the namespace, of a node or of other pods."""

from collections.abc import Iterator, Mapping
from functools import partial

from msgspec.structs import replace

from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, grant_demand
from purser.core.ledger import pod_usage
from purser.core.model import Grant, NodeInventory
from purser.core.placement import Reason
from purser.core.wording import natural_sort_key, some
from purser.scheduler.explaining.changes import ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.logged.moment import LoggedMoment
from purser.scheduler.explaining.logged.offering import suggest_if_fits
from purser.scheduler.explaining.logged.request_changes import GPU_CORES, GPU_MEMORY
from purser.scheduler.explaining.searching import can_suffice, fewest_holders, lacking, pods_to_remove

MAX_SEARCHED = 32
"""Nodes that are searched for more than one pod: those with the fewest."""

MAX_HOLDERS = 64
"""Pods elsewhere, of the same quota, that may end beside those of a node: those that use most of it."""

_MAX_DEMANDS = 64
"""Nodes of which it is computed what the pod would use of its quota there."""

_MAX_CORDONED = 16
"""Nodes of which it is found how few of their GPUs have to be uncordoned, where one is not enough."""


def smallest_quota_use(moment: LoggedMoment) -> Demand | None:
    """What the pod uses of its quota where it uses least; None where no quota is in the way, or more than it."""
    if Reason.QUOTA_NOT_FIT not in moment.reasons:
        return None
    with moment.with_quota_left(UNLIMITED):
        fits = moment.evaluate().fits[:_MAX_DEMANDS]
        demands = {found for name in fits if (found := moment.demand_on(name)) is not None}
    return min(demands, key=lambda each: (each.memory_mib, each.cores_percent), default=None)


def raise_quotas(moment: LoggedMoment, demand: Demand | None) -> Iterator[Suggestion]:
    """What the namespace's quotas have to leave, each amount as far as it is in the way."""
    if demand is None:
        return
    left = moment.asked.left
    memory, cores = (
        _raised_quota(left.memory_mib, demand.memory_mib),
        _raised_quota(left.cores_percent, demand.cores_percent),
    )
    asked = {GPU_MEMORY: (memory, left.memory_mib), GPU_CORES: (cores, left.cores_percent)}
    units = {GPU_MEMORY: " MiB of GPU memory", GPU_CORES: "% of compute"}
    raised = {what: (need, there) for what, (need, there) in asked.items() if need != there and need is not None}
    words = [f"{need}{units[what]} instead of {there}" for what, (need, there) in raised.items()]
    with moment.with_quota_left(QuotaLimits(memory, cores)):
        text = f"the namespace's quotas leave {' and '.join(words)}"
        change = SuggestedChange(quota_left={what: need for what, (need, _) in raised.items()})
        yield from suggest_if_fits(moment, ChangeKind.QUOTA, text, change)


def _raised_quota(left: int | None, asked: int) -> int | None:
    """What is not asked for exceeds no limit."""
    return left if left is None or not asked else max(left, asked)


def uncordon_fewest(moment: LoggedMoment) -> Iterator[Suggestion]:
    """One GPU, where one suffices anywhere; else as few of one node as do. Of equal ones those of the first node."""
    # For whatever reason a node is refused: where its kubelet would reject the pod, a cordoned GPU can be in the way.
    states = (moment.state(name) for name in sorted(moment.found.refusals, key=natural_sort_key))
    inventories = {each.name: each.inventory for each in states if each is not None and each.inventory.cordoned}
    found = _first_gpu(moment, inventories) or _fewest_gpus(moment, inventories)
    if found is None:
        return
    name, uuids = found
    verb = "is" if len(uuids) == 1 else "are"
    text = f"{'GPU' if len(uuids) == 1 else 'GPUs'} {', '.join(uuids)} on node {name} {verb} uncordoned"
    with moment.with_inventories([_uncordon(inventories[name], uuids)]):
        change = SuggestedChange(node=name, gpus=uuids)
        yield from suggest_if_fits(moment, ChangeKind.UNCORDON_GPU, text, change)


def _first_gpu(moment: LoggedMoment, inventories: Mapping[str, NodeInventory]) -> tuple[str, tuple[str, ...]] | None:
    """The first GPU of each node is tried at once, then the second."""
    for place in range(max((len(each.cordoned) for each in inventories.values()), default=0)):
        tried = {name: each.cordoned[place : place + 1] for name, each in inventories.items()}
        with moment.with_inventories(_uncordon(inventories[name], uuids) for name, uuids in tried.items()):
            fits = moment.evaluate(names=list(inventories)).fits
        if fits:
            name = min(fits, key=natural_sort_key)
            return name, tried[name]
    return None


def _fewest_gpus(moment: LoggedMoment, inventories: Mapping[str, NodeInventory]) -> tuple[str, tuple[str, ...]] | None:
    """The fewest of a node of which none can stay cordoned."""
    with moment.with_inventories(_uncordon(each, each.cordoned) for each in inventories.values()):
        fits = sorted(moment.evaluate(names=list(inventories)).fits, key=natural_sort_key)[:_MAX_CORDONED]
    found = []
    for name in fits:
        inventory, gone = inventories[name], list(inventories[name].cordoned)
        for uuid in reversed(inventory.cordoned):
            fewer = [each for each in gone if each != uuid]
            with moment.with_inventories([_uncordon(inventory, fewer)]):
                if fewer and moment.evaluate(names=[name]).fits:
                    gone = fewer
        found.append((name, tuple(gone)))
    return min(found, key=lambda each: len(each[1]), default=None)


def _uncordon(inventory: NodeInventory, uuids: "tuple[str, ...] | list[str]") -> NodeInventory:
    return replace(inventory, cordoned=tuple(each for each in inventory.cordoned if each not in uuids))


def unaligned(moment: LoggedMoment) -> Iterator[Suggestion]:
    """One node's kubelet, that of the first by name."""
    names = sorted(moment.refused_for(Reason.KUBELET_WOULD_REJECT), key=natural_sort_key)
    if not names:
        return
    with moment.with_unaligned_kubelets(names):
        fits = moment.evaluate(names=names).fits
    if fits:
        name = min(fits, key=natural_sort_key)
        with moment.with_unaligned_kubelets([name]):
            text = f"the kubelet on node {name} has topologyManagerPolicy: none"
            yield from suggest_if_fits(moment, ChangeKind.KUBELET, text, SuggestedChange(node=name))


def ended(moment: LoggedMoment, demand: Demand | None) -> Iterator[Suggestion]:
    """Pods that end: one, where one suffices anywhere; else the fewest of one node, and of the namespace where its
    quota is in the way, of whom none can stay. ``demand``: what a quota has to leave."""
    held = _holders(moment)
    sizes = [(grant, grant_demand(grant)) for grant in held]
    quota = None if demand is None else fewest_holders(sizes, moment.asked.left, demand)
    sets = [each for each in (_pods_to_end(moment, held), quota) if each]
    found = min(sets, key=len, default=None)
    if found is None:
        return
    keys = tuple(each.key for each in found)
    with moment.without([each.pod_uid for each in found]):
        text = f"pod {keys[0]} is deleted" if len(keys) == 1 else f"pods {some(keys)} are deleted"
        yield from suggest_if_fits(moment, ChangeKind.END, text, SuggestedChange(pods=keys))


def _holders(moment: LoggedMoment) -> list[Grant]:
    """Who uses of the quota that the pod needs, those first who use most."""

    def size(grant: Grant) -> tuple[int, int, str]:
        used = grant_demand(grant)
        return (-used.memory_mib, -used.cores_percent, grant.key)

    return sorted(filter(moment.is_of_quota, moment.fleet.ledger.grants()), key=size)


def _pods_to_end(moment: LoggedMoment, holders: list[Grant]) -> list[Grant] | None:
    """Pods by whose end a node has room."""
    refused = [name for name, each in moment.found.refusals.items() if each.resolvable or holders]
    grants = {name: _grants_on(moment, name) for name in sorted(refused, key=natural_sort_key)}
    for name, there in grants.items():
        for each in _candidates_alone(moment, name, there):
            if moment.fits_without(name, {each.pod_uid}):
                return [each]
    more = {each.pod_uid: each for each in holders[:MAX_HOLDERS]}
    sets: list[list[Grant]] = []
    for name in sorted(grants, key=lambda each: (len(grants[each]), natural_sort_key(each))):
        pods = {each.pod_uid: each for each in sorted([*grants[name], *more.values()], key=_mib)}
        if len(sets) == MAX_SEARCHED:
            break
        uids = pods_to_remove(pods, partial(moment.fits_without, name)) if len(pods) > 1 else None
        if uids is not None:
            sets.append([pods[uid] for uid in uids])
    return min(sets, key=len, default=None)


def _grants_on(moment: LoggedMoment, name: str) -> list[Grant]:
    found = (each for each in moment.fleet.ledger.grants(name) if each.pod_uid != moment.request.uid)
    return sorted(found, key=lambda each: each.key)


def _candidates_alone(moment: LoggedMoment, name: str, grants: list[Grant]) -> Iterator[Grant]:
    """Those whose end alone may suffice."""
    state, containers = moment.state(name), moment.request.containers
    only = containers[0].devices if len(containers) == 1 else None
    lacks = None if only is None or state is None else lacking(state, only)
    for each in grants:
        if only is None or lacks is None or can_suffice(each, only, lacks):
            yield each


def _mib(grant: Grant) -> tuple[int, str]:
    """Those that hold least are spared first."""
    return sum(usage.memory_mib for usage in pod_usage(grant).values()), grant.key
