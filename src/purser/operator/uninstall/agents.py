"""What agents wrote on nodes, and no round removes: an agent that is replaced writes it again."""

from typing import Any

from purser.core.names import DISPUTED_CONDITION, DISPUTES_ANNOTATION, INVENTORY_ANNOTATION, KUBELET_ANNOTATION
from purser.core.node_amounts import AMOUNTS
from purser.kube import Client
from purser.kube.objects import Node, Pod
from purser.kube.resources import NODES, PODS
from purser.operator.names import OPERAND_LABEL

_AGENTS = "app.kubernetes.io/name=purser,app.kubernetes.io/component=agent"
"""The operator's, the chart's, and those of other operators."""
_ENDED = ("Succeeded", "Failed")


async def nodes_to_strip(client: Client, namespace: str) -> list[Node]:
    """Nodes on which something stands that an agent wrote, without those where agents run that are not to leave:
    the chart's, or of an operator in another namespace than this one."""
    nodes = [node for node in (await client.list(NODES)).items if written_by_agents(node)]
    if not nodes:
        return []
    pods = (await client.list(PODS, label_selector=_AGENTS)).items
    kept = {pod.spec.node_name for pod in pods if _stays(pod, namespace)}
    return [node for node in nodes if node.metadata.name not in kept]


def written_by_agents(node: Node) -> list[str]:
    """Their annotations of a node."""
    ours = (INVENTORY_ANNOTATION, KUBELET_ANNOTATION, DISPUTES_ANNOTATION)
    return [key for key in ours if key in node.metadata.annotations]


def listed_by_agents(node: Node) -> list[str]:
    """The amounts that a node lists on which agents wrote; those of other nodes are somebody else's."""
    if not written_by_agents(node):
        return []
    return [name for name in AMOUNTS if name in node.status.capacity or name in node.status.allocatable]


async def strip(client: Client, node: Node) -> None:
    """Take it away. Raises `KubeError`."""
    name, status = node.metadata.name, dict[str, Any]()
    if amounts := dict.fromkeys(listed_by_agents(node)):
        status |= {"capacity": amounts, "allocatable": amounts}
    if any(each.type == DISPUTED_CONDITION for each in node.status.conditions):
        status["conditions"] = [{"type": DISPUTED_CONDITION, "$patch": "delete"}]
    if status:
        await client.patch_merge(NODES, name, {"status": status}, subresource="status", strategic=True)
    # Last: by them the node is found again, should this be cut short.
    await client.patch_merge(NODES, name, {"metadata": {"annotations": dict.fromkeys(written_by_agents(node))}})


def _stays(pod: Pod, namespace: str) -> bool:
    is_leaving = OPERAND_LABEL in pod.metadata.labels and pod.metadata.namespace == namespace
    return not is_leaving and pod.status.phase not in _ENDED
