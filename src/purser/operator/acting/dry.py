"""Says what would be written, and writes nothing."""

from collections.abc import Callable
from typing import Any

import msgspec

from purser.operator.diff import node_before_and_after, text_diff
from purser.operator.model import (
    Action,
    Apply,
    Delete,
    DeletePod,
    Evict,
    ObjectKey,
    PatchNode,
    Raw,
    SetFinalizer,
    Snapshot,
    WriteStatus,
)

Projection = Callable[[Raw, Raw], Any]


class DryWriter:
    """Each action as a diff against a snapshot, told line by line to ``say``."""

    def __init__(self, snapshot: Snapshot, say: Callable[[str], None], projection: Projection):
        """``projection`` leaves of a live object what the operator's own version of it names."""
        self._snapshot = snapshot
        self._nodes = {node.name: node for node in snapshot.nodes}
        self._policies: dict[str, Any] = {each["metadata"]["name"]: each for each in snapshot.policies}
        self._say = say
        self._projection = projection

    async def do(self, action: Action) -> None:
        """Say it."""
        self._say(self._text(action).rstrip("\n"))

    def _text(self, action: Action) -> str:
        match action:
            case Apply():
                return self._apply(action)
            case Delete():
                name, live = _name(action.key), self._snapshot.objects.get(action.key)
                return f"delete {name}: {action.why}\n{text_diff(name, live, None)}"
            case PatchNode():
                before, after = node_before_and_after(self._nodes.get(action.node), action)
                return f"patch Node {action.node}: {action.why}\n{text_diff(f'Node/{action.node}', before, after)}"
            case DeletePod():
                return f"delete Pod {action.pod.namespace}/{action.pod.name} on {action.pod.node}: {action.why}"
            case Evict():
                workload = action.workload
                return f"evict Pod {workload.namespace}/{workload.name} from {workload.node}: {action.why}"
            case WriteStatus():
                live = self._policies.get(action.policy, {}).get("status") or {}
                wanted = msgspec.to_builtins(action.status)
                diff = text_diff(f"ClusterPolicy/{action.policy}/status", live, wanted)
                return f"status of ClusterPolicy {action.policy}\n{diff}"
            case SetFinalizer():
                names = ", ".join(action.finalizers) or "none"
                return f"finalizers of ClusterPolicy {action.policy}: {names}"

    def _apply(self, action: Apply) -> str:
        """Only what the operator owns of an object is compared, as it is when it decides."""
        key = ObjectKey.of(action.object)
        live = self._snapshot.objects.get(key)
        shown = self._projection(live, action.object) if live is not None else None
        return f"apply {_name(key)}: {action.why}\n{text_diff(_name(key), shown, action.object)}"


def _name(key: ObjectKey) -> str:
    return f"{key.kind}/{key.namespace}/{key.name}" if key.namespace else f"{key.kind}/{key.name}"
