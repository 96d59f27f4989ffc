"""Which resources the API server serves; kinds whose definitions are installed and removed; and the objects of NVIDIA's
operator, for the command that imports them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Never

import msgspec
import structlog

from purser.kube import Client, Clock, Informer, KubeError, NotFoundError, Raw, Resource, untyped_resource
from purser.kube.backoff import Backoff
from purser.kube.errors import ForbiddenError
from purser.kube.objects import Identified
from purser.kube.racing import until
from purser.kube.resources import NAMESPACES, NODES
from purser.operator.manifests import MONITORS, OWNED_KINDS
from purser.operator.model import ObjectKey
from purser.operator.names import NFD_GROUP, WORKLOAD_LABEL

log = structlog.get_logger("purser.operator")

DEFINITIONS = untyped_resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)

RIVALS = Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", False, Identified)
"""Where NVIDIA's GPU operator is, or was, installed."""


NODE_FEATURES = Resource(NFD_GROUP, "v1alpha1", "nodefeatures", "NodeFeature", True, Identified)
_OPENSHIFT = Resource("config.openshift.io", "v1", "clusterversions", "ClusterVersion", False, Identified)


class _ServedKind(msgspec.Struct, frozen=True):
    name: str = ""


class _ServedKinds(msgspec.Struct, frozen=True):
    """Discovery's answer about one version of a group."""

    resources: tuple[_ServedKind, ...] = ()


_BY_KIND = {(resource.api_version, resource.kind): resource for resource in (*OWNED_KINDS, *MONITORS)}


def resource_of(key: ObjectKey) -> Resource[Raw]:
    """Where objects of this key's kind are served. Raises LookupError for a kind that the operator does not own."""
    try:
        return _BY_KIND[key.api_version, key.kind]
    except KeyError:
        raise LookupError(f"{key.api_version} {key.kind} is not a kind that the operator owns") from None


async def is_namespace(client: Client, name: str) -> bool:
    """Whether there is a namespace of this name; what cannot be read counts as there."""
    try:
        await client.get(NAMESPACES, name)
    except NotFoundError:
        return False
    except KubeError as error:
        log.warning("Cannot read a namespace, assuming that it exists", namespace=name, error=str(error))
    return True


def missing_namespace_text(name: str) -> str:
    """That there is no such namespace, in one sentence with what to do."""
    make = f"kubectl create namespace {name}"
    return f"namespace {name} does not exist: use --namespace to name the operator's namespace, or run {make}"


async def is_served(client: Client, resource: Resource[Any]) -> bool:
    """Whether the server has this kind now: a custom resource's definition may come and go. Raises `KubeError`."""
    group = Resource(resource.group, resource.version, "", "APIResourceList", False, _ServedKinds)
    try:
        kinds = (await client.get(group, "")).resources
    except NotFoundError:
        return False
    return any(each.name == resource.plural for each in kinds)


async def is_node_feature_api_used(client: Client) -> bool:
    """Whether node-feature-discovery looks at NodeFeature objects: where it has them, except for OpenShift's, which has
    that turned off. Raises `KubeError`."""
    return await is_served(client, NODE_FEATURES) and not await is_served(client, _OPENSHIFT)


# --- NVIDIA's operator


_KINDS = (("v1", "clusterpolicies", "ClusterPolicy"), ("v1alpha1", "nvidiadrivers", "NVIDIADriver"))


async def nvidia_objects(client: Client) -> list[dict[str, Any]]:
    """Its ClusterPolicies and NVIDIADrivers, and the nodes that say whom their GPUs are for; whole. Raises `KubeError`,
    also where no ClusterPolicy exists."""
    found: list[dict[str, Any]] = []
    for version, plural, kind in _KINDS:
        resource = untyped_resource("nvidia.com", version, plural, kind, namespaced=False)
        try:
            listed = (await client.list(resource)).items
        except NotFoundError:
            continue
        found.extend({**each, "apiVersion": resource.api_version, "kind": kind} for each in listed)
    if not any(each["kind"] == "ClusterPolicy" for each in found):
        raise KubeError("this cluster has no ClusterPolicy of nvidia.com/v1: specify a file that contains one")
    return [*found, *await _labelled_nodes(client)]


async def _labelled_nodes(client: Client) -> list[dict[str, Any]]:
    """None for those who may not list nodes: the policy is imported all the same."""
    try:
        nodes = (await client.list(NODES.raw(), label_selector=WORKLOAD_LABEL)).items
    except ForbiddenError:
        return []
    return [{**each, "apiVersion": "v1", "kind": "Node"} for each in nodes]


# --- kinds that come and go


KIND_RETRY_S = 1.0
"""The first pause after a failed check; pauses grow to `KIND_POLL_PERIOD_S`."""

KIND_POLL_PERIOD_S = 60.0
"""Between two checks whether a definition is installed: one small request, however many objects of the kind exist."""


async def poll_forever(look: Callable[[], Awaitable[None]], clock: Clock, looked: asyncio.Event) -> Never:
    """Call ``look`` periodically, and retry it when it raises `KubeError`; ``looked`` is set once it has succeeded."""
    backoff = Backoff(KIND_RETRY_S, KIND_POLL_PERIOD_S)
    while True:
        try:
            await look()
            looked.set()
            backoff.reset()
            pause = KIND_POLL_PERIOD_S
        except KubeError as error:
            pause = backoff.next()
            log.warning("Cannot determine what is installed", error=str(error), retry_in_s=round(pause, 1))
        await clock.sleep(pause)


async def follow_if_served(
    client: Client, informer: Informer[Any], clock: Clock, note: Callable[[bool], None]
) -> Never:
    """Follow a kind from when it is served until it is not; ``note`` is called after each check, once the kind was
    listed."""
    running: asyncio.Task[Never] | None = None
    try:
        while True:
            served = await _check_served(client, informer.resource, otherwise=running is not None)
            if served and running is None:
                running = asyncio.create_task(informer.run())
            elif not served and running is not None:
                await _end(running)
                running = None
            if served and not informer.health.synced:
                await until(informer.synced(), clock.sleep(KIND_POLL_PERIOD_S))
            if informer.health.synced or not served:
                note(served)
                await clock.sleep(KIND_POLL_PERIOD_S)
    finally:
        if running is not None:
            await _end(running)


async def _check_served(client: Client, resource: Resource[Any], otherwise: bool) -> bool:
    try:
        return await is_served(client, resource)
    except KubeError as error:
        log.warning("Cannot determine whether a kind is served", resource=resource.plural, error=str(error))
        return otherwise


async def _end(task: asyncio.Task[Never]) -> None:
    task.cancel()
    await asyncio.wait({task})
