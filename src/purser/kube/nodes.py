"""What a node's object says of it."""

from purser.kube.objects import Node


def readiness(node: Node) -> str:
    """``Ready``, ``NotReady`` or ``Unknown``: the first word of kubectl's STATUS."""
    ready = next((each.status for each in node.status.conditions if each.type == "Ready"), "Unknown")
    return {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
