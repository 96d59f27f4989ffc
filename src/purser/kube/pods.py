"""Facts of a pod's object, independent of its requests."""

from purser.kube.objects import OwnerReference, Pod

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
"""Of pods whose containers have all ended and are not restarted."""


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has ended for good, so that it holds no devices any more."""
    return pod.status.phase in TERMINAL_PHASES


def has_started(pod: Pod) -> bool:
    """Whether kubelet has taken the pod: before that it holds no devices."""
    return bool(pod.status.start_time) or pod.status.phase == "Running"


def controller_of(pod: Pod) -> OwnerReference | None:
    """The owner that recreates a deleted pod; None: there is none."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)
