"""The discovery documents: what groups, versions and resources there are."""

from . import streams
from .errors import Obj, no_such_path
from .resources import Registry, ServedResource
from .strategies import has_status

VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.2", "gitCommit": "", "gitTreeState": "clean"}
"""The version whose behaviour the server follows; it says so to clients that choose features by version."""


def version() -> Obj:
    """GET /version."""
    return {**VERSION, "buildDate": "2025-04-22T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64"}


def core_versions(address: str) -> Obj:
    """GET /api."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def groups(registry: Registry) -> Obj:
    """GET /apis."""
    found = [_group(name, versions) for name, versions in registry.versions().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def group(registry: Registry, name: str) -> Obj:
    """GET /apis/<group>."""
    versions = registry.versions().get(name)
    if not versions:
        raise no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: list[str]) -> Obj:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resources(registry: Registry, group_name: str, version_name: str) -> Obj:
    """GET /apis/<group>/<version> or /api/v1."""
    found = registry.in_version(group_name, version_name)
    if not found:
        raise no_such_path()
    listed = [entry for resource in found for entry in _entries(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].api_version,
        "resources": listed,
    }


def _entries(resource: ServedResource) -> list[Obj]:
    main: Obj = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    return [main, *(_subresource(resource, name) for name in resource.subresources)]


def _subresource(resource: ServedResource, name: str) -> Obj:
    entry: Obj = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
    match name:
        case "binding":
            return {**entry, "kind": "Binding", "verbs": ["create"]}
        case "eviction":
            return {**entry, "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
        case "log":
            return {**entry, "kind": "Pod", "verbs": ["get"]}
        case "finalize":
            return {**entry, "kind": "Namespace", "verbs": ["update"]}
        case "scale":
            scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
            return {**entry, **scale, "verbs": ["get", "patch", "update"]}
        case "exec" | "attach" | "portforward":
            return {**entry, "kind": streams.NAMES[name], "verbs": ["create", "get"]}
    assert has_status(resource)
    return {**entry, "kind": resource.kind, "verbs": ["get", "patch", "update"]}
