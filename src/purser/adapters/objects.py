"""All objects that placing a pod depends on, read once: from an API server, or from a file of `kubectl get -o json` or
`purser snapshot`."""

import gzip
import io
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.kube.client import Client
from purser.kube.codec import codec_of
from purser.kube.device_claims import DEVICE_CLASSES, RESOURCE_CLAIMS, DeviceClass, ResourceClaim
from purser.kube.errors import DecodeError, ForbiddenError, NotFoundError
from purser.kube.object_events import ObservedEvent
from purser.kube.objects import Namespace, Node
from purser.kube.pod_details import SCHEDULED_PODS, ScheduledPod
from purser.kube.resource_quotas import RESOURCE_QUOTAS, ResourceQuota
from purser.kube.resources import NAMESPACES, NODES, Resource, key_of_ref
from purser.kube.volumes import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PersistentVolume, PersistentVolumeClaim
from purser.kube.workloads import WORKLOADS, Workload

T = TypeVar("T")

MAX_DUMP_BYTES = 1 << 30
"""Bytes of a file: 100 000 pods have some 600 MiB."""


class ClusterObjects(msgspec.Struct, frozen=True):
    """What there was at one moment."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[ScheduledPod, ...] = ()
    quotas: tuple[ResourceQuota, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    claims: tuple[PersistentVolumeClaim, ...] | None = None
    """None: not known, for they may not be read, or a file has none, which does not say whether they were asked for."""
    volumes: tuple[PersistentVolume, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] | None = None
    """None: not known, as with ``claims``."""
    device_classes: tuple[DeviceClass, ...] | None = None
    workloads: Mapping[str, tuple[Workload, ...]] = {}
    """By kind. Of a file: those that it has; of a cluster none, for only `purser.adapters.workloads` reads them."""
    problems: tuple[str, ...] = ()
    """A sentence on each object that is left out, and on each kind that may not be read."""
    warnings: Mapping[str, tuple[ObservedEvent, ...]] = {}
    """Events about pods, by uid, the last at the end. Of a cluster: those that `purser.adapters.pod_events` read; of a
    file none."""


class DumpError(ValueError):
    """A file that is not a list of objects; the message says what is wrong with it."""


GZIP_MAGIC = b"\x1f\x8b"


class _Dump(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


_dump_reader = JsonReader(_Dump, "the file", max_bytes=MAX_DUMP_BYTES, max_depth=None)
_kind_reader = JsonReader(_Kind, "an object", max_bytes=MAX_DUMP_BYTES, max_depth=None)
READ_KINDS: tuple[Resource[Any], ...] = (
    NODES,
    SCHEDULED_PODS,
    RESOURCE_QUOTAS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
)
"""What is read, in this order."""
OPTIONAL_KINDS: tuple[Resource[Any], ...] = (RESOURCE_QUOTAS, NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
"""Without permission to read them a pod is explained as if there were none, which is said."""
DEVICE_CLAIM_KINDS: tuple[Resource[Any], ...] = (RESOURCE_CLAIMS, DEVICE_CLASSES)
"""Read where pods name ResourceClaims; Kubernetes before 1.34 has neither."""
COUNTED_KINDS: tuple[Resource[Any], ...] = (PERSISTENT_VOLUME_CLAIMS, *DEVICE_CLAIM_KINDS)
"""Of which it matters whether there is none, or nobody asked for them. In a file, an empty list (kind
``PersistentVolumeClaimList`` and the like) in place of an object says that they were asked for."""


async def read_objects(client: Client, also: Sequence[Resource[Any]] = ()) -> ClusterObjects:
    """Of the whole cluster. ``also``: of `WORKLOADS` and `DEVICE_CLAIM_KINDS` those to read, too, as far as they may
    be; the latter are read anyway where a pod names a ResourceClaim. Raises `purser.kube.errors.KubeError`."""
    found: dict[str, tuple[Any, ...]] = {}
    problems: list[str] = []
    kinds = [*READ_KINDS, *also]
    for resource in kinds:
        try:
            listing = await client.list(resource)
        except ForbiddenError as error:
            if resource in READ_KINDS and resource not in OPTIONAL_KINDS:
                raise
            problems.append(f"{resource.plural} are skipped because you are not allowed to read them: {error}")
            continue
        except NotFoundError:
            if resource not in DEVICE_CLAIM_KINDS:
                raise
            continue
        if resource == SCHEDULED_PODS and any(pod.spec.resource_claims for pod in listing.items):
            kinds += (each for each in DEVICE_CLAIM_KINDS if each not in also)
        found[resource.kind] = tuple(listing.items)
        problems += [f"{resource.kind} {key_of_ref(ref)} cannot be read and is skipped" for ref in listing.left_out]
    return objects_by_kind(found, problems)


def objects_of_dump(text: bytes) -> ClusterObjects:
    """Of what ``kubectl get nodes,pods,resourcequotas,namespaces,pvc,pv -A -o json`` printed, and of Deployments and
    the like, where it has them; other kinds are passed over. Raises `DumpError` for what is not a list of objects."""
    try:
        items = _dump_reader.read(_uncompressed(text)).items
    except UnreadableError as error:
        raise DumpError(
            f"{error}: use the output of kubectl get nodes,pods -A -o json, or of purser snapshot"
        ) from error
    by_kind: dict[str, Resource[Any]] = {
        resource.kind: resource for resource in (*READ_KINDS, *DEVICE_CLAIM_KINDS, *WORKLOADS)
    }
    empty_lists = {f"{resource.kind}List": resource for resource in COUNTED_KINDS}
    found: dict[str, list[Any]] = {}
    problems: list[str] = []
    for place, item in enumerate(items):
        try:
            kind = _kind_reader.read(item).kind
            resource = by_kind.get(kind)
            if kind in empty_lists:
                found.setdefault(empty_lists[kind].kind, [])
            elif resource is not None:
                made = codec_of(resource).object(item)
                if made.metadata.name:
                    found.setdefault(resource.kind, []).append(made)
                else:
                    problems.append(f"object {place + 1} of the file is skipped: the {kind} has no name")
        except (UnreadableError, DecodeError) as error:
            problems.append(f"object {place + 1} of the file is skipped: {brief(error)}")
    return objects_by_kind({kind: tuple(each) for kind, each in found.items()}, problems)


def _uncompressed(text: bytes) -> bytes:
    """Of a file that gzip made, what is in it. Raises `UnreadableError`."""
    if not text.startswith(GZIP_MAGIC):
        return text
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(text)) as file:
            found = file.read(MAX_DUMP_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError(f"the file is damaged: {brief(error)}") from error
    return found


def objects_by_kind(found: Mapping[str, tuple[Any, ...]], problems: Sequence[str]) -> ClusterObjects:
    """Of objects of these kinds; a kind that is not there was not read."""
    return ClusterObjects(
        found.get(NODES.kind, ()),
        found.get(SCHEDULED_PODS.kind, ()),
        found.get(RESOURCE_QUOTAS.kind, ()),
        found.get(NAMESPACES.kind, ()),
        found.get(PERSISTENT_VOLUME_CLAIMS.kind),
        found.get(PERSISTENT_VOLUMES.kind, ()),
        found.get(RESOURCE_CLAIMS.kind),
        found.get(DEVICE_CLASSES.kind),
        {resource.kind: found[resource.kind] for resource in WORKLOADS if resource.kind in found},
        tuple(problems),
    )
