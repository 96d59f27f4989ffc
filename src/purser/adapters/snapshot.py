"""A fleet as the API server shows it at one moment, for commands that look once and go.

Grants are taken as the annotations state them; their signatures are not checked: this is for showing, not for deciding.
"""

from collections.abc import Iterable, Mapping

import msgspec

from purser.adapters.nodes import InventoryError, inventory_of
from purser.adapters.pods import devices_asked, families_asked, grant_state
from purser.core.dialects.gpushare import GPU_COUNT, GPU_MEM
from purser.core.fleet import Fleet
from purser.core.grant import signing
from purser.core.grant.disputes import NodeDisputes, read_disputes
from purser.core.grant.reconcile import NodeRecords, PodBook, expected_records
from purser.core.kubernetes.quantities import QuantityError, quantity_ceil
from purser.core.model import Device, GrantState, NodeInventory
from purser.core.names import DISPUTES_ANNOTATION
from purser.core.vendors.catalogue import FAMILIES
from purser.kube.client import Client
from purser.kube.objects import Node, Pod
from purser.kube.pods import has_started, is_terminal
from purser.kube.resources import NODES, PODS

_FAMILY_WORDS = {word: family.resource for family in FAMILIES for word in family.resources}


async def read_objects(client: Client, selector: str | None = None) -> tuple[list[Node], list[Pod]]:
    """Nodes, those with these labels where a ``selector`` is given, and all pods: what `fleet_of` takes."""
    nodes = (await client.list(NODES, label_selector=selector)).items
    return nodes, (await client.list(PODS)).items


async def read_fleet(client: Client) -> tuple[Fleet, tuple[str, ...]]:
    """The cluster's inventories, what pods hold of them and the GPUs that are closed to new pods, as the scheduler
    counts them, and a sentence on each object that could not be read.

    Of a pod without a valid grant its agent's word does.
    """
    return fleet_of(*await read_objects(client))


def fleet_of(listed: Iterable[Node], pods: Iterable[Pod]) -> tuple[Fleet, tuple[str, ...]]:
    """The same of what was listed."""
    fleet = Fleet()
    nodes = _nodes_of(listed)
    problems = list(nodes.problems)
    for inventory in nodes.inventories.values():
        fleet.set_inventory(inventory)
    states: dict[str, GrantState] = {}
    books: dict[str, list[PodBook]] = {}
    for pod, book in _pods_of(pods, nodes.disputes):
        states[book.uid] = grant_state(pod)
        books.setdefault(pod.spec.node_name, []).append(book)
        if book.problem:
            problems.append(f"pod {book.key}: {book.problem}")
    for name in nodes.inventories.keys() | books.keys():
        expected = expected_records(name, nodes.devices(name), books.get(name, ()), nodes.disputes.get(name))
        for uid, grant in expected.grants.items():
            fleet.ledger.adopt(grant, states[uid])
        if name in nodes.inventories:
            fleet.set_disputes(name, expected.closed)
    return fleet, tuple(problems)


async def read_gpushare(client: Client) -> tuple[dict[str, str], int, int]:
    """The first InternalIP of each node that has one; and how much memory and how many GPUs nodes list in gpushare's
    words."""
    nodes = (await client.list(NODES)).items
    found = {
        node.metadata.name: [each.address for each in node.status.addresses if each.type == "InternalIP"]
        for node in nodes
    }
    memory, gpus = (sum(_capacity_of(node, name) for node in nodes) for name in (GPU_MEM, GPU_COUNT))
    return {name: addresses[0] for name, addresses in found.items() if addresses}, memory, gpus


def _capacity_of(node: Node, name: str) -> int:
    try:
        return quantity_ceil(node.status.capacity.get(name, 0))
    except QuantityError:
        return 0


async def read_node_records(client: Client) -> tuple[NodeRecords, ...]:
    """What the API server has of every node with GPUs: its inventory, its pods, and what its agent reports of them."""
    nodes = _nodes_of((await client.list(NODES)).items)
    books: dict[str, list[PodBook]] = {}
    for pod, book in _pods_of((await client.list(PODS)).items, nodes.disputes):
        if book.asks or book.grant is not None:
            books.setdefault(pod.spec.node_name, []).append(book)
    return tuple(
        NodeRecords(name, nodes.devices(name), tuple(books.get(name, ())), disputes=nodes.disputes.get(name))
        for name in sorted(nodes.inventories.keys() | books.keys() | nodes.disputes.keys())
    )


class _Nodes(msgspec.Struct, frozen=True):
    """What nodes' annotations say, by node."""

    inventories: dict[str, NodeInventory]
    disputes: dict[str, NodeDisputes]
    problems: tuple[str, ...]

    def devices(self, name: str) -> dict[str, Device]:
        """A node's devices by uuid."""
        inventory = self.inventories.get(name)
        return {} if inventory is None else {device.uuid: device for device in inventory.devices}


def _nodes_of(listed: Iterable[Node]) -> _Nodes:
    inventories: dict[str, NodeInventory] = {}
    disputes: dict[str, NodeDisputes] = {}
    problems: list[str] = []
    for node in listed:
        name = node.metadata.name
        try:
            if (inventory := inventory_of(node, FAMILIES)) is not None:
                inventories[name] = inventory
        except InventoryError as error:
            problems.append(f"node {name}: {error}")
        if (read := read_disputes(node.metadata.annotations.get(DISPUTES_ANNOTATION), name)) is not None:
            disputes[name] = read
    return _Nodes(inventories, disputes, tuple(problems))


def _pods_of(pods: Iterable[Pod], disputes: Mapping[str, NodeDisputes]) -> list[tuple[Pod, PodBook]]:
    """Those that are on nodes and have not ended."""
    return [
        (pod, _pod_book(pod, disputes.get(pod.spec.node_name)))
        for pod in pods
        if pod.spec.node_name and not is_terminal(pod)
    ]


def _pod_book(pod: Pod, disputes: NodeDisputes | None) -> PodBook:
    """A signature is for the node's agent to judge: where it does not trust a grant, it says so. A pod that asks for
    nothing is given nothing, whatever its annotations say."""
    grant, problem, meta = None, "", pod.metadata
    if not devices_asked(pod) and not families_asked(pod, _FAMILY_WORDS):
        return PodBook(meta.namespace, meta.name, meta.uid, asks=False, started=has_started(pod))
    try:
        grant = signing.read(meta.annotations)
        if grant is not None and (grant.pod_uid, grant.node) != (meta.uid, pod.spec.node_name):
            grant, problem = None, "the pod's grant is for another pod or node"
    except signing.GrantError as error:
        problem = str(error)
    if grant is not None and disputes is not None and any(each.uid == meta.uid for each in disputes.held):
        grant, problem = None, "the node's agent does not trust the pod's grant"
    asks = bool(devices_asked(pod)) or grant is not None  # of kubelet: an annotation alone holds nothing
    return PodBook(meta.namespace, meta.name, meta.uid, asks, has_started(pod), grant, problem)
