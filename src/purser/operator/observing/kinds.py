"""Where the API serves what the operator owns or asks for."""

import msgspec

from purser.kube import Client, NotFoundError, Raw, Resource, untyped
from purser.operator.model import ObjectKey
from purser.operator.observing.objects import Identified

DAEMON_SETS = untyped("apps", "v1", "daemonsets", "DaemonSet")
SERVICE_MONITORS = untyped("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor")
PROMETHEUS_RULES = untyped("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule")

DEFINITIONS = untyped(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)

RUNTIME_CLASSES = untyped("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)

OWNED = (
    untyped("", "v1", "serviceaccounts", "ServiceAccount"),
    untyped("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    untyped("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    untyped("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    untyped("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    untyped("", "v1", "configmaps", "ConfigMap"),
    RUNTIME_CLASSES,
    untyped("", "v1", "services", "Service"),
    DAEMON_SETS,
)
"""Kinds of objects that the operator makes and that every API server since 1.20 serves.

A Namespace is not among them on purpose: what is owned is removed when it is no longer wanted.
"""

MONITORS = (SERVICE_MONITORS, PROMETHEUS_RULES)
"""Likewise, where the Prometheus operator's definitions are installed."""

RIVALS = Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", False, Identified)
"""Where NVIDIA's GPU operator is, or was, installed."""


class _ServedKind(msgspec.Struct, frozen=True):
    name: str = ""


class _ServedKinds(msgspec.Struct, frozen=True):
    """Discovery's answer about one version of a group."""

    resources: tuple[_ServedKind, ...] = ()


_BY_KIND = {(resource.api_version, resource.kind): resource for resource in (*OWNED, *MONITORS)}
_POLICY_V1_MINOR = 22  # PodDisruptionBudget v1 came with 1.21, Eviction v1 with 1.22: one rule for both


def resource_of(key: ObjectKey) -> Resource[Raw]:
    """Where objects of this key's kind are served. Raises LookupError for a kind that the operator does not own."""
    try:
        return _BY_KIND[key.api_version, key.kind]
    except KeyError:
        raise LookupError(f"{key.api_version} {key.kind} is no kind that the operator owns") from None


async def is_served(client: Client, resource: Resource[object]) -> bool:
    """Whether the server has this kind now: a custom resource's definition may come and go. Raises `KubeError`."""
    group = Resource(resource.group, resource.version, "", "APIResourceList", False, _ServedKinds)
    try:
        kinds = (await client.get(group, "")).resources
    except NotFoundError:
        return False
    return any(each.name == resource.plural for each in kinds)


async def policy_version(client: Client) -> str:
    """Which version of the group ``policy`` to speak with this server. Raises `KubeError`."""
    told = await client.version()
    digits = "".join(letter for letter in told.get("minor", "") if letter.isdigit())
    return "v1" if told.get("major", "1") != "1" or not digits or int(digits) >= _POLICY_V1_MINOR else "v1beta1"
