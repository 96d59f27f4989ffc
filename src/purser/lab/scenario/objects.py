"""Manifests: read from files, found in the API, applied and deleted."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from purser.kube.client import Client
from purser.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    Raw,
    Resource,
    untyped_resource,
)
from purser.lab.controllers.disruption import BUDGETS
from purser.lab.controllers.workloads.deployment import DEPLOYMENTS
from purser.lab.controllers.workloads.job import JOBS
from purser.lab.controllers.workloads.replicaset import REPLICA_SETS
from purser.lab.scenario.spec import ScenarioError, read_documents
from purser.operator.policy import CLUSTER_POLICIES

_KNOWN_KINDS: tuple[Resource[Raw], ...] = (
    PODS.raw(),
    NODES.raw(),
    NAMESPACES.raw(),
    CONFIG_MAPS.raw(),
    SECRETS.raw(),
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    JOBS,
    BUDGETS,
    CLUSTER_POLICIES.raw(),
    untyped_resource("", "v1", "resourcequotas", "ResourceQuota"),
    untyped_resource(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
    ),
    untyped_resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False),
)
_OTHERS: tuple[Resource[Raw], ...] = (
    untyped_resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", namespaced=False),
)
"""Of kinds that are there twice: they are called as kubectl does, ``ClusterPolicy.nvidia.com``."""
_BY_KIND = {resource.kind: resource for resource in _KNOWN_KINDS}
_BY_WHOLE_NAME = {f"{resource.kind}.{resource.group}": resource for resource in _OTHERS}


def manifests(given: str | list[dict[str, Any]], folder: Path) -> list[Raw]:
    """The manifests of a step, from a file where it names one. Raises `ScenarioError`."""
    if not isinstance(given, str):
        found, where = list(given), "manifests"
    else:
        path = folder / given
        found, where = [body for body in read_documents(path) if body is not None], str(path)
    for body in found:
        if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
            raise ScenarioError(f"{where}: every manifest must be an object with metadata")
        resource_of(body, where)
    return found


def resource_of(body: Mapping[str, Any], where: str) -> Resource[Raw]:
    """Where an object of this kind lives. Raises `ScenarioError`."""
    group, _, _ = str(body.get("apiVersion")).rpartition("/")
    kind = str(body.get("kind"))
    return _BY_WHOLE_NAME.get(f"{kind}.{group}") or find_kind(kind, where)


def find_kind(kind: str, where: str) -> Resource[Raw]:
    """Where objects of this kind live. Raises `ScenarioError`."""
    known = {**_BY_KIND, **_BY_WHOLE_NAME}
    if kind not in known:
        raise ScenarioError(f"{where}: unsupported kind {kind}: must be one of {', '.join(sorted(known))}")
    return known[kind]


async def named(client: Client, kind: str, names: Iterable[str], namespace: str = "") -> list[Raw]:
    """Objects whose name is one of these, or fits a pattern with ``*``. Raises `ScenarioError` and `KubeError`."""
    resource = find_kind(kind, "kind")
    wanted = list(names)
    listed = await client.list(resource, (namespace or None) if resource.namespaced else None)
    return [each for each in listed.items if has_name(each, wanted)]


def has_name(obj: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether it is called so, or fits one of the patterns."""
    return any(fnmatchcase(obj["metadata"]["name"], pattern) for pattern in names)


async def apply(client: Client, bodies: Iterable[Raw]) -> None:
    """Server-side apply, one after another. Raises `KubeError`."""
    for body in bodies:
        resource = resource_of(body, "manifests")
        if resource.namespaced:
            body = {**body, "metadata": {"namespace": "default", **body["metadata"]}}
        await client.apply(resource, body, force=True)


_FIELD = re.compile(r"\$\{(\S+) (\S+) (\S+)\}")


async def filled(client: Client, value: Any) -> Any:
    """With ``${KIND NAME FIELD.OF.IT}`` in any text replaced by what stands there now. Raises `ScenarioError` and
    `KubeError`."""
    if isinstance(value, Mapping):
        return {key: await filled(client, each) for key, each in value.items()}
    if not isinstance(value, str) or not (found := _FIELD.search(value)):
        return value
    obj: Any = await client.get(find_kind(found[1], "patch.merge"), found[2])
    for part in found[3].split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    if not isinstance(obj, str):
        raise ScenarioError(f"patch.merge: {found[1]} {found[2]} has no string field {found[3]}")
    return value.replace(found[0], obj)
