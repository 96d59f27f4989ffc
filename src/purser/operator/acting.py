"""What is done about it: the seam between a round's actions and the API, the loop that does them all, in order, and the
writer that shows them instead, as unified diffs of YAML.

Not here: which actions (``deciding``), and the writing (``writing``).
"""

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Protocol

import msgspec
import structlog

from purser.kube import ApiError, ConflictError, KubeError, NotFoundError, TooManyRequestsError
from purser.operator.manifests import projection
from purser.operator.model import (
    Action,
    Adopt,
    Apply,
    Delete,
    DeletePod,
    Evict,
    NodeView,
    ObjectKey,
    PatchNode,
    SetFinalizer,
    Snapshot,
    WriteStatus,
)
from purser.operator.names import GROUP, KIND, VERSION
from purser.yaml_text import yaml_text

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
    permanent: bool = False
    """The server refuses it permanently: a retry fails until the cause is removed."""


class RoundResult(msgspec.Struct, frozen=True):
    """What came of a round's actions."""

    done: tuple[Action, ...] = ()
    failures: tuple[FailedAction, ...] = ()
    stopped: bool = False
    """It was stopped in between: another process leads now."""

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


# --- all actions of a round


log = structlog.get_logger("purser.operator")

MAX_CONCURRENT_WRITES = 16
"""Writes under way at once: a thousand nodes take seconds, and the API server has room for others."""


_TRANSIENT_STATUSES = (404, 408, 409, 410, 429)
_FIRST_SERVER_ERROR = 500


async def perform(
    actions: Sequence[Action], writer: Writer, may_write: Callable[[], bool] = lambda: True
) -> RoundResult:
    """Do the actions in their order, those of one kind side by side; a failure keeps no other action from being done.

    ``may_write`` is asked before each one. Once it says no, nothing more is written.
    """
    done: list[Action] = []
    failures: list[FailedAction] = []

    async def one(action: Action) -> None:
        if not may_write():
            return
        failure = await _try(action, writer)
        if failure is None:
            done.append(action)
        else:
            failures.append(failure)

    for group in _groups(actions):
        await _run_concurrently(one, group)
    return RoundResult(tuple(done), tuple(failures), stopped=len(done) + len(failures) < len(actions))


def _groups(actions: Sequence[Action]) -> Iterator[list[Action]]:
    """Neighbours of one type; objects one by one, because a binding is refused before its role is there."""
    for kind, group in groupby(actions, key=type):
        if kind is Apply:
            yield from ([action] for action in group)
        else:
            yield list(group)


async def _run_concurrently(do: Callable[[Action], Awaitable[None]], actions: Sequence[Action]) -> None:
    slots = asyncio.Semaphore(MAX_CONCURRENT_WRITES)

    async def one(action: Action) -> None:
        async with slots:
            await do(action)

    async with asyncio.TaskGroup() as group:
        for action in actions:
            group.create_task(one(action))


async def _try(action: Action, writer: Writer) -> FailedAction | None:
    words = describe(action)
    try:
        await writer.do(action)
    except (KubeError, LookupError) as error:
        failure = FailedAction(action, str(error), _is_expected(action, error), _is_permanent(error))
        say = log.info if failure.expected else log.warning
        say("A write was refused" if failure.expected else "A write failed", error=str(error), **words)
        return failure
    log.info("A write succeeded", **words)
    return None


def _is_expected(action: Action, error: Exception) -> bool:
    """A node, pod or object that went or changed since it was looked at; a disruption budget that says no."""
    if isinstance(error, TooManyRequestsError):
        return isinstance(action, Evict)
    if isinstance(error, NotFoundError):
        return not isinstance(action, Apply)  # what is applied need not be there, but its namespace and kind
    return isinstance(error, ConflictError)


def _is_permanent(error: Exception) -> bool:
    """Whether it is about the write itself: not about its moment, and not about a server that is away or overloaded."""
    if isinstance(error, ApiError):
        return error.status < _FIRST_SERVER_ERROR and error.status not in _TRANSIENT_STATUSES
    return isinstance(error, LookupError)


# --- shown


def text_diff(title: str, before: Any, after: Any) -> str:
    """A unified diff of two values as YAML; None stands for nothing. Empty where they are equal."""
    lines = difflib.unified_diff(
        _lines(before),
        _lines(after),
        fromfile="/dev/null" if before is None else f"live/{title}",
        tofile="/dev/null" if after is None else f"wanted/{title}",
    )
    return "".join(lines)


def node_before_and_after(node: NodeView | None, patch: PatchNode) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a patch changes of a node, and nothing else of it."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    there = {"labels": node.labels, "annotations": node.annotations} if node is not None else {}
    for field, changes in (("labels", patch.labels), ("annotations", patch.annotations)):
        known = there.get(field, {})
        before[field] = {key: known[key] for key in changes if key in known}
        after[field] = {key: value for key, value in changes.items() if value is not None}
    if patch.unschedulable is not None:
        before["unschedulable"] = node.unschedulable if node is not None else False
        after["unschedulable"] = patch.unschedulable
    return before, after


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    return yaml_text(msgspec.to_builtins(value), sort_keys=True, width=10_000).splitlines(keepends=True)


class DryWriter:
    """Each action as a diff against a snapshot, passed line by line to ``say``."""

    def __init__(self, snapshot: Snapshot, say: Callable[[str], None]):
        self._snapshot = snapshot
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._policies: dict[str, Any] = {each["metadata"]["name"]: each for each in snapshot.policies}
        self._say = say

    async def do(self, action: Action) -> None:
        """Say it."""
        self._say(self._text(action).rstrip("\n"))

    def _text(self, action: Action) -> str:
        key = subject(action)
        heading = f"{verb(action)} {key}"
        match action:
            case Apply():
                return self._diff(f"{heading}: {action.why}", key, self._live(action), action.object)
            case Adopt():
                return f"{heading}: set owner to ClusterPolicy {action.owner['name']}"
            case Delete():
                return self._diff(f"{heading}: {action.why}", key, self._snapshot.objects.get(action.key), None)
            case PatchNode():
                before, after = node_before_and_after(self._nodes.get(action.node), action)
                return self._diff(f"{heading}: {action.why}", key, before, after)
            case DeletePod():
                return f"{heading} on {action.pod.node}: {action.why}"
            case Evict():
                return f"{heading} from {action.workload.node}: {action.why}"
            case WriteStatus():
                live = self._policies.get(action.policy, {}).get("status") or {}
                return self._diff(f"status of {key}", key, live, msgspec.to_builtins(action.status))
            case SetFinalizer():
                return f"finalizers of {key}: {', '.join(action.finalizers) or 'none'}"

    def _live(self, action: Apply) -> Any:
        """Only what the operator owns of an object is compared, as it is when it decides."""
        live = self._snapshot.objects.get(ObjectKey.of(action.object))
        return projection(live, action.object) if live is not None else None

    def _diff(self, heading: str, key: ObjectKey, before: Any, after: Any) -> str:
        return f"{heading}\n{text_diff(str(key), before, after)}"
