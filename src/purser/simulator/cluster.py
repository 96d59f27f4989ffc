"""Nodes and pods that a cluster has now, as the API server shows them at one moment.

The nodes are those with Purser's inventory, as they would be without pods that hold GPUs; what other pods ask for of
their CPU and memory stays taken. The pods are those that hold a grant, and those that wait for one. Grants are taken as
the annotations state them; their signatures are not checked: this is for comparing, not for deciding.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from purser.adapters.nodes import InventoryError, allocatable, inventory_of
from purser.adapters.pods import pod_spec
from purser.core.dialects import DialectError, asks_for_devices, parse
from purser.core.fleet import node_state
from purser.core.fleet.facts import FleetNodeFacts
from purser.core.fleet.live import links_of, node_facts
from purser.core.grant import signing
from purser.core.kubernetes.quantities import QuantityError
from purser.core.model import Grant, PodRequest
from purser.core.placement.asked import held_shape
from purser.core.placement.shape import shape_of
from purser.core.pod.requests import EffectiveRequests, pod_resources
from purser.core.vendors.catalogue import FAMILIES, FAMILY_NAMES
from purser.kube.client import Client
from purser.kube.objects import Node, Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import NODES, PODS
from purser.simulator.workload import SimPod, SimWorkload


class NothingToSimulate(ValueError):
    """A cluster without nodes or pods that have to do with GPUs."""


async def read_cluster(client: Client) -> SimWorkload:
    """The cluster's nodes and pods; what could not be read is in the notes. Raises `NothingToSimulate`, `KubeError`."""
    nodes, pods = (await client.list(NODES)).items, (await client.list(PODS)).items
    return workload_of(nodes, [pod for pod in pods if not is_terminal(pod)])


def workload_of(nodes: Iterable[Node], pods: Iterable[Pod]) -> SimWorkload:
    """The same of what was read. Raises `NothingToSimulate`."""
    notes: list[str] = []
    found: list[SimPod] = []
    others: defaultdict[str, list[EffectiveRequests]] = defaultdict(list)
    for pod in pods:
        simulated = simulated_pod(pod, notes)
        if simulated is not None:
            found.append(simulated)
        elif pod.spec.node_name:
            others[pod.spec.node_name].append(requests_of(pod, notes))
    facts = [f for node in nodes if (f := simulated_node(node, others[node.metadata.name], notes))]
    if not facts:
        raise NothingToSimulate("no node in the cluster has an inventory: is Purser's agent running?")
    if not found:
        raise NothingToSimulate("no pod in the cluster holds a GPU or asks for one")
    return SimWorkload("a cluster in its current state", tuple(facts), tuple(found), tuple(notes))


def simulated_node(node: Node, others: Sequence[EffectiveRequests], notes: list[str]) -> FleetNodeFacts | None:
    """A node without its pods with GPUs; ``others``: what the other ones ask for. None, with a note, for a node without
    an inventory that can be read."""
    name = node.metadata.name
    try:
        inventory = inventory_of(node, FAMILIES)
        if inventory is None:
            notes.append(f"node {name} is skipped because it has no inventory")
            return None
        free = allocatable(node).less(sum(others, EffectiveRequests()), len(others))
    except (InventoryError, QuantityError) as error:
        notes.append(f"node {name} is skipped: {error}")
        return None
    state = node_state(inventory, {})
    return node_facts(state, free, links=links_of(state))


def simulated_pod(pod: Pod, notes: list[str]) -> SimPod | None:
    """A pod as what it asks for, or holds; None, with a note on what cannot be read, for one without GPUs."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    asked = requests_of(pod, notes)
    request = _request(pod, name, notes)
    shape = shape_of(request) if request is not None else None
    if shape is None and (grant := _grant(pod, name, notes)) is not None:
        shape = held_shape(grant, asked.cpu_milli, asked.memory_mib)
        notes.append(
            f"pod {name}: the simulation uses only the amounts that the pod holds and ignores its other requirements"
        )
    if shape is None and request is not None:
        why = "it has no grant, and requirements other than amounts are not simulated"
        notes.append(f"pod {name} is skipped because {why}")
    return SimPod(name, shape) if shape is not None else None


def _request(pod: Pod, name: str, notes: list[str]) -> PodRequest | None:
    spec = msgspec.structs.replace(pod_spec(pod), families=frozenset(FAMILY_NAMES))
    try:
        return parse(spec) if asks_for_devices(spec) else None
    except DialectError as error:
        notes.append(f"pod {name}: {' '.join(str(error).split())}")
        return None


def _grant(pod: Pod, name: str, notes: list[str]) -> Grant | None:
    try:
        return signing.read(pod.metadata.annotations)
    except signing.GrantError as error:
        notes.append(f"pod {name}: {error}")
        return None


def requests_of(pod: Pod, notes: list[str]) -> EffectiveRequests:
    """What a pod asks for of CPU and memory; nothing, with a note, where it cannot be read."""
    try:
        return pod_resources(pod_spec(pod))
    except QuantityError as error:
        notes.append(f"pod {pod.metadata.namespace}/{pod.metadata.name}: {error}")
        return EffectiveRequests()
