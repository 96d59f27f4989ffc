"""From client-side to server-side `kubectl apply`: the last-applied annotation counts as kubectl's own claim.

Source: k8s.io/apimachinery, pkg/util/managedfields/internal/lastapplied*.go. Pure.
"""

from . import jsonio
from .errors import Obj
from .fieldset import EMPTY, Paths, compare, leaves
from .schema import Schema
from .ssa import merge

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"
"""Only this manager inherits: others opt out by their name."""


def inherited_paths(live: Obj, schema: Schema) -> Paths:
    """Fields that kubectl applied client-side and that are unchanged since: no conflict for kubectl."""
    text = _annotation(live)
    if text is None:
        return EMPTY
    try:
        applied = jsonio.decode(text.encode())
    except ValueError:
        return EMPTY
    if not isinstance(applied, dict):
        return EMPTY
    changed = compare(merge(live, applied, schema), live, schema)
    return frozenset(leaves(applied, schema)) - changed.changed - changed.removed


def refresh(obj: Obj, config: Obj) -> None:
    """Keep an annotation that is there in step with what was applied, in place."""
    if _annotation(obj) is not None:
        obj["metadata"]["annotations"][ANNOTATION] = jsonio.encode(config).decode() + "\n"


def _annotation(obj: Obj) -> str | None:
    annotation: str | None = (obj.get("metadata", {}).get("annotations") or {}).get(ANNOTATION)
    return annotation
