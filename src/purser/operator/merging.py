"""One write per node: what gates and state machines want of it, without what it has already."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from purser.operator.model import NodeView, PatchNode

V = TypeVar("V")


def merged(node: NodeView, patches: Iterable[PatchNode | None]) -> PatchNode | None:
    """All patches of a node as one; of two words on a key the later counts. None: it is as wanted already."""
    given = [patch for patch in patches if patch is not None]
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    unschedulable = None
    for patch in given:
        labels |= patch.labels
        annotations |= patch.annotations
        unschedulable = unschedulable if patch.unschedulable is None else patch.unschedulable
    labels, annotations = changes(labels, node.labels), changes(annotations, node.annotations)
    unschedulable = None if unschedulable == node.unschedulable else unschedulable
    if not labels and not annotations and unschedulable is None:
        return None
    why = ", ".join(dict.fromkeys(patch.why for patch in given if patch.why))
    return PatchNode(node=node.name, labels=labels, annotations=annotations, unschedulable=unschedulable, why=why)


def patched(node: NodeView, patch: PatchNode | None) -> NodeView:
    """The node as it will be."""
    if patch is None:
        return node
    return msgspec.structs.replace(
        node,
        labels=_applied(node.labels, patch.labels),
        annotations=_applied(node.annotations, patch.annotations),
        unschedulable=node.unschedulable if patch.unschedulable is None else patch.unschedulable,
    )


def changes(wanted: Mapping[str, V], have: Mapping[str, str]) -> dict[str, V]:
    """What of it differs from what is there."""
    return {key: value for key, value in wanted.items() if have.get(key) != value}


def _applied(have: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    together: dict[str, str | None] = {**have, **changes}
    return {key: value for key, value in together.items() if value is not None}
