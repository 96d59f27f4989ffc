"""Which pods would have to end for a pod to fit: of one node, of the namespace whose quota is in the way, or of both.

One pod, where one suffices anywhere: one of the lowest priority. Else, of some nodes with the fewest pods, the smallest
set of which no pod can stay. Static pods and those of a DaemonSet are left alone: they come back.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from purser.core.explaining.filters import Amounts
from purser.core.explaining.reasons import FilterReason
from purser.core.grant.quota import UNLIMITED, Demand
from purser.core.ledger import pod_usage
from purser.core.model import PodRequest
from purser.core.wording import natural_sort_key
from purser.kube.objects import Pod
from purser.kube.pods import controller_of
from purser.kube.resources import key_of
from purser.scheduler.explaining.judging import Judgement
from purser.scheduler.explaining.known import KnownCluster
from purser.scheduler.explaining.searching import can_suffice, fewest_holders, lacking, pods_to_remove

MAX_NODES = 32
"""Nodes that are searched for more than one pod: those with the fewest."""

MAX_QUOTA_PODS = 64
"""Pods elsewhere, of the same quota, that may end beside those of a node: those that use most of it."""

_STAYING_KINDS = frozenset({"DaemonSet", "Node"})


PodsToEnd = tuple[Pod, ...]
"""Pods by whose end another one fits."""


def fewest_pods_for_quota(cluster: KnownCluster, refused: Judgement, demand: Demand) -> PodsToEnd | None:
    """The pods of the namespace that use most of its quota, as few as leave room in it for so much."""
    request = refused.request
    if request is None:
        return None
    found = fewest_holders(_largest_first(_holders(cluster, request)), cluster.quota_left(request), demand)
    return None if found is None else tuple(found)


def _largest_first(held: Iterable[tuple[Pod, Demand]]) -> list[tuple[Pod, Demand]]:
    return sorted(held, key=lambda each: (-each[1].memory_mib, -each[1].cores_percent, key_of(each[0])))


def _holders(cluster: KnownCluster, request: PodRequest) -> list[tuple[Pod, Demand]]:
    """The pods that use of the quota that a request needs and that may end, and how much."""
    found = ((cluster.placed.pod(uid), demand) for uid, demand in cluster.holders(request))
    return [(pod, demand) for pod, demand in found if pod is not None and _can_end(pod)]


def fewest_pods_to_end(cluster: KnownCluster, pod: Pod, refused: Judgement) -> PodsToEnd | None:
    """None where no node would take the pod even without all pods that may end. Judged by the quick rule."""
    nodes = {name: _pods_that_can_end(cluster, name) for name in _promising_nodes(cluster, refused)}
    alone = [
        (name, each)
        for name in sorted(nodes, key=natural_sort_key)
        for each in _candidates_alone(cluster, pod, refused, name, nodes[name])
    ]
    for name, each in sorted(alone, key=lambda place: place[1].spec.priority):
        if cluster.fits_without(pod, refused.request, name, {each.metadata.uid}):
            return (each,)
    of_quota = _quota_pods(cluster, refused)
    sets = (
        (name, list({each.metadata.uid: each for each in (*nodes[name], *of_quota)}.values()))
        for name in sorted(nodes, key=lambda n: (len(nodes[n]), natural_sort_key(n)))
    )
    return min(_minimal_sets(cluster, pod, refused, sets), key=_cost, default=None)


def _cost(pods: PodsToEnd) -> tuple[int, int]:
    """As few as possible; of equally few those of the least importance."""
    return len(pods), max(each.spec.priority for each in pods)


def _quota_pods(cluster: KnownCluster, refused: Judgement) -> list[Pod]:
    """The pods that use most of the namespace's quota, be they elsewhere."""
    request = refused.request
    if request is None or cluster.quota_left(request) == UNLIMITED:
        return []
    return [pod for pod, _ in _largest_first(_holders(cluster, request))[:MAX_QUOTA_PODS]]


def _minimal_sets(
    cluster: KnownCluster, pod: Pod, refused: Judgement, sets: Iterable[tuple[str, list[Pod]]]
) -> Iterator[PodsToEnd]:
    """Of each set for a node those of which none can stay."""
    looked = 0
    for name, pods in sets:
        if looked == MAX_NODES:
            return
        if len(pods) < 2:
            continue
        by_uid = {each.metadata.uid: each for each in _smallest_first(cluster, pods)}
        gone = pods_to_remove(by_uid, partial(cluster.fits_without, pod, refused.request, name))
        if gone is not None:
            looked += 1
            yield tuple(by_uid[uid] for uid in gone)


def _smallest_first(cluster: KnownCluster, pods: list[Pod]) -> list[Pod]:
    """Of the least importance last, and among equals those that hold least first: what is large makes room alone."""
    return sorted(pods, key=lambda each: (-each.spec.priority, _held_mib(cluster, each), key_of(each)))


def _held_mib(cluster: KnownCluster, pod: Pod) -> int:
    grant = cluster.grant(pod)
    return 0 if grant is None else sum(usage.memory_mib for usage in pod_usage(grant).values())


def _promising_nodes(cluster: KnownCluster, refused: Judgement) -> list[str]:
    """The nodes where what others hold is in the way."""
    crowded = [
        name
        for name, each in refused.rejections.items()
        if each.reason is FilterReason.PORTS
        or (
            each.reason in (FilterReason.RESOURCES, FilterReason.PODS)
            and each.asked <= cluster.nodes[name].allocatable.get(each.about, 0)
        )
    ]
    has_quota = bool(_quota_pods(cluster, refused))
    return [*crowded, *(name for name, each in refused.refusals.items() if each.resolvable or has_quota)]


def _pods_that_can_end(cluster: KnownCluster, node: str) -> list[Pod]:
    return [each for each in cluster.placed.pods_on(node) if _can_end(each)]


def _can_end(pod: Pod) -> bool:
    owner = controller_of(pod)
    return owner is None or owner.kind not in _STAYING_KINDS


def _candidates_alone(cluster: KnownCluster, pod: Pod, refused: Judgement, node: str, pods: list[Pod]) -> Iterator[Pod]:
    """Those whose end alone may suffice: a quick look at amounts, which passes over nobody who does."""
    rejected = refused.rejections.get(node)
    needs = cluster.needs(pod).amounts if rejected is not None else {}
    short = _short(needs, cluster.nodes[node].allocatable, cluster.placed.used(node))
    asked = None if refused.request is None else refused.request.containers
    only = asked[0].devices if rejected is None and asked is not None and len(asked) == 1 else None
    state = cluster.fleet.node(node)
    lacks = None if only is None or state is None else lacking(state, only)
    for each in pods:
        taken = cluster.placed.taken_by(each)
        if any(taken.get(resource, 0) < amount for resource, amount in short.items()):
            continue
        grant = cluster.grant(each)
        # what a pod without a grant takes of kubelet's is not known here
        if only is None or lacks is None or grant is None or can_suffice(grant, only, lacks):
            yield each


def _short(asked: Amounts, allocatable: Amounts, used: Amounts) -> dict[str, int]:
    """How much has to be freed of each resource."""
    lacks = {name: amount - allocatable.get(name, 0) + used.get(name, 0) for name, amount in asked.items() if amount}
    return {name: amount for name, amount in lacks.items() if amount > 0}
