"""`purser why deployment/NAME`: which object is meant, and what is printed of it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from purser.kube.resources import Resource
    from purser.kube.workloads import Workload
    from purser.scheduler.explaining import WorkloadExplanation

_WORDS = {
    "Pod": ("po", "pod", "pods"),
    "Deployment": ("deploy", "deployment", "deployments"),
    "ReplicaSet": ("rs", "replicaset", "replicasets"),
    "StatefulSet": ("sts", "statefulset", "statefulsets"),
    "DaemonSet": ("ds", "daemonset", "daemonsets"),
    "Job": ("job", "jobs"),
}
"""By kind: as kubectl takes them."""

_GROUPS = (".apps", ".batch")
"""What ``kubectl get -o name`` prints behind the kind."""


def named(text: str) -> tuple[str, str]:
    """Kind and name of what was typed: ``NAME`` is a pod. Raises ValueError for a kind that has no pods."""
    word, slash, name = text.partition("/")
    if not slash:
        return "Pod", text
    short = word.lower()
    for group in _GROUPS:
        short = short.removesuffix(group)
    kind = next((kind for kind, words in _WORDS.items() if short in words), "")
    if not kind or not name or "/" in name:
        known = ", ".join(kind.lower() for kind in _WORDS)
        raise ValueError(f"cannot explain {text}: must be a pod name, or KIND/NAME with KIND one of {known}")
    return kind, name


def resource_of(kind: str) -> "Resource[Workload]":
    """Where objects of a kind are."""
    from purser.kube.workloads import WORKLOADS

    return next(each for each in WORKLOADS if each.kind == kind)


def workload_lines(found: "WorkloadExplanation") -> Iterator[str]:
    """What is printed of a workload before its first waiting pod."""
    yield f"{found.kind} {found.namespace}/{found.name} {_pods(found)}"
    for objection in found.objections:
        yield f"{objection[:1].upper()}{objection[1:]}"
    if not (found.waiting or found.placed or found.ended or found.objections):
        yield (
            f"The object does not report a reason. See kubectl describe {found.kind.lower()} {found.name} -n "
            f"{found.namespace}"
        )
    if found.placed and not found.waiting:
        yield f"On {', '.join(found.nodes[:_MAX_NAMED])}{_more_text(len(found.nodes) - _MAX_NAMED)}"
    if found.pod is not None and found.waiting > 1:
        yield "The waiting pod that was created first:"


_MAX_NAMED = 8
"""Nodes in a line."""


def _more_text(others: int) -> str:
    return f" and {others} more" if others > 0 else ""


def _pods(found: "WorkloadExplanation") -> str:
    from purser.core.wording import counted
    from purser.kube.workloads import wanted_field

    wanted = "" if found.wanted is None else f"; {wanted_field(found.kind)} is {found.wanted}"
    parts = [
        counted(found.waiting, "waiting pod") if found.waiting else "",
        counted(found.placed, "placed pod") if found.placed else "",
        counted(found.ended, "finished pod") if found.ended else "",
    ]
    said = [part for part in parts if part]
    return f"has {', '.join(said) if said else 'no pods'}{wanted}"
