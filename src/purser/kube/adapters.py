"""Objects of the API as the kernel's nouns."""

from collections.abc import Iterator, Mapping

import msgspec

from purser.core.model import ContainerKind, NodeInventory
from purser.core.names import GRANT_ANNOTATION, INVENTORY_ANNOTATION
from purser.core.podspec import ContainerSpec, PodSpec
from purser.kube.objects import Container, Node, Pod, Quantity

MAX_INVENTORY_BYTES = 256 * 1024
"""All annotations of an object together may have 256 KiB."""

_inventories = msgspec.json.Decoder(NodeInventory)


class InventoryError(ValueError):
    """A node's inventory annotation that is no inventory of that node; the message says why."""


def pod_spec(pod: Pod) -> PodSpec:
    """What dialects read of a pod. Its containers come in kubelet's order: init containers and sidecars first."""
    return PodSpec(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        annotations=pod.metadata.annotations,
        labels=pod.metadata.labels,
        containers=tuple(_containers(pod)),
        priority=pod.spec.priority,
        node_name=pod.spec.node_name,
        scheduler_name=pod.spec.scheduler_name,
    )


def inventory_of(node: Node) -> NodeInventory | None:
    """The inventory that a node's agent published, None when there is none. Raises `InventoryError`."""
    text = node.metadata.annotations.get(INVENTORY_ANNOTATION)
    if text is None:
        return None
    if len(text) > MAX_INVENTORY_BYTES:
        raise InventoryError(f"annotation {INVENTORY_ANNOTATION} is longer than {MAX_INVENTORY_BYTES} bytes")
    try:
        inventory = _inventories.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InventoryError(f"annotation {INVENTORY_ANNOTATION} is no inventory: {error}") from error
    if inventory.node != node.metadata.name:
        raise InventoryError(f"annotation {INVENTORY_ANNOTATION} is the inventory of node {inventory.node!r}")
    return inventory


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has ended for good, so that it holds nothing any more."""
    return pod.status.phase in ("Succeeded", "Failed")


def holds_grant(pod: Pod) -> bool:
    """Whether the pod carries a grant, whoever wrote it, and has not ended."""
    return GRANT_ANNOTATION in pod.metadata.annotations and not is_terminal(pod)


def _containers(pod: Pod) -> Iterator[ContainerSpec]:
    for container in pod.spec.init_containers:
        is_sidecar = container.restart_policy == "Always"
        yield _container(container, ContainerKind.SIDECAR if is_sidecar else ContainerKind.INIT)
    for container in pod.spec.containers:
        yield _container(container, ContainerKind.APP)


def _container(container: Container, kind: ContainerKind) -> ContainerSpec:
    return ContainerSpec(
        name=container.name,
        kind=kind,
        limits=_texts(container.resources.limits),
        requests=_texts(container.resources.requests),
        privileged=container.security_context.privileged,
    )


def _texts(quantities: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in quantities.items()}
