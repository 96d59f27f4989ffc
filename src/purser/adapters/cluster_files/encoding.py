"""Objects as a Kubernetes List in JSON, one object in a line."""

import gzip
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from purser.adapters.objects import COUNTED_KINDS, ClusterObjects
from purser.kube.device_claims import DEVICE_CLASSES, RESOURCE_CLAIMS
from purser.kube.pod_details import SCHEDULED_PODS
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import NAMESPACES, NODES, Resource
from purser.kube.volumes import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from purser.kube.workloads import WORKLOADS


def encode_objects(objects: ClusterObjects, *, compressed: bool = False) -> bytes:
    """The file's bytes. ``compressed``: with gzip, the same bytes for the same objects."""
    body = b'{"apiVersion":"v1","kind":"List","metadata":{},"items":[\n' + b",\n".join(_items(objects)) + b"\n]}\n"
    return gzip.compress(body, mtime=0) if compressed else body


def _items(objects: ClusterObjects) -> Iterator[bytes]:
    listed: list[tuple[Resource[Any], Sequence[Any] | None]] = [
        (NODES, objects.nodes),
        (SCHEDULED_PODS, objects.pods),
        (RESOURCE_QUOTAS, objects.quotas),
        (NAMESPACES, objects.namespaces),
        (PERSISTENT_VOLUME_CLAIMS, objects.claims),
        (PERSISTENT_VOLUMES, objects.volumes),
        (RESOURCE_CLAIMS, objects.resource_claims),
        (DEVICE_CLASSES, objects.device_classes),
        *((resource, objects.workloads.get(resource.kind, ())) for resource in WORKLOADS),
    ]
    for resource, found in listed:
        head = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind})[:-1]
        for each in found or ():
            yield head + b"," + msgspec.json.encode(each)[1:]
        if found is not None and not found and resource in COUNTED_KINDS:
            yield msgspec.json.encode({"apiVersion": resource.api_version, "kind": f"{resource.kind}List", "items": []})
