"""A fleet as the API server shows it at one moment, for commands that look once and go.

Grants are taken as the annotations state them; their signatures are not checked: this is for showing, not for deciding.
"""

from purser.core import signing
from purser.core.fleet import Fleet
from purser.kube.adapters import InventoryError, grant_state, inventory_of, is_terminal
from purser.kube.client import Client
from purser.kube.resources import NODES, PODS


async def read_fleet(client: Client) -> tuple[Fleet, tuple[str, ...]]:
    """The cluster's inventories and grants, and a sentence on each that could not be read."""
    fleet = Fleet()
    problems: list[str] = []
    for node in (await client.list(NODES)).items:
        try:
            if (inventory := inventory_of(node)) is not None:
                fleet.set_inventory(inventory)
        except InventoryError as error:
            problems.append(f"node {node.metadata.name}: {error}")
    for pod in (await client.list(PODS)).items:
        try:
            if not is_terminal(pod) and (grant := signing.read(pod.metadata.annotations)) is not None:
                fleet.ledger.adopt(grant, grant_state(pod))
        except signing.GrantError as error:
            problems.append(f"pod {pod.metadata.namespace}/{pod.metadata.name}: {error}")
    return fleet, tuple(problems)
