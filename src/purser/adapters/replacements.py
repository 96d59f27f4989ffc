"""What becomes of an evicted pod: whether it has ended, and how far its controller's replacement has come."""

from collections.abc import Collection, Iterable

import msgspec

from purser.core.planning import MOVED_POD_PRICE, PlanStep
from purser.kube.objects import Pod
from purser.kube.pods import controller_of, is_terminal
from purser.kube.resources import key_of


class ReplacementError(Exception):
    """The step cannot end as it was planned; the message says why."""


class ReplacementProgress(msgspec.Struct, frozen=True):
    """How far a step is."""

    is_over: bool
    text: str
    """Of a step that is over what came of it, else what it waits for; the beginning of a sentence."""


def replacements(pods: Iterable[Pod], controller_uid: str, known: Collection[str]) -> list[Pod]:
    """The controller's pods that were not there before (``known`` uids)."""
    return [
        pod
        for pod in pods
        if pod.metadata.uid not in known
        and (controller := controller_of(pod)) is not None
        and controller.uid == controller_uid
    ]


def replacement_progress(step: PlanStep, victim: Pod | None, found: Iterable[Pod]) -> ReplacementProgress:
    """How far a step is: of the evicted pod, where it still exists, and what replaces it. Raises `ReplacementError`.

    A replacement has landed once it runs. One without a place in the plan has to exist.
    """
    if victim is not None and not is_terminal(victim):
        return ReplacementProgress(False, f"pod {step.pod} is still terminating")
    if not step.returns:
        return ReplacementProgress(True, f"pod {step.pod} has ended, and no controller recreates it")
    there = sorted(found, key=lambda pod: (not pod.spec.node_name, pod.metadata.name))
    if not there:
        return ReplacementProgress(False, f"nothing has replaced pod {step.pod}")
    for pod in there:
        if pod.status.phase == "Failed":
            why = (
                ": ".join(filter(None, (pod.status.reason, pod.status.message)))
                or "the pod's status does not give a reason"
            )
            raise ReplacementError(f"replacement {key_of(pod)} failed: {why}")
    for pod in there:
        if pod.spec.node_name and pod.status.phase in ("Running", "Succeeded"):
            is_on_target = pod.spec.node_name == step.to or not step.to
            instead = "" if is_on_target else f" instead of {step.to}"
            return ReplacementProgress(True, f"{key_of(pod)} runs on node {pod.spec.node_name}{instead}")
    first = there[0]
    if first.spec.node_name:
        return ReplacementProgress(
            False, f"replacement {key_of(first)} is not running yet on node {first.spec.node_name}"
        )
    if step.price != MOVED_POD_PRICE:
        return ReplacementProgress(True, f"{key_of(first)} is waiting for a node")
    command = f"purser why {first.metadata.name} -n {first.metadata.namespace}"
    return ReplacementProgress(False, f"replacement {key_of(first)} is not bound to a node yet ({command} shows why)")
