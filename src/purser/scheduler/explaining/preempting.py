"""Whether pods of lower priority are in a pod's way: kube-scheduler may evict these for it (preemption)."""

from collections import defaultdict

from purser.core.wording import counted, natural_sort_key, some
from purser.kube.objects import Pod
from purser.scheduler.explaining.judging import Judgement
from purser.scheduler.explaining.known import KnownCluster

MAX_NODES = 256
"""Nodes that are tried one by one: those with the fewest such pods."""


def note_on_preemption(cluster: KnownCluster, pod: Pod, refused: Judgement) -> str:
    """What preemption may do for a pod that fits nowhere, in a sentence; empty: no pod on a node has a lower priority.
    Which pods kube-scheduler would evict, and whether disruption budgets keep it from that, is not decided here."""
    priority = pod.spec.priority
    lower = _pods_of_lower_priority(cluster, priority)
    if not lower:
        return ""
    found = _fits_without_them(cluster, pod, refused, lower)
    if found:
        return (
            f"kube-scheduler may evict pods of a lower priority than {priority} for the pod (preemption): without "
            f"them, the pod fits on {counted(len(found), 'node')} ({some(found)})"
        )
    with cluster.without([each for pods in lower.values() for each in pods]):
        is_in_vain = not cluster.judge(pod).fits
    lead = f"the pod's priority ({priority}) is higher than that of some running pods"
    if is_in_vain:
        return f"{lead}, but without them the pod would not fit on any node either: preemption does not help"
    return f"{lead}: kube-scheduler may evict them for the pod (preemption)"


def _pods_of_lower_priority(cluster: KnownCluster, priority: int) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = defaultdict(list)
    for uid in cluster.placed.uids:
        other = cluster.placed.pod(uid)
        if other is not None and other.spec.priority < priority:
            found[other.spec.node_name].append(other)
    return found


def _fits_without_them(
    cluster: KnownCluster, pod: Pod, refused: Judgement, lower: dict[str, list[Pod]]
) -> tuple[str, ...]:
    """By the quick rule, node by node."""
    known = sorted(lower.keys() & cluster.nodes.keys(), key=lambda name: (len(lower[name]), natural_sort_key(name)))
    gone = {name: {each.metadata.uid for each in lower[name]} for name in known[:MAX_NODES]}
    fits = (name for name in gone if cluster.fits_without(pod, refused.request, name, gone[name]))
    return tuple(sorted(fits, key=natural_sort_key))
