"""What the operator rolls out, read from the API server: its ClusterPolicies, and the marks on the nodes."""

from collections.abc import Iterable

from purser.core.decoding import brief
from purser.core.state import Rollout, RolloutNode, rollout, rollout_node
from purser.kube.client import Client
from purser.kube.errors import DecodeError, KubeError, NotFoundError
from purser.kube.objects import Node
from purser.kube.resources import Raw, meta_of, untyped_resource

CLUSTER_POLICIES = untyped_resource("purser.dev", "v1alpha1", "clusterpolicies", "ClusterPolicy", namespaced=False)
"""For readers; the operator has it with its own types (`purser.operator.policy`)."""


async def read_policies(client: Client) -> tuple[dict[str, object], list[str]]:
    """The status of each ClusterPolicy by name, and why any is missing. There is none where the cluster does not define
    them."""
    try:
        listing = await client.list(CLUSTER_POLICIES)
    except NotFoundError:
        return {}, []
    except KubeError as error:
        return {}, [f"ClusterPolicies cannot be listed: {brief(error)}"]
    problems = [f"ClusterPolicy {brief(each.name)} cannot be read" for each in listing.left_out]
    statuses: dict[str, object] = {}
    for each in listing.items:
        try:
            statuses[meta_of(each).name] = _status(each)
        except DecodeError as error:
            problems.append(brief(error))
    return statuses, problems


def _status(policy: Raw) -> object:
    return policy.get("status")


def make_rollout(statuses: dict[str, object], nodes: Iterable[Node], problems: Iterable[str]) -> Rollout:
    """The document. Most of a second for 80 000 nodes: call it in a thread."""
    return rollout(statuses, (found for node in nodes if (found := rollout_node_of(node)) is not None), problems)


def rollout_node_of(node: Node) -> RolloutNode | None:
    """A node's part of the document; None: it has no GPU that the operator knows of."""
    metadata = node.metadata
    return rollout_node(metadata.name, metadata.labels, metadata.annotations, cordoned=node.spec.unschedulable)
