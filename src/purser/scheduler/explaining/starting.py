"""What keeps a pod that is on a node from running there, and why one failed: the first link of the chain from kubelet's
admission to the last container, in the words of who holds it."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from purser.core.decoding import brief
from purser.core.explaining.reasons import FilterReason
from purser.core.explaining.start_reasons import StartReason
from purser.kube.object_events import ObservedEvent
from purser.kube.objects import Node, Pod
from purser.kube.pod_details import ContainerStateTerminated, ContainerStatus, ScheduledPod

MAX_TEXT = 1000
"""Characters of a message: that of a container runtime may be long."""

_UNINFORMATIVE_REASONS = frozenset({"", StartReason.CREATING, "PodInitializing"})
"""Reasons of containers that wait for something which their states do not name."""
_PLUGIN_FAILURE = re.compile(
    r"Allocate failed due to (?:rpc error: code = \w+ desc = )?(.*), which is unexpected", re.DOTALL
)
"""The message of kubelet's device manager (pkg/kubelet/cm/admission/errors.go)."""


class Obstacle(msgspec.Struct, frozen=True):
    """What keeps a pod on its node from running, or ended it."""

    by: str
    """Who says so: ``kubelet``, ``container NAME``, ``device plugin``, or the component of an event."""
    reason: str
    """The word; empty: there is none."""
    text: str
    """In their own words; empty: they give none."""
    remedy: str = ""
    """What to do, in a sentence; empty: not known."""
    others_run: bool = False
    """Other containers of the pod run all the same."""


def obstacle(pod: Pod, node: Node | None, events: Sequence[ObservedEvent] = ()) -> Obstacle | None:
    """Of a pod on a node that has not ended; None: all its containers run. ``node``: None where there is none of that
    name. ``events``: warnings about the pod, the last at the end."""
    said = next(_waiting_containers(pod, _UNINFORMATIVE_REASONS), None) or next(_failed_containers(pod), None)
    if said is not None:
        return msgspec.structs.replace(said, others_run=_has_running_container(pod))
    is_creating = next(_waiting_containers(pod, frozenset()), None)
    if pod.status.phase != "Pending" and is_creating is None:
        return None
    if node is None:
        return _kubelet_obstacle(StartReason.NODE_GONE)
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    if ready is not None and ready.status != "True":
        is_silent = ready.status == "Unknown"
        return _kubelet_obstacle(
            StartReason.NODE_UNKNOWN if is_silent else StartReason.KUBELET_NOT_READY, ready.message
        )
    if events:
        last = events[-1]
        return Obstacle(last.component or "kubelet", last.reason, brief(last.message, MAX_TEXT), _remedy(last.reason))
    if is_creating is not None:
        return is_creating
    return _kubelet_obstacle(StartReason.CREATING if pod.status.start_time else StartReason.NOT_ADMITTED)


def failure(pod: Pod) -> Obstacle | None:
    """Why a pod failed, and by whose doing; None: nothing says so, or it succeeded."""
    reason, message = pod.status.reason, pod.status.message
    if pod.status.phase != "Failed":
        return None
    if reason:
        refused = _PLUGIN_FAILURE.search(message) if reason == StartReason.ADMISSION else None
        by, text = ("kubelet", message) if refused is None else ("device plugin", refused[1])
        return Obstacle(by, reason, brief(text, MAX_TEXT), _remedy(reason))
    exited = next(_failed_containers(pod), None)
    if exited is not None:
        return exited
    return Obstacle("kubelet", "", brief(message, MAX_TEXT)) if message else None


def _waiting_containers(pod: Pod, without: frozenset[str]) -> Iterator[Obstacle]:
    """Containers that wait, in the order in which they are to start, but those for such reasons."""
    for each in _containers(pod):
        state = each.state.waiting
        if state is None or state.reason in without:
            continue
        text, last = state.message, each.last_state.terminated
        if state.reason == StartReason.CRASH_LOOP and last is not None:
            text = f"the last run ended: {', '.join(filter(None, (last.reason, _exit_text(last))))}"
        yield Obstacle(f"container {each.name}", state.reason, brief(text, MAX_TEXT), _remedy(state.reason))


def _failed_containers(pod: Pod) -> Iterator[Obstacle]:
    """Containers whose run failed. A real kubelet reports a container so that it is about to start again, too, for most
    of the time (seen on 1.37)."""
    for each in _containers(pod):
        ended = each.state.terminated
        if ended is not None and ended.exit_code:
            yield Obstacle(f"container {each.name}", ended.reason, _exit_text(ended), _remedy(ended.reason))


def _has_running_container(pod: Pod) -> bool:
    """Whether a container runs. A snapshot has the states of the others alone."""
    if not isinstance(pod, ScheduledPod) or pod.status.phase != "Running":
        return False
    states = (each.state for each in pod.status.container_statuses)
    down = sum(each.waiting is not None or each.terminated is not None for each in states)
    return down < len(pod.spec.containers)


def _containers(pod: Pod) -> tuple[ContainerStatus, ...]:
    """In the order in which they start; none, of a pod that was read without them."""
    if not isinstance(pod, ScheduledPod):
        return ()
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def _exit_text(ended: ContainerStateTerminated) -> str:
    return brief(f"exit code {ended.exit_code}{f': {ended.message}' if ended.message else ''}", MAX_TEXT)


def _kubelet_obstacle(reason: StartReason, text: str = "") -> Obstacle:
    return Obstacle("kubelet", reason, brief(text, MAX_TEXT) or reason.happened, reason.remedy)


def _remedy(reason: str) -> str:
    if reason.startswith("OutOf"):
        return StartReason.OUT_OF.remedy
    return next((each.remedy for kind in (StartReason, FilterReason) for each in kind if each == reason), "")
