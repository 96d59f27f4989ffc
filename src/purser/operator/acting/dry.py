"""Says what would be written, and writes nothing."""

from collections.abc import Callable
from typing import Any

import msgspec

from purser.operator.acting.diff import node_before_and_after, text_diff
from purser.operator.acting.writer import subject, verb
from purser.operator.kernel.drift import projection
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
    Snapshot,
    WriteStatus,
)


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
