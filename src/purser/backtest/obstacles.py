"""What decides where a listed pod can be, or whether at all, and no replay knows: counted, so that it is said."""

from collections import Counter
from collections.abc import Iterable

from purser.backtest.history import Omissions
from purser.backtest.objects import TimestampedPod
from purser.core.decoding import brief
from purser.kube.objects import DEFAULT_SCHEDULER, Pod
from purser.kube.resources import key_of

GATED_PODS = "pods with scheduling gates, left out because there is no record of when the gates are removed"
SELECTIVE_PODS = "pods with a node selector, affinity or topology spread, replayed as if they could run on any node"
CLAIMING_PODS = "pods that wait for a PersistentVolumeClaim, replayed as if they waited only for GPUs"
OF_OTHERS = "pods that use a different scheduler from most pods, replayed as if there were only one scheduler"

_CLAIM = "persistentvolumeclaim"
"""In what kube-scheduler says of claims that are missing, unbound or being deleted (its plugin VolumeBinding)."""


def is_gated(pod: Pod) -> bool:
    """Whether kube-scheduler does not look at a pod yet, so that no policy could have placed it."""
    return bool(pod.spec.scheduling_gates) and not pod.spec.node_name


def count_obstacles(pods: Iterable[TimestampedPod], omissions: Omissions) -> None:
    """Count the pods of which a replay does not know something. ``pods``: those that are replayed."""
    listed = list(pods)
    schedulers = Counter(map(_scheduler, listed))
    usual = max(schedulers, key=lambda name: schedulers[name], default="")
    for pod in listed:
        spec, name = pod.spec, key_of(pod)
        if spec.node_selector or spec.affinity or spec.topology_spread_constraints:
            omissions.add(SELECTIVE_PODS, name)
        if (message := _claim_message(pod)) and not spec.node_name:
            omissions.add(CLAIMING_PODS, f"{name}: {message}")
        if (scheduler := _scheduler(pod)) != usual:
            omissions.add(OF_OTHERS, f"{name}: {brief(scheduler)}, not {brief(usual)}")


def _scheduler(pod: Pod) -> str:
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


def _claim_message(pod: TimestampedPod) -> str:
    """What kube-scheduler said of the pod's claims; empty where it said nothing of them."""
    messages = (each.message for each in pod.status.conditions if (each.type, each.status) == ("PodScheduled", "False"))
    return next((brief(message) for message in messages if _CLAIM in message.lower()), "")
