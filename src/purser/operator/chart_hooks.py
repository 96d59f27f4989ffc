"""What Helm does not do, and the chart's hooks do: before an upgrade they bring the CustomResourceDefinition up to
date, for Helm makes those of a chart once and never changes them; after a release is uninstalled they remove what
agents wrote on nodes (an agent that is replaced writes it again), and what scheduler and kube-scheduler made for
themselves.

The command ``purser operator`` does the same by hand.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from purser.core.names import (
    AGENT_CONDITIONS,
    CA_CONFIGMAP,
    CORDONED_GPUS_ANNOTATION,
    DISPUTES_ANNOTATION,
    GRANT_ANNOTATION,
    GRANT_KEY_CONFIGMAP,
    GRANT_KEY_SECRET,
    HEALTH_CORDON_ANNOTATION,
    INVENTORY_ANNOTATION,
    KUBE_SCHEDULER_LEASE,
    KUBELET_ANNOTATION,
    TLS_SECRET,
    UNHEALTHY_TAINT,
)
from purser.core.node.amounts import AMOUNTS
from purser.core.vendors.hami_nodes import REGISTER_ANNOTATION
from purser.core.wording import some
from purser.kube import Client, KubeError, NotFoundError, Raw
from purser.kube.objects import Node, Pod
from purser.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS, SECRETS, Resource
from purser.operator.acting import text_diff
from purser.operator.manifests import projection
from purser.operator.names import OPERAND_LABEL
from purser.operator.observing.kinds import DEFINITIONS
from purser.operator.policy.crd import definition

CRD_POLL_PERIOD_S = 0.1
CRD_SERVED_TIMEOUT_S = 30.0
"""For the API server to serve a new definition."""


async def apply_definition(client: Client) -> str:
    """Make the definition as this version of Purser has it, and return once the API server serves it.

    Written as a merge patch, which replaces the list of versions whole, so that no field of an older one stays; and
    which servers before Kubernetes 1.25 take, too: they leave out the rules in CEL, where an apply would be refused.
    Answers with what was done, in one sentence. Raises `KubeError`.
    """
    wanted = definition()
    name = wanted["metadata"]["name"]
    try:
        before = await client.get(DEFINITIONS, name)
    except NotFoundError:
        await client.create(DEFINITIONS, wanted)
        outcome = "created"
    else:
        after = await client.patch_merge(DEFINITIONS, name, wanted)
        outcome = "updated" if _version(before) != _version(after) else "unchanged"
    try:
        async with asyncio.timeout(CRD_SERVED_TIMEOUT_S):
            await _wait_until_established(client, name)
    except TimeoutError:
        why = f"run kubectl describe crd {name}"
        raise KubeError(
            f"CustomResourceDefinition {name} ({outcome}) is still not served after {CRD_SERVED_TIMEOUT_S:g} s: {why}"
        ) from None
    return f"CustomResourceDefinition {name} {outcome}"


async def preview_definition(client: Client) -> str:
    """What would change of the cluster's CustomResourceDefinition, as a diff; empty: nothing.

    Servers before Kubernetes 1.25 leave out the rules in CEL, so that these are always shown. Raises `KubeError`.
    """
    wanted = definition()
    name = wanted["metadata"]["name"]
    try:
        live = await client.get(DEFINITIONS, name)
    except NotFoundError:
        return text_diff(name, None, wanted)
    shown = projection(live, wanted)
    spec = {**shown["spec"], "versions": live["spec"]["versions"]}
    return text_diff(name, {**shown, "spec": spec}, wanted)


async def _wait_until_established(client: Client, name: str) -> None:
    while True:
        if _is_established(await client.get(DEFINITIONS, name)):
            return
        await asyncio.sleep(CRD_POLL_PERIOD_S)


def _is_established(found: Raw) -> bool:
    conditions = found.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _version(found: Raw) -> str:
    return str(found["metadata"]["resourceVersion"])


# --- what agents wrote


_AGENTS = "app.kubernetes.io/name=purser,app.kubernetes.io/component=agent"
"""The operator's, the chart's, and those of other operators."""
_ENDED = ("Succeeded", "Failed")


async def nodes_to_strip(client: Client, namespace: str) -> list[Node]:
    """Nodes on which something stands that an agent wrote, without those where agents run that are not to leave:
    the chart's, or of an operator in another namespace than this one."""
    nodes = [node for node in (await client.list(NODES)).items if written_by_agents(node) or listed_by_agents(node)]
    if not nodes:
        return []
    pods = (await client.list(PODS, label_selector=_AGENTS)).items
    kept = {pod.spec.node_name for pod in pods if _stays(pod, namespace)}
    return [node for node in nodes if node.metadata.name not in kept]


def written_by_agents(node: Node) -> list[str]:
    """Their annotations of a node, and that of `purser cordon gpu`, which means nothing without them."""
    ours = (
        *(INVENTORY_ANNOTATION, KUBELET_ANNOTATION, DISPUTES_ANNOTATION),
        *(CORDONED_GPUS_ANNOTATION, HEALTH_CORDON_ANNOTATION),
    )
    return [key for key in ours if key in node.metadata.annotations]


def listed_by_agents(node: Node) -> list[str]:
    """The amounts listed by nodes that agents wrote to, or the scheduler for HAMi's device plugin; those of other nodes
    are not Purser's."""
    if not (written_by_agents(node) or REGISTER_ANNOTATION in node.metadata.annotations):
        return []
    return [name for name in AMOUNTS if name in node.status.capacity or name in node.status.allocatable]


async def strip_node(client: Client, node: Node) -> None:
    """Take it away. Raises `KubeError`."""
    name, status = node.metadata.name, dict[str, Any]()
    for at, taint in enumerate(node.spec.taints):
        if taint.key == UNHEALTHY_TAINT:
            path = f"/spec/taints/{at}"
            own = {"op": "test", "path": f"{path}/key", "value": UNHEALTHY_TAINT}
            await client.patch_json(NODES, name, [own, {"op": "remove", "path": path}])
            break
    if amounts := dict.fromkeys(listed_by_agents(node)):
        status |= {"capacity": amounts, "allocatable": amounts}
    if ours := [each.type for each in node.status.conditions if each.type in AGENT_CONDITIONS]:
        status["conditions"] = [{"type": each, "$patch": "delete"} for each in ours]
    if status:
        await client.patch_merge(NODES, name, {"status": status}, subresource="status", strategic=True)
    # Last: by them the node is found again, should this be cut short.
    patch: dict[str, Any] = {"metadata": {"annotations": dict.fromkeys(written_by_agents(node))}}
    if HEALTH_CORDON_ANNOTATION in node.metadata.annotations:
        patch["spec"] = {"unschedulable": None}
    await client.patch_merge(NODES, name, patch)


def _stays(pod: Pod, namespace: str) -> bool:
    is_leaving = OPERAND_LABEL in pod.metadata.labels and pod.metadata.namespace == namespace
    return not is_leaving and pod.status.phase not in _ENDED


# --- what a release leaves


CLEAN_UP_POLL_PERIOD_S = 0.5
_COMPONENT_SELECTOR = "app.kubernetes.io/name=purser,app.kubernetes.io/component in (agent,scheduler,operator)"


async def clean_up(client: Client, namespace: str, *, timeout_s: float, say: Callable[[str], None]) -> None:
    """Remove what an uninstalled release leaves behind; ``say`` is called for each object.

    The keys of grants stay as long as a pod with a grant does, so that a later installation can verify it. Raises
    `KubeError` where the release's pods have not gone in time: they would write it all again.
    """
    await _wait_until_pods_are_gone(client, namespace, timeout_s)
    for node in await nodes_to_strip(client, namespace):
        with contextlib.suppress(NotFoundError):  # it went by itself
            await strip_node(client, node)
            what = "annotations, conditions, taint and resources"
            say(f"removed Purser's {what} from node {node.metadata.name}")
    await _delete(client, LEASES, KUBE_SCHEDULER_LEASE, namespace, say)
    await _delete(client, SECRETS, TLS_SECRET, namespace, say)
    if granted := await _granted(client):
        say(f"kept the grant signing keys, which pods still need: {some(granted)}")
        return
    await _delete(client, SECRETS, GRANT_KEY_SECRET, namespace, say)
    for name in (GRANT_KEY_CONFIGMAP, CA_CONFIGMAP):
        await _delete(client, CONFIG_MAPS, name, namespace, say)


async def _wait_until_pods_are_gone(client: Client, namespace: str, timeout_s: float) -> None:
    names: list[str] = []
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                names = [
                    pod.metadata.name
                    for pod in (await client.list(PODS, namespace, label_selector=_COMPONENT_SELECTOR)).items
                ]
                if not names:
                    return
                await asyncio.sleep(CLEAN_UP_POLL_PERIOD_S)
    except TimeoutError:
        raise KubeError(f"pods still exist after {timeout_s:g} s: {some(names)}") from None


async def _granted(client: Client) -> list[str]:
    pods = (await client.list(PODS)).items
    return [
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in pods
        if GRANT_ANNOTATION in pod.metadata.annotations and pod.status.phase not in _ENDED
    ]


async def _delete(
    client: Client, resource: Resource[Any], name: str, namespace: str, say: Callable[[str], None]
) -> None:
    try:
        await client.delete(resource, name, namespace)
    except NotFoundError:
        return
    say(f"deleted {resource.kind} {name}")
