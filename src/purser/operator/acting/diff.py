"""What a write would change, as people read it: unified diffs of YAML."""

import difflib
from typing import Any

import msgspec

from purser.operator.model import NodeView, PatchNode
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
