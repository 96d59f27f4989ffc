"""The resources that are served: a table of the built-in ones, and a registry to which CRDs add theirs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from . import schema
from .conversions import BUILTIN, Conversion
from .errors import Obj
from .schema import Schema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, eq=False)
class ServedResource:
    """One resource in one version."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    schema: Schema
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    """status, scale, binding, eviction, log, finalize, and those of `ephemeral` and `streams`."""
    verbs: tuple[str, ...] = ALL_VERBS
    storage: str = ""
    """Name of the collection the objects live in; versions of one resource share it."""
    conversion: Conversion | None = None
    """None where this is the stored version."""
    custom: bool = False
    columns: tuple[Obj, ...] = ()
    """A CRD's additionalPrinterColumns."""
    definition: Obj = field(default_factory=dict)
    """A CRD version's raw OpenAPI schema."""

    @property
    def api_version(self) -> str:
        """`apps/v1`; `v1` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def id(self) -> tuple[str, str, str]:
        """Group, version, plural."""
        return (self.group, self.version, self.plural)

    @property
    def list_kind(self) -> str:
        """Kind of its lists."""
        return self.kind + "List"


def _columns(text: str) -> Iterator[list[str]]:
    for line in text.strip().splitlines():
        yield [column.strip() for column in line.split("|")]


# ruff: noqa: E501  (one line per resource is the point of the table)
# group | version | plural | kind | scope | short names | categories | subresources | type
_BUILTIN = """
| v1 | namespaces | Namespace | cluster | ns | | status finalize | core.v1
| v1 | nodes | Node | cluster | no | | status | core.v1
| v1 | pods | Pod | namespaced | po | all | status binding eviction log ephemeralcontainers exec attach portforward | core.v1
| v1 | services | Service | namespaced | svc | all | status | core.v1
| v1 | endpoints | Endpoints | namespaced | ep | | | core.v1
| v1 | configmaps | ConfigMap | namespaced | cm | | | core.v1
| v1 | secrets | Secret | namespaced | | | | core.v1
| v1 | serviceaccounts | ServiceAccount | namespaced | sa | | | core.v1
| v1 | events | Event | namespaced | ev | | | core.v1
| v1 | persistentvolumes | PersistentVolume | cluster | pv | | status | core.v1
| v1 | persistentvolumeclaims | PersistentVolumeClaim | namespaced | pvc | | status | core.v1
| v1 | replicationcontrollers | ReplicationController | namespaced | rc | all | status scale | core.v1
| v1 | resourcequotas | ResourceQuota | namespaced | quota | | status | core.v1
| v1 | limitranges | LimitRange | namespaced | limits | | | core.v1
apps | v1 | deployments | Deployment | namespaced | deploy | all | status scale | apps.v1
apps | v1 | replicasets | ReplicaSet | namespaced | rs | all | status scale | apps.v1
apps | v1 | daemonsets | DaemonSet | namespaced | ds | all | status | apps.v1
apps | v1 | statefulsets | StatefulSet | namespaced | sts | all | status scale | apps.v1
apps | v1 | controllerrevisions | ControllerRevision | namespaced | | | | apps.v1
batch | v1 | jobs | Job | namespaced | | all | status | batch.v1
batch | v1 | cronjobs | CronJob | namespaced | cj | all | status | batch.v1
coordination.k8s.io | v1 | leases | Lease | namespaced | | | | coordination.v1
discovery.k8s.io | v1 | endpointslices | EndpointSlice | namespaced | | | | discovery.v1
events.k8s.io | v1 | events | Event | namespaced | ev | | | events.v1
networking.k8s.io | v1 | networkpolicies | NetworkPolicy | namespaced | netpol | | | networking.v1
node.k8s.io | v1 | runtimeclasses | RuntimeClass | cluster | | | | node.v1
policy | v1 | poddisruptionbudgets | PodDisruptionBudget | namespaced | pdb | | status | policy.v1
policy | v1beta1 | poddisruptionbudgets | PodDisruptionBudget | namespaced | pdb | | status | policy.v1
rbac.authorization.k8s.io | v1 | roles | Role | namespaced | | | | rbac.v1
rbac.authorization.k8s.io | v1 | rolebindings | RoleBinding | namespaced | | | | rbac.v1
rbac.authorization.k8s.io | v1 | clusterroles | ClusterRole | cluster | | | | rbac.v1
rbac.authorization.k8s.io | v1 | clusterrolebindings | ClusterRoleBinding | cluster | | | | rbac.v1
resource.k8s.io | v1 | deviceclasses | DeviceClass | cluster | | | | resource.v1
resource.k8s.io | v1 | devicetaintrules | DeviceTaintRule | cluster | | | status | resource.v1
resource.k8s.io | v1 | resourceclaims | ResourceClaim | namespaced | | | status | resource.v1
resource.k8s.io | v1 | resourceclaimtemplates | ResourceClaimTemplate | namespaced | | | | resource.v1
resource.k8s.io | v1 | resourceslices | ResourceSlice | cluster | | | | resource.v1
scheduling.k8s.io | v1 | priorityclasses | PriorityClass | cluster | pc | | | scheduling.v1
storage.k8s.io | v1 | storageclasses | StorageClass | cluster | sc | | | storage.v1
storage.k8s.io | v1 | csinodes | CSINode | cluster | | | | storage.v1
storage.k8s.io | v1 | csidrivers | CSIDriver | cluster | | | | storage.v1
storage.k8s.io | v1 | csistoragecapacities | CSIStorageCapacity | namespaced | | | | storage.v1
storage.k8s.io | v1 | volumeattachments | VolumeAttachment | cluster | | | status | storage.v1
admissionregistration.k8s.io | v1 | mutatingwebhookconfigurations | MutatingWebhookConfiguration | cluster | | api-extensions | | admissionregistration.v1
admissionregistration.k8s.io | v1 | validatingwebhookconfigurations | ValidatingWebhookConfiguration | cluster | | api-extensions | | admissionregistration.v1
apiextensions.k8s.io | v1 | customresourcedefinitions | CustomResourceDefinition | cluster | crd crds | api-extensions | status | apiextensions.v1
"""

# Reviews are answered, never stored.
_REVIEWS = """
authentication.k8s.io | v1 | tokenreviews | TokenReview | authentication.v1
authorization.k8s.io | v1 | selfsubjectaccessreviews | SelfSubjectAccessReview | authorization.v1
authorization.k8s.io | v1 | subjectaccessreviews | SubjectAccessReview | authorization.v1
"""


def _builtin() -> Iterator[ServedResource]:
    for group, version, plural, kind, scope, short, categories, subresources, types in _columns(_BUILTIN):
        yield ServedResource(
            group=group,
            version=version,
            plural=plural,
            kind=kind,
            namespaced=scope == "namespaced",
            schema=schema.builtin(f"{types}.{kind}"),
            singular=kind.lower(),
            short_names=tuple(short.split()),
            categories=tuple(categories.split()),
            subresources=tuple(subresources.split()),
            storage="events" if plural == "events" else f"{plural}.{group}" if group else plural,
            conversion=BUILTIN.get(f"{group}/{version}"),
        )
    for group, version, plural, kind, types in _columns(_REVIEWS):
        yield ServedResource(
            group, version, plural, kind, False, schema.builtin(f"{types}.{kind}"), kind.lower(), verbs=("create",)
        )


class Registry:
    """What is served now, by group, version and plural."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str, str], ServedResource] = {}
        for resource in _builtin():
            self.add(resource)

    def add(self, resource: ServedResource) -> None:
        """Serve a resource, or a newer definition of it."""
        self._resources[resource.id] = resource

    def remove(self, group: str, plural: str) -> None:
        """Stop serving every version of a resource."""
        for key in [key for key in self._resources if (key[0], key[2]) == (group, plural)]:
            del self._resources[key]

    def get(self, group: str, version: str, plural: str) -> ServedResource | None:
        """The resource, if it is served."""
        return self._resources.get((group, version, plural))

    def stored_as(self, storage: str) -> ServedResource | None:
        """The resource in whose version a collection is stored."""
        return next((r for r in self if r.storage == storage and r.conversion is None), None)

    def by_kind(self, api_version: str, kind: str) -> ServedResource | None:
        """Looked up the way an object names its type."""
        return next((r for r in self if r.api_version == api_version and r.kind == kind), None)

    def versions(self) -> dict[str, list[str]]:
        """Versions by group, in order of appearance; the core group is ""."""
        found: dict[str, list[str]] = {}
        for resource in self:
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return found

    def in_version(self, group: str, version: str) -> list[ServedResource]:
        """All resources of one API version."""
        return [r for r in self if (r.group, r.version) == (group, version)]

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(tuple(self._resources.values()))


def stored(resource: ServedResource, obj: Obj) -> Obj:
    """The object in the version it is kept in."""
    return resource.conversion.to_stored(obj) if resource.conversion else obj


def served(resource: ServedResource, obj: Obj) -> Obj:
    """A stored object in the version it is asked for."""
    return resource.conversion.from_stored(obj) if resource.conversion else obj


def get_path(obj: Any, path: str) -> Any:
    """The value at `spec.nodeName`-like paths; None where something on the way is missing."""
    for part in path.split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(part)
    return obj


def type_name(api_version: str, kind: str) -> str:
    """Short name of a built-in type, such as `core.v1.Pod`."""
    group = api_version.rpartition("/")[0]
    if kind == "DeleteOptions":
        return "meta.v1.DeleteOptions"
    return f"{group.split('.')[0] or 'core'}.v1.{kind}"
