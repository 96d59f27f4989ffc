"""Says what would be written, in unified diffs of YAML, and writes nothing."""

import difflib
from collections.abc import Callable
from typing import Any

import msgspec

from purser.operator.acting.writer import subject, verb
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
from purser.yaml_text import yaml_text


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
    """Each action as a diff against a snapshot, told line by line to ``say``."""

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
        said = f"{verb(action)} {key}"
        match action:
            case Apply():
                return self._diff(f"{said}: {action.why}", key, self._live(action), action.object)
            case Adopt():
                return f"{said}: its owner is ClusterPolicy {action.owner['name']}"
            case Delete():
                return self._diff(f"{said}: {action.why}", key, self._snapshot.objects.get(action.key), None)
            case PatchNode():
                before, after = node_before_and_after(self._nodes.get(action.node), action)
                return self._diff(f"{said}: {action.why}", key, before, after)
            case DeletePod():
                return f"{said} on {action.pod.node}: {action.why}"
            case Evict():
                return f"{said} from {action.workload.node}: {action.why}"
            case WriteStatus():
                live = self._policies.get(action.policy, {}).get("status") or {}
                return self._diff(f"status of {key}", key, live, msgspec.to_builtins(action.status))
            case SetFinalizer():
                return f"finalizers of {key}: {', '.join(action.finalizers) or 'none'}"

    def _live(self, action: Apply) -> Any:
        """Only what the operator owns of an object is compared, as it is when it decides."""
        live = self._snapshot.objects.get(ObjectKey.of(action.object))
        return projection(live, action.object) if live is not None else None

    def _diff(self, said: str, key: ObjectKey, before: Any, after: Any) -> str:
        return f"{said}\n{text_diff(str(key), before, after)}"
