"""What agents list on their nodes, of the objects as they are now."""

from collections.abc import Sequence

from tests.unit.scheduler.explained import Raw, cluster

from purser.adapters.nodes import inventory_of
from purser.adapters.pods import pod_spec
from purser.core.grant.signing import read
from purser.core.ledger import pod_usage
from purser.core.node.amounts import AMOUNTS, Holder, asked_amounts, listed_amounts
from purser.kube.objects import Node, Pod

ANY = AMOUNTS[0]


def relisted(objects: list[Raw]) -> list[Raw]:
    """The objects, those nodes changed whose agents list amounts."""
    read_again = cluster(*objects)
    nodes = {each.metadata.name: each for each in read_again.nodes}
    for each in objects:
        if each["kind"] == "Node" and ANY in each["status"]["allocatable"]:
            each["status"]["allocatable"] |= amounts_listed(nodes[each["metadata"]["name"]], read_again.pods)
    return objects


def amounts_listed(node: Node, pods: Sequence[Pod]) -> dict[str, str]:
    """What a node's agent lists once it has seen everything."""
    inventory = inventory_of(node)
    assert inventory is not None
    holders = [_holder(each) for each in pods if each.spec.node_name == node.metadata.name]
    return {word: str(amount) for word, amount in listed_amounts(inventory, holders).items()}


def _holder(pod: Pod) -> Holder:
    grant = read(pod.metadata.annotations)
    return Holder(asked_amounts(pod_spec(pod)), {} if grant is None else pod_usage(grant))
