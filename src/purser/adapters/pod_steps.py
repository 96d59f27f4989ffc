"""A pod's way from its creation to running containers, as its status has it."""

from collections.abc import Iterator, Sequence

from purser.core.kubernetes.times import parsed
from purser.core.names import GRANT_ANNOTATION
from purser.core.state import StateStep
from purser.kube.objects import Pod
from purser.kube.pod_details import PodCondition, ScheduledPod

_STEPS_BY_CONDITION = (
    ("PodReadyToStartContainers", "Sandbox ready"),
    ("Initialized", "Init containers done"),
    ("ContainersReady", "Containers ready"),
)


def steps_of(pod: Pod) -> list[StateStep]:
    """The steps, in the order of their times. A condition has the time when it last changed, so a step may have been
    reached before."""
    timed = ((parsed(time), name, time) for name, time in _steps(pod))
    known = sorted(((at, name, time) for at, name, time in timed if at is not None), key=lambda step: step[0])
    before = [known[0][0], *(at for at, _, _ in known)] if known else []
    return [StateStep(name, time, int(at - last)) for (at, name, time), last in zip(known, before, strict=False)]


def _steps(pod: Pod) -> Iterator[tuple[str, str]]:
    conditions = _conditions(pod)
    yield "Created", pod.metadata.creation_timestamp
    scheduled = conditions.get("PodScheduled", PodCondition())
    if scheduled.status == "False":
        held = "Held by scheduling gates" if pod.spec.scheduling_gates else "First refused by its scheduler"
        yield held, scheduled.last_transition_time
    elif scheduled.status == "True":
        # The grant comes with the Binding.
        has_grant = GRANT_ANNOTATION in pod.metadata.annotations
        yield "Scheduled, and GPUs granted" if has_grant else "Scheduled", scheduled.last_transition_time
    yield "Accepted by kubelet", pod.status.start_time
    for type_, name in _STEPS_BY_CONDITION:
        if (found := conditions.get(type_, PodCondition())).status == "True":
            yield name, found.last_transition_time


def _conditions(pod: Pod) -> dict[str, PodCondition]:
    conditions: Sequence[PodCondition] = pod.status.conditions if isinstance(pod, ScheduledPod) else ()
    return {each.type: each for each in conditions}
