"""What a pod's scheduler said last of it."""

from purser.core.decoding import brief
from purser.kube.objects import Pod
from purser.kube.pod_details import ScheduledPod

MAX_SCHEDULER_MESSAGE = 1000
"""Characters: kube-scheduler counts nodes by reason, and names none."""


def last_message(pod: Pod) -> str:
    """Why it is not scheduled, by the pod's condition PodScheduled; empty where nobody has said."""
    conditions = pod.status.conditions if isinstance(pod, ScheduledPod) else ()
    found = (each for each in conditions if (each.type, each.status) == ("PodScheduled", "False"))
    return next((brief(each.message, MAX_SCHEDULER_MESSAGE) for each in found), "")
