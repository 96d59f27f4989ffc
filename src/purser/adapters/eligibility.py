"""Which pods this scheduler places at all, and their eligible nodes, for any client.

kube-scheduler has filtered by these when it asks; a request in its name need not come from it.
"""

from purser.core.dialects import is_device_word
from purser.core.kubernetes.taints import CORDON, untolerated_taints
from purser.core.pod.manifest import PodManifest
from purser.kube.objects import Node, Pod

_PREFERRED_FIELD = "preferredDuringSchedulingIgnoredDuringExecution"


def names_devices(pod: PodManifest) -> bool:
    """Whether a container has one of the resources that are Purser's, be it 0 of it: kube-scheduler asks then."""
    return any(
        is_device_word(resource, pod.families)
        for container in pod.containers
        for resource in (*container.limits, *container.requests)
    )


def other_scheduler(pod: Pod, scheduler_name: str) -> str:
    """That a pod is another scheduler's, in a sentence; empty where it is not."""
    named = pod.spec.scheduler_name
    return "" if named == scheduler_name else f'the pod is for scheduler "{named[:63]}", not for "{scheduler_name}"'


def prefers_nodes(pod: Pod) -> bool:
    """Whether the pod prefers some of its eligible nodes, which only kube-scheduler's scores show."""
    affinity, spread_constraints = pod.spec.affinity, pod.spec.topology_spread_constraints
    kinds = affinity.values() if isinstance(affinity, dict) else ()
    return any(isinstance(each, dict) and each.get(_PREFERRED_FIELD) for each in kinds) or any(
        isinstance(each, dict) and each.get("whenUnsatisfiable") == "ScheduleAnyway"
        for each in (spread_constraints if isinstance(spread_constraints, list) else ())
    )


def has_only_simple_constraints(pod: Pod) -> bool:
    """Whether a pod waits for nothing but its turn, and says of its nodes no more than a selector does."""
    spec = pod.spec
    return not (spec.scheduling_gates or spec.affinity or spec.topology_spread_constraints)


def why_not_schedulable(pod: Pod, node: Node) -> str:
    """Why a pod may not go to a node, in words that follow the node's name; empty where it may."""
    taints = (*([CORDON] if node.spec.unschedulable else ()), *node.spec.taints)
    for taint in untolerated_taints(taints, pod.spec.tolerations):
        return "is cordoned" if taint is CORDON else f"has taint {taint}, which the pod does not tolerate"
    labels = node.metadata.labels
    missing_labels = [f"{key}={value}" for key, value in pod.spec.node_selector.items() if labels.get(key) != value]
    return f"lacks {', '.join(missing_labels)}, which the pod's node selector requires" if missing_labels else ""
