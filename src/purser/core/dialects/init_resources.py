"""Init containers' words that kubelet must not see.

kubelet drops from a pod the extended resources that its node does not have before it checks whether the pod fits, but
only from app containers (``removeMissingExtendedResources``). An init container that asks for ``nvidia.com/gpumem``
would so be refused with ``OutOfnvidia.com/gpumem`` on every node: seen on kubelet 1.20.2. The webhook therefore moves
these amounts of init containers and sidecars into an annotation, and whoever reads the pod puts them back with
`restored`. ``nvidia.com/gpu`` stays: nodes do have that.
"""

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.core.dialects.errors import DialectError
from purser.core.model import ContainerKind
from purser.core.names import GPU_RESOURCE, INIT_RESOURCES_ANNOTATION
from purser.core.podspec import ContainerSpec, PodSpec

InitResources = dict[str, dict[str, str]]
"""By container, what it asks for of each resource."""

MAX_BYTES = 16 * 1024

_reader: JsonReader[InitResources] = JsonReader(
    InitResources, f"annotation {INIT_RESOURCES_ANNOTATION}", max_bytes=MAX_BYTES
)


def movable(pod: PodSpec, resources: frozenset[str]) -> InitResources:
    """What init containers and sidecars still ask for in the open, of these resources."""
    found = {container.name: _amounts(container, resources) for container in pod.containers if _is_init(container)}
    return {name: amounts for name, amounts in found.items() if amounts}


def encode(amounts: InitResources) -> str:
    """The value of the annotation."""
    return msgspec.json.encode(amounts, order="sorted").decode()


def restored(pod: PodSpec) -> PodSpec:
    """The pod as its author wrote it. Raises `DialectError` for an annotation that makes no sense."""
    text = pod.annotations.get(INIT_RESOURCES_ANNOTATION)
    if text is None:
        return pod
    moved = _decode(text)
    unknown = moved.keys() - {container.name for container in pod.containers if _is_init(container)}
    if unknown:
        names = brief(", ".join(sorted(unknown)))
        raise DialectError(
            [f"annotation {INIT_RESOURCES_ANNOTATION} names {names}, which are no init containers: remove it"]
        )
    containers = tuple(_with_limits(container, moved.get(container.name, {})) for container in pod.containers)
    return msgspec.structs.replace(pod, containers=containers)


def _decode(text: str) -> InitResources:
    try:
        return _reader.read(text)
    except UnreadableError as error:
        raise DialectError([f"{error}; Purser's webhook writes it: remove it"]) from error


def _is_init(container: ContainerSpec) -> bool:
    return container.kind is not ContainerKind.APP


def _amounts(container: ContainerSpec, resources: frozenset[str]) -> dict[str, str]:
    found = ((resource, container.quantity(resource)) for resource in sorted(resources - {GPU_RESOURCE}))
    return {resource: amount for resource, amount in found if amount is not None}


def _with_limits(container: ContainerSpec, moved: dict[str, str]) -> ContainerSpec:
    if not moved:
        return container
    return msgspec.structs.replace(container, limits={**moved, **container.limits})
