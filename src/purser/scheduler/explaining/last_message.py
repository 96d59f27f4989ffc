"""What a pod's scheduler said last of it, and by which change it would fit, as Purser's ends it."""

import re

from purser.core.decoding import brief
from purser.core.state import ADVICE
from purser.kube.objects import Pod
from purser.kube.pod_details import ScheduledPod

MAX_SCHEDULER_MESSAGE = 1000
"""Characters: kube-scheduler counts nodes by reason, and names none."""


MAX_ADVICE = 400
"""Characters of the change: names of containers, resources and annotations have bounds, and two fit."""

_REASON_END = re.compile(r", \d+ |\.?\s+preemption: |\.$")
"""What kube-scheduler puts behind a node's reason: the next one with its number of nodes, what came of preemption, or
the end of the sentence. No change has any of it."""


def last_message(pod: Pod) -> str:
    """Why it is not scheduled, by the pod's condition PodScheduled; empty where nobody has said."""
    return brief(_message(pod), MAX_SCHEDULER_MESSAGE)


def last_advice(pod: Pod) -> str:
    """By which change it would fit, by the same condition; empty where none is known."""
    _, found, rest = _message(pod).rpartition(ADVICE)
    # In one line, and not longer than this: the pattern would take long for many blanks.
    return brief(_REASON_END.split(brief(rest, 4 * MAX_ADVICE), maxsplit=1)[0], MAX_ADVICE) if found else ""


def _message(pod: Pod) -> str:
    conditions = pod.status.conditions if isinstance(pod, ScheduledPod) else ()
    found = (each for each in conditions if (each.type, each.status) == ("PodScheduled", "False"))
    return next((each.message for each in found), "")
