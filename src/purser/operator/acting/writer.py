"""The seam between a round's actions and the API."""

from typing import Protocol

import msgspec

from purser.operator.model import (
    Action,
    Adopt,
    Apply,
    Delete,
    DeletePod,
    Evict,
    ObjectKey,
    PatchNode,
    SetFinalizer,
    WriteStatus,
)
from purser.operator.names import GROUP, KIND, VERSION

_VERBS: dict[type[Action], str] = {
    Apply: "apply",
    Adopt: "adopt",
    Delete: "delete",
    PatchNode: "patch",
    DeletePod: "delete",
    Evict: "evict",
    WriteStatus: "status",
    SetFinalizer: "finalizer",
}


class Writer(Protocol):
    """Does actions. Raises `KubeError`, and LookupError for a kind that it does not know."""

    async def do(self, action: Action) -> None:
        """Do it."""
        ...


class FailedAction(msgspec.Struct, frozen=True):
    """An action that was not done."""

    action: Action
    error: str
    expected: bool
    """The world moved on since it was looked at, or a budget said no: the next round knows more."""
    lasting: bool = False
    """The server refuses it for what it is: it will do so again until somebody does something about it."""


class Result(msgspec.Struct, frozen=True):
    """What came of a round's actions."""

    done: tuple[Action, ...] = ()
    failures: tuple[FailedAction, ...] = ()
    stopped: bool = False
    """It was told to stop in between: another process leads now."""

    @property
    def is_clean(self) -> bool:
        """Everything was done."""
        return not self.failures and not self.stopped


def subject(action: Action) -> ObjectKey:
    """What an action writes to."""
    match action:
        case Apply():
            return ObjectKey.of(action.object)
        case Adopt() | Delete():
            return action.key
        case PatchNode():
            return ObjectKey.of_node(action.node)
        case DeletePod():
            return ObjectKey("v1", "Pod", action.pod.namespace, action.pod.name)
        case Evict():
            return ObjectKey("v1", "Pod", action.workload.namespace, action.workload.name)
        case WriteStatus() | SetFinalizer():
            return ObjectKey(f"{GROUP}/{VERSION}", KIND, "", action.policy)


def verb(action: Action) -> str:
    """What it does to that, in one word."""
    return _VERBS[type(action)]


def describe(action: Action) -> dict[str, str]:
    """An action in the words of logs: verb, kind, name, and why."""
    key, why = subject(action), getattr(action, "why", "")
    return {"verb": verb(action), "kind": key.kind, "name": key.path} | ({"why": why} if why else {})
