"""The claims that a pod's volumes name, as kube-scheduler's VolumeBinding looks for them before it looks at nodes.

Not here: binding. Nothing provisions volumes in a lab, so a claim that is there counts as bound.
"""

from collections.abc import Callable, Iterator
from typing import Any

from purser.kube.resources import Raw, untyped_resource

CLAIMS = untyped_resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

FindClaim = Callable[[str], Raw | None]
"""A claim by ``namespace/name``."""


def find_obstacle(pod: Raw, find: FindClaim) -> str:
    """What kube-scheduler says of the first claim that keeps the pod waiting; empty where none does."""
    for name, is_ephemeral in _claims(pod):
        claim = find(f"{pod['metadata']['namespace']}/{name}")
        if claim is None and is_ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim["metadata"].get("deletionTimestamp"):
            return f'persistentvolumeclaim "{name}" is being deleted'
    return ""


def _claims(pod: Raw) -> Iterator[tuple[str, bool]]:
    """Names, and whether the claim is one that a controller makes for this pod."""
    for volume in pod["spec"].get("volumes") or ():
        source: dict[str, Any] | None = volume.get("persistentVolumeClaim")
        if source is not None:
            yield source.get("claimName", ""), False
        elif volume.get("ephemeral") is not None:
            yield f"{pod['metadata']['name']}-{volume['name']}", True
