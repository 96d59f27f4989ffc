"""Amounts of init containers that stand in an annotation.

Before nodes listed the amounts, kubelet refused init containers that ask for them, and Purser's webhook moved them into
``purser.dev/init-resources``. Pods of that time may still wait or run: readers of pods put the amounts back with
`restore_pod`. Nothing writes the annotation any more.
"""

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.core.dialects.errors import DialectError
from purser.core.model import ContainerKind
from purser.core.names import INIT_RESOURCES_ANNOTATION
from purser.core.pod.manifest import ContainerSpec, PodManifest

InitResources = dict[str, dict[str, str]]
"""By container, what it asks for of each resource."""

MAX_INIT_RESOURCES_BYTES = 16 * 1024

_reader: JsonReader[InitResources] = JsonReader(
    InitResources, f"annotation {INIT_RESOURCES_ANNOTATION}", max_bytes=MAX_INIT_RESOURCES_BYTES
)


def restore_pod(pod: PodManifest) -> PodManifest:
    """The pod as its author wrote it. Raises `DialectError` for an annotation that makes no sense."""
    text = pod.annotations.get(INIT_RESOURCES_ANNOTATION)
    if text is None:
        return pod
    moved = _decode(text)
    unknown = moved.keys() - {container.name for container in pod.containers if _is_init_container(container)}
    if unknown:
        names = brief(", ".join(sorted(unknown)))
        what = "is not an init container" if len(unknown) == 1 else "are not init containers"
        raise DialectError(
            [f"annotation {INIT_RESOURCES_ANNOTATION} names {names}, which {what}: remove the annotation"]
        )
    containers = tuple(_with_limits(container, moved.get(container.name, {})) for container in pod.containers)
    return msgspec.structs.replace(pod, containers=containers)


def _decode(text: str) -> InitResources:
    try:
        return _reader.read(text)
    except UnreadableError as error:
        raise DialectError([f"{error}: remove the annotation, which is no longer needed"]) from error


def _is_init_container(container: ContainerSpec) -> bool:
    return container.kind is not ContainerKind.APP


def _with_limits(container: ContainerSpec, moved: dict[str, str]) -> ContainerSpec:
    if not moved:
        return container
    return msgspec.structs.replace(container, limits={**moved, **container.limits})
