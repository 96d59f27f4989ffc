"""The smallest changes by which a pod that waits would fit now.

Each kind of change is searched by itself, and each that is offered was judged on the changed cluster or pod, by the
same decision that refused the pod. What smallest means stands at each function.
"""

from collections.abc import Iterator

from purser.kube.objects import Pod
from purser.scheduler.explaining.amounts import smaller_amounts
from purser.scheduler.explaining.changes import Suggestion
from purser.scheduler.explaining.judging import Judgement
from purser.scheduler.explaining.known import KnownCluster
from purser.scheduler.explaining.leaving import ended_pods
from purser.scheduler.explaining.node_changes import (
    running_agents,
    unaligned_kubelets,
    uncordoned_gpus,
    uncordoned_nodes,
)
from purser.scheduler.explaining.pod_changes import affinities, node_selectors, removable_annotations, tolerations
from purser.scheduler.explaining.quota_changes import raised_quotas, smallest_demand
from purser.scheduler.explaining.trial import PodTrial, Trial


def device_request_changes(trial: PodTrial) -> Iterator[Suggestion | None]:
    """What of the pod's devices its author could ask for instead; None after a verdict by which nothing is found yet:
    what else there is to do can be done meanwhile."""
    yield from smaller_amounts(trial)
    yield from removable_annotations(trial)


def suggestions(cluster: KnownCluster, pod: Pod, refused: Judgement) -> Iterator[Suggestion]:
    """Changes of the pod first, then of its namespace, of nodes, of other pods."""
    trial = Trial(cluster, pod, refused)
    demand = smallest_demand(trial)
    yield from filter(None, device_request_changes(trial))
    yield from node_selectors(trial)
    yield from affinities(trial)
    yield from tolerations(trial)
    yield from raised_quotas(trial, demand)
    yield from uncordoned_gpus(trial)
    yield from uncordoned_nodes(trial)
    yield from running_agents(trial)
    yield from unaligned_kubelets(trial)
    yield from ended_pods(trial, demand)
