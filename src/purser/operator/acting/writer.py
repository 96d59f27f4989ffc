"""The seam between a round's actions and the API."""

from typing import Protocol

import msgspec

from purser.operator.model import Action, Apply, Delete, DeletePod, Evict, PatchNode, SetFinalizer, WriteStatus


class Writer(Protocol):
    """Does one action with one write. Raises `KubeError`, and LookupError for a kind that it does not know."""

    async def do(self, action: Action) -> None:
        """Do it."""
        ...


class Failure(msgspec.Struct, frozen=True):
    """An action that was not done."""

    action: Action
    error: str
    expected: bool
    """The world moved on since it was looked at, or a budget said no: the next round knows more."""


class Result(msgspec.Struct, frozen=True):
    """What came of a round's actions."""

    done: tuple[Action, ...] = ()
    failures: tuple[Failure, ...] = ()
    stopped: bool = False
    """It was told to stop in between: another process leads now."""

    @property
    def is_clean(self) -> bool:
        """Everything was done."""
        return not self.failures and not self.stopped


def describe(action: Action) -> dict[str, str]:
    """An action in the words of logs: verb, kind, name, and why."""
    match action:
        case Apply():
            metadata = action.object["metadata"]
            return _words("apply", action.object["kind"], metadata["name"], action.why)
        case Delete():
            return _words("delete", action.key.kind, action.key.name, action.why)
        case PatchNode():
            return _words("patch", "Node", action.node, action.why)
        case DeletePod():
            return _words("delete", "Pod", action.pod.name, action.why)
        case Evict():
            return _words("evict", "Pod", f"{action.workload.namespace}/{action.workload.name}", action.why)
        case WriteStatus():
            return _words("status", "ClusterPolicy", action.policy, "")
        case SetFinalizer():
            return _words("finalizer", "ClusterPolicy", action.policy, "")


def _words(verb: str, kind: str, name: str, why: str) -> dict[str, str]:
    return {"verb": verb, "kind": kind, "name": name} | ({"why": why} if why else {})
