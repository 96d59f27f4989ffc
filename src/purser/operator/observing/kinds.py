"""Where the API serves what the operator asks for, and what a server has of it."""

from typing import Any

import msgspec
import structlog

from purser.kube import Client, KubeError, NotFoundError, Raw, Resource, untyped
from purser.kube.resources import NAMESPACES
from purser.operator.model import ObjectKey
from purser.operator.names import NFD_GROUP
from purser.operator.observing.objects import Identified
from purser.operator.owned import MONITORS, OWNED

log = structlog.get_logger("purser.operator")

DEFINITIONS = untyped(
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


_BY_KIND = {(resource.api_version, resource.kind): resource for resource in (*OWNED, *MONITORS)}


def resource_of(key: ObjectKey) -> Resource[Raw]:
    """Where objects of this key's kind are served. Raises LookupError for a kind that the operator does not own."""
    try:
        return _BY_KIND[key.api_version, key.kind]
    except KeyError:
        raise LookupError(f"{key.api_version} {key.kind} is no kind that the operator owns") from None


async def is_namespace(client: Client, name: str) -> bool:
    """Whether there is a namespace of this name; what cannot be read counts as there."""
    try:
        await client.get(NAMESPACES, name)
    except NotFoundError:
        return False
    except KubeError as error:
        log.warning("A namespace cannot be read, and counts as there", namespace=name, error=str(error))
    return True


def no_namespace(name: str) -> str:
    """That there is no such namespace, in one sentence with what to do."""
    make = f"kubectl create namespace {name}"
    return f"there is no namespace {name}: give the operator's with --namespace, or make this one ({make})"


async def is_served(client: Client, resource: Resource[Any]) -> bool:
    """Whether the server has this kind now: a custom resource's definition may come and go. Raises `KubeError`."""
    group = Resource(resource.group, resource.version, "", "APIResourceList", False, _ServedKinds)
    try:
        kinds = (await client.get(group, "")).resources
    except NotFoundError:
        return False
    return any(each.name == resource.plural for each in kinds)


async def takes_node_features(client: Client) -> bool:
    """Whether node-feature-discovery looks at NodeFeature objects: where it has them, but for OpenShift's, which is
    told not to. Raises `KubeError`."""
    return await is_served(client, NODE_FEATURES) and not await is_served(client, _OPENSHIFT)
