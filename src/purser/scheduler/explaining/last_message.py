"""What a pod's scheduler said last of it, and by which change it would fit, as Purser's ends it."""

import re

from purser.core.decoding import brief
from purser.core.state import ADVICE
from purser.kube.objects import DEFAULT_SCHEDULER, Pod
from purser.kube.pod_details import MAX_SCHEDULER_MESSAGE, scheduler_message

MAX_ADVICE = 400
"""Characters of the change: names of containers, resources and annotations have bounds, and two fit."""

_REASON_END = re.compile(r", \d+ |\.?\s+preemption: |\.$")
"""What kube-scheduler puts behind a node's reason: the next one with its number of nodes, what came of preemption, or
the end of the sentence. No change has any of it."""


def last_message(pod: Pod) -> str:
    """Why it is not scheduled, by the pod's condition PodScheduled; empty where nobody has said."""
    return brief(scheduler_message(pod), MAX_SCHEDULER_MESSAGE)


def last_advice(pod: Pod) -> str:
    """By which change it would fit, by the same condition; empty where none is known."""
    _, found, rest = scheduler_message(pod).rpartition(ADVICE)
    # In one line, and not longer than this: the pattern would take long for many blanks.
    return brief(_REASON_END.split(brief(rest, 4 * MAX_ADVICE), maxsplit=1)[0], MAX_ADVICE) if found else ""


def with_last_message(fact: str, scheduler: str, last: str) -> str:
    """The sentence on a pod that Purser does not refuse: ``fact`` says so, empty: it has not been asked. ``scheduler``:
    the pod's own; ``last``: what that said of it, empty: nothing yet."""
    scheduler = scheduler or DEFAULT_SCHEDULER
    said = f"last message from {scheduler}: {last}" if last else f"{scheduler} has said nothing about the pod yet"
    return f"{fact}; {said}" if fact else said
