"""What NVIDIA's GPU operator was told in a cluster: read once, for a command that takes it over."""

from typing import Any

from purser.kube import Client, KubeError, NotFoundError, untyped

_KINDS = (("v1", "clusterpolicies", "ClusterPolicy"), ("v1alpha1", "nvidiadrivers", "NVIDIADriver"))


async def nvidia_objects(client: Client) -> list[dict[str, Any]]:
    """Its ClusterPolicies and NVIDIADrivers, whole. Raises `KubeError`, also where there is no ClusterPolicy."""
    found: list[dict[str, Any]] = []
    for version, plural, kind in _KINDS:
        resource = untyped("nvidia.com", version, plural, kind, namespaced=False)
        try:
            listed = (await client.list(resource)).items
        except NotFoundError:
            continue
        found.extend({**each, "apiVersion": resource.api_version, "kind": kind} for each in listed)
    if not any(each["kind"] == "ClusterPolicy" for each in found):
        raise KubeError("this cluster has no ClusterPolicy of nvidia.com/v1: name a file with one")
    return found
