"""A trimmed cluster in which every name has a pseudonym, so that decisions on it are the same, up to names."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from purser.adapters.cluster_files import annotations
from purser.adapters.cluster_files.pseudonyms import NameKind, Pseudonyms
from purser.adapters.cluster_files.selectors import Found, SelectorNames, is_known, key_of, numeric_keys
from purser.adapters.nodes import InventoryError, inventory_of
from purser.adapters.objects import ClusterObjects
from purser.core.names import SCHEDULER_NAME
from purser.core.pod.manifest import ContainerEnvVar, HostPath, VolumeMount
from purser.core.vendors.catalogue import FAMILIES
from purser.kube.device_claims import (
    AllocationResult,
    DeviceClaimRequest,
    DeviceClaimSpec,
    DeviceClassRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from purser.kube.objects import (
    DEFAULT_SCHEDULER,
    MIRROR_POD_ANNOTATION,
    STATIC_POD_UID_ANNOTATION,
    Node,
    NodeCondition,
    ObjectMeta,
    OwnerReference,
)
from purser.kube.pod_details import (
    ClaimSource,
    ContainerPort,
    ContainerState,
    ContainerStatus,
    PodCondition,
    PodResourceClaim,
    PodResourceClaimStatus,
    ScheduledContainer,
    ScheduledPod,
    ScheduledPodSpec,
    ScheduledVolume,
)
from purser.kube.resource_quotas import ResourceQuota
from purser.kube.volumes import PersistentVolume, PersistentVolumeClaim
from purser.kube.workloads import POD_TEMPLATE_HASH, REPLICA_SETS, Workload

AnyCondition = TypeVar("AnyCondition", NodeCondition, PodCondition)

OMITTED_MESSAGE = "(omitted from the anonymized snapshot)"
"""In place of messages: they may quote anything."""

_SCHEDULERS = frozenset(
    {"", DEFAULT_SCHEDULER, SCHEDULER_NAME, "hami-scheduler", "volcano", "kai-scheduler", "gpushare-schd-extender"}
)
_ADDRESSES = frozenset({"", "0.0.0.0", "::", "127.0.0.1", "::1"})
# fmt: off
_PATHS = frozenset(
    {
        "", "bin", "boot", "cdi", "char", "containerd", "cwd", "dev", "docker", "dri", "dxg", "etc", "fs",
        "home", "host", "lib", "lib64", "ld.so.preload", "local", "log", "media", "mnt", "kubelet",
        "device-plugins", "driver", "opt", "overrideEnv", "pods", "pod-resources", "proc", "purser",
        "purser-mps", "root", "run", "self", "sbin", "shm", "srv", "sys", "tmp", "udmabuf", "usr", "var",
        "vgpu", "vgpulock", "containerd.sock", "docker.sock", "crio", "crio.sock", "1", "dmabuf_import_helper",
        "dma_heap", "net", "cgroup",
    }
)
# fmt: on
"""Parts of paths that say what a pod reaches of its node; of all others the place does not matter."""


def anonymize_objects(objects: ClusterObjects) -> tuple[ClusterObjects, Pseudonyms]:
    """The objects under pseudonyms. Kept: amounts, resources, models, times, labels and taints of Kubernetes, of
    vendors and of schedulers by their keys, and the values that are no names (`selectors`). Ids of GPUs are replaced,
    too. Notes on what could not be read are left out: they have names."""
    names = _NameCollector(objects)
    given = Pseudonyms(names.found())
    return _Anonymizer(names.selectors, given).objects(objects), given


class _NameCollector:
    """All that there are."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects
        constraints = [
            *(each.spec.affinity for each in objects.pods),
            *(each.spec.node_affinity.required for each in objects.volumes),
            *map(_allocation_selector, objects.resource_claims or ()),
        ]
        self.selectors = SelectorNames(frozenset(key for each in constraints for key in numeric_keys(each)))

    def found(self) -> Mapping[NameKind, set[str]]:
        names: defaultdict[NameKind, set[str]] = defaultdict(set)
        for kind, name in self._find_names():
            names[kind].add(name)
        return names

    def _find_names(self) -> Iterator[Found]:
        objects = self._objects
        for node in objects.nodes:
            yield NameKind.NODE, node.metadata.name
            yield from self._meta(node.metadata)
            yield from annotations.names_in(node.metadata.annotations, node.metadata.name)
            yield from ((NameKind.GPU, uuid) for uuid in _devices(node))
            for taint in node.spec.taints:
                yield from self.selectors.taint(taint.key, taint.value)
        for pod in objects.pods:
            yield from self._pod(pod)
        for quota in objects.quotas:
            yield NameKind.QUOTA, quota.metadata.name
            yield from self._meta(quota.metadata)
        for namespace in objects.namespaces:
            yield NameKind.NAMESPACE, namespace.metadata.name
            yield from self._meta(namespace.metadata)
        for claim in objects.claims or ():
            yield NameKind.CLAIM, claim.metadata.name
            yield NameKind.VOLUME, claim.spec.volume_name
            yield from self._meta(claim.metadata)
        for volume in objects.volumes:
            yield NameKind.VOLUME, volume.metadata.name
            yield from self._meta(volume.metadata)
            yield from self.selectors.replaced_selector(volume.spec.node_affinity.required)
        for resource_claim in objects.resource_claims or ():
            yield NameKind.RESOURCE_CLAIM, resource_claim.metadata.name
            yield from self._meta(resource_claim.metadata)
            yield from self.selectors.replaced_selector(_allocation_selector(resource_claim))
            for request in _class_requests(resource_claim):
                yield NameKind.DEVICE_CLASS, request.device_class_name
        for device_class in objects.device_classes or ():
            yield NameKind.DEVICE_CLASS, device_class.metadata.name
            yield from self._meta(device_class.metadata)
        for kind, workloads in objects.workloads.items():
            for each in workloads:
                hashed = each.metadata.labels.get(POD_TEMPLATE_HASH, "")
                yield NameKind.OWNER, _replica_set_base_name(kind, each.metadata.name, hashed)
                yield from self._meta(each.metadata)

    def _meta(self, meta: ObjectMeta) -> Iterator[Found]:
        yield NameKind.NAMESPACE, meta.namespace
        yield NameKind.UID, meta.uid
        yield from self.selectors.labels(meta.labels)
        for owner in meta.owner_references:
            yield NameKind.UID, owner.uid
            yield NameKind.OWNER, _replica_set_base_name(owner.kind, owner.name, meta.labels.get(POD_TEMPLATE_HASH, ""))

    def _pod(self, pod: ScheduledPod) -> Iterator[Found]:
        meta, spec = pod.metadata, pod.spec
        yield NameKind.POD, meta.name
        yield NameKind.NODE, spec.node_name
        yield NameKind.NODE, pod.status.nominated_node_name
        yield from self._meta(meta)
        yield from annotations.names_in(meta.annotations)
        yield from ((NameKind.UID, meta.annotations.get(each, "")) for each in _HASHES)
        yield from self.selectors.labels(spec.node_selector)
        for toleration in spec.tolerations:
            yield from self.selectors.taint(toleration.key, toleration.value)
        yield from self.selectors.replaced_selector(spec.affinity)
        yield from self.selectors.replaced_selector(spec.topology_spread_constraints)
        yield NameKind.SCHEDULER, spec.scheduler_name
        yield from ((NameKind.GATE, gate) for gate in _gates(spec.scheduling_gates))
        for volume in spec.volumes:
            yield NameKind.POD_VOLUME, volume.name
            if volume.persistent_volume_claim is not None:
                yield NameKind.CLAIM, volume.persistent_volume_claim.claim_name
            if volume.host_path is not None:
                yield from _parts(volume.host_path.path)
        for named in spec.resource_claims:
            yield NameKind.POD_CLAIM, named.name
            yield NameKind.RESOURCE_CLAIM, named.resource_claim_name
            yield NameKind.CLAIM_TEMPLATE, named.resource_claim_template_name
        for made in pod.status.resource_claim_statuses:
            yield NameKind.POD_CLAIM, made.name
            yield NameKind.RESOURCE_CLAIM, made.resource_claim_name
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            yield NameKind.CONTAINER, status.name
        for container in (*spec.containers, *spec.init_containers):
            yield NameKind.CONTAINER, container.name
            yield from ((NameKind.ADDRESS, port.host_ip) for port in container.ports)
            for mount in container.volume_mounts:
                yield NameKind.POD_VOLUME, mount.name
                yield from _parts(mount.mount_path)
            for device in container.volume_devices:
                yield from _parts(device.device_path)


OTHER_VALUE = "other"
"""In place of a variable's value that is none of the words below."""
_VARIABLE_WORDS = frozenset(
    {"", "0", "1", "all", "default", "disable", "false", "force", "no", "none", "off", "on", "true", "void", "yes"}
)
OTHER_OWNER = "CustomResource"
"""In place of kinds that are not Kubernetes' own: who defines one may name it after the company."""
_OWNERS = frozenset(
    {
        "",
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "Node",
        "Pod",
        "PodGroup",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    }
)
_HASHES = (MIRROR_POD_ANNOTATION, STATIC_POD_UID_ANNOTATION)
"""Annotations of static pods, by which kubelet knows them."""


def _devices(node: Node) -> list[str]:
    try:
        inventory = inventory_of(node, FAMILIES)
    except InventoryError:
        return []
    if inventory is None:
        return []
    return [*(each.uuid for each in inventory.devices), *(each.uuid for each in inventory.cut)]


def _allocation_selector(found: ResourceClaim) -> Any:
    allocation = found.status.allocation
    return None if allocation is None else allocation.node_selector


def _class_requests(found: ResourceClaim) -> Iterator[DeviceClassRequest]:
    for request in found.spec.devices.requests:
        yield from request.first_available if request.exactly is None else (request.exactly,)


def _gates(found: object) -> list[str]:
    gates = found if isinstance(found, list) else []
    return [str(each.get("name", "")) for each in gates if isinstance(each, dict)]


def _parts(path: str) -> Iterator[Found]:
    yield from ((NameKind.PATH, part) for part in path.split("/") if not _is_known_part(part))


def _is_known_part(part: str) -> bool:
    return part in _PATHS or part.startswith("nvidia")


def _contains_name(word: str) -> bool:
    """Whether a quota's word has a name in it, of a storage class or a kind: no decision on a pod reads these."""
    return word.startswith("count/") or ".storageclass.storage.k8s.io/" in word


def _replica_set_base_name(kind: str, name: str, hashed: str) -> str:
    """A ReplicaSet's name without the hash that a Deployment put behind its own."""
    return name.removesuffix(f"-{hashed}") if kind == REPLICA_SETS.kind and hashed else name


class _Anonymizer:
    """Puts the pseudonyms in."""

    def __init__(self, selectors: SelectorNames, given: Pseudonyms) -> None:
        self._selectors = selectors
        self._given = given

    def objects(self, found: ClusterObjects) -> ClusterObjects:
        return ClusterObjects(
            nodes=tuple(map(self._node, found.nodes)),
            pods=tuple(map(self._pod, found.pods)),
            quotas=tuple(map(self._quota, found.quotas)),
            namespaces=tuple(
                replace(each, metadata=self._meta(each.metadata, NameKind.NAMESPACE)) for each in found.namespaces
            ),
            claims=None if found.claims is None else tuple(map(self._claim, found.claims)),
            volumes=tuple(map(self._volume, found.volumes)),
            resource_claims=None
            if found.resource_claims is None
            else tuple(map(self._resource_claim, found.resource_claims)),
            device_classes=None
            if found.device_classes is None
            else tuple(
                replace(each, metadata=self._meta(each.metadata, NameKind.DEVICE_CLASS))
                for each in found.device_classes
            ),
            workloads={
                kind: tuple(self._workload(kind, each) for each in those) for kind, those in found.workloads.items()
            },
        )

    def _meta(self, meta: ObjectMeta, kind: NameKind, node: str = "") -> ObjectMeta:
        of = self._given.of
        hashed = meta.labels.get(POD_TEMPLATE_HASH, "")
        return replace(
            meta,
            name=of(kind, meta.name),
            namespace=of(NameKind.NAMESPACE, meta.namespace),
            uid=of(NameKind.UID, meta.uid),
            labels=self._selectors.replaced_labels(meta.labels, self._given),
            annotations=annotations.replace_names(meta.annotations, self._given, node),
            owner_references=tuple(self._owner(each, hashed) for each in meta.owner_references),
        )

    def _owner(self, owner: OwnerReference, hashed: str) -> OwnerReference:
        name = self._owner_name(owner.kind, owner.name, hashed)
        kind = owner.kind if owner.kind in _OWNERS else OTHER_OWNER
        return replace(owner, kind=kind, name=name, uid=self._given.of(NameKind.UID, owner.uid))

    def _owner_name(self, kind: str, name: str, hashed: str) -> str:
        base = _replica_set_base_name(kind, name, hashed)
        given = self._given.of(NameKind.OWNER, base)
        return given if base == name else f"{given}-{self._given.of(NameKind.VALUE, hashed)}"

    def _quota(self, found: ResourceQuota) -> ResourceQuota:
        hard = {word: amount for word, amount in found.spec.hard.items() if not _contains_name(word)}
        return replace(found, metadata=self._meta(found.metadata, NameKind.QUOTA), spec=replace(found.spec, hard=hard))

    def _node(self, node: Node) -> Node:
        taints = tuple(
            replace(
                each,
                key=key_of(each.key, self._given),
                value=self._selectors.replaced_taint_value(each.key, each.value, self._given),
            )
            for each in node.spec.taints
        )
        meta = self._meta(node.metadata, NameKind.NODE, node.metadata.name)
        status = replace(node.status, conditions=tuple(map(_condition, node.status.conditions)))
        return replace(node, metadata=meta, spec=replace(node.spec, taints=taints), status=status)

    def _pod(self, pod: ScheduledPod) -> ScheduledPod:
        status = replace(
            pod.status,
            nominated_node_name=self._given.of(NameKind.NODE, pod.status.nominated_node_name),
            message=_redact(pod.status.message),
            conditions=tuple(map(_condition, pod.status.conditions)),
            init_container_statuses=tuple(map(self._container_status, pod.status.init_container_statuses)),
            container_statuses=tuple(map(self._container_status, pod.status.container_statuses)),
            resource_claim_statuses=tuple(map(self._claim_status, pod.status.resource_claim_statuses)),
        )
        return replace(pod, metadata=self._meta(pod.metadata, NameKind.POD), spec=self._spec(pod.spec), status=status)

    def _container_status(self, found: ContainerStatus) -> ContainerStatus:
        given = self._given.of(NameKind.CONTAINER, found.name)
        return replace(found, name=given, state=_state(found.state), last_state=_state(found.last_state))

    def _spec(self, spec: ScheduledPodSpec) -> ScheduledPodSpec:
        given = self._given
        scheduler, gates = spec.scheduler_name, spec.scheduling_gates
        tolerations = tuple(
            replace(
                each,
                key=key_of(each.key, given),
                value=self._selectors.replaced_taint_value(each.key, each.value, given),
            )
            for each in spec.tolerations
        )
        return replace(
            spec,
            node_name=given.of(NameKind.NODE, spec.node_name),
            scheduler_name=scheduler if scheduler in _SCHEDULERS else given.of(NameKind.SCHEDULER, scheduler),
            node_selector=self._selectors.replaced_labels(spec.node_selector, given),
            tolerations=tolerations,
            affinity=self._selectors.replaced(spec.affinity, given),
            topology_spread_constraints=self._selectors.replaced(spec.topology_spread_constraints, given),
            scheduling_gates=[{"name": self._gate(each)} for each in _gates(gates)] if gates else gates,
            containers=tuple(map(self._container, spec.containers)),
            init_containers=tuple(map(self._container, spec.init_containers)),
            volumes=tuple(map(self._pod_volume, spec.volumes)),
            resource_claims=tuple(map(self._pod_claim, spec.resource_claims)),
        )

    def _gate(self, name: str) -> str:
        return name if "/" in name and is_known(name) else self._given.of(NameKind.GATE, name)

    def _container(self, found: ScheduledContainer) -> ScheduledContainer:
        return replace(
            found,
            name=self._given.of(NameKind.CONTAINER, found.name),
            env=tuple(map(self._variable, found.env)),
            volume_mounts=tuple(map(self._mount, found.volume_mounts)),
            volume_devices=tuple(
                replace(each, device_path=self._path(each.device_path)) for each in found.volume_devices
            ),
            ports=tuple(map(self._port, found.ports)),
        )

    def _variable(self, found: ContainerEnvVar) -> ContainerEnvVar:
        known = found.value.strip().lower() in _VARIABLE_WORDS
        return found if known else replace(found, value=OTHER_VALUE)

    def _mount(self, found: VolumeMount) -> VolumeMount:
        return replace(
            found,
            name=self._given.of(NameKind.POD_VOLUME, found.name),
            mount_path=self._path(found.mount_path),
            sub_path="sub" if found.sub_path else "",
            sub_path_expr="sub" if found.sub_path_expr else "",
        )

    def _port(self, found: ContainerPort) -> ContainerPort:
        ip = found.host_ip
        return replace(found, host_ip=ip if ip in _ADDRESSES else self._given.of(NameKind.ADDRESS, ip))

    def _pod_volume(self, found: ScheduledVolume) -> ScheduledVolume:
        claim, path = found.persistent_volume_claim, found.host_path
        return replace(
            found,
            name=self._given.of(NameKind.POD_VOLUME, found.name),
            host_path=None if path is None else HostPath(self._path(path.path)),
            persistent_volume_claim=None
            if claim is None
            else ClaimSource(self._given.of(NameKind.CLAIM, claim.claim_name)),
        )

    def _path(self, path: str) -> str:
        parts = path.split("/")
        return "/".join(part if _is_known_part(part) else self._given.of(NameKind.PATH, part) for part in parts)

    def _claim(self, found: PersistentVolumeClaim) -> PersistentVolumeClaim:
        bound = replace(found.spec, volume_name=self._given.of(NameKind.VOLUME, found.spec.volume_name))
        return replace(found, metadata=self._meta(found.metadata, NameKind.CLAIM), spec=bound)

    def _volume(self, found: PersistentVolume) -> PersistentVolume:
        affinity = found.spec.node_affinity
        required = self._selectors.replaced(affinity.required, self._given)
        spec = replace(found.spec, node_affinity=replace(affinity, required=required))
        return replace(found, metadata=self._meta(found.metadata, NameKind.VOLUME), spec=spec)

    def _pod_claim(self, found: PodResourceClaim) -> PodResourceClaim:
        of = self._given.of
        return PodResourceClaim(
            of(NameKind.POD_CLAIM, found.name),
            of(NameKind.RESOURCE_CLAIM, found.resource_claim_name),
            of(NameKind.CLAIM_TEMPLATE, found.resource_claim_template_name),
        )

    def _claim_status(self, found: PodResourceClaimStatus) -> PodResourceClaimStatus:
        of = self._given.of
        return PodResourceClaimStatus(
            of(NameKind.POD_CLAIM, found.name), of(NameKind.RESOURCE_CLAIM, found.resource_claim_name)
        )

    def _resource_claim(self, found: ResourceClaim) -> ResourceClaim:
        requests = tuple(
            DeviceClaimRequest(
                request.exactly and self._class_request(request.exactly),
                tuple(map(self._class_request, request.first_available)),
            )
            for request in found.spec.devices.requests
        )
        allocation = found.status.allocation
        selector = self._selectors.replaced(_allocation_selector(found), self._given)
        return ResourceClaim(
            self._meta(found.metadata, NameKind.RESOURCE_CLAIM),
            ResourceClaimSpec(DeviceClaimSpec(requests)),
            ResourceClaimStatus(allocation and AllocationResult(selector)),
        )

    def _class_request(self, found: DeviceClassRequest) -> DeviceClassRequest:
        return DeviceClassRequest(self._given.of(NameKind.DEVICE_CLASS, found.device_class_name))

    def _workload(self, kind: str, found: Workload) -> Workload:
        hashed = found.metadata.labels.get(POD_TEMPLATE_HASH, "")
        name = self._owner_name(kind, found.metadata.name, hashed)
        meta = replace(self._meta(found.metadata, NameKind.OWNER), name=name)
        status = replace(found.status, conditions=tuple(map(_condition, found.status.conditions)))
        return replace(found, metadata=meta, status=status)


def _condition(found: AnyCondition) -> AnyCondition:
    return replace(found, message=_redact(found.message))


def _state(found: ContainerState) -> ContainerState:
    waiting, terminated = found.waiting, found.terminated
    return ContainerState(
        waiting and replace(waiting, message=_redact(waiting.message)),
        terminated and replace(terminated, message=_redact(terminated.message)),
    )


def _redact(message: str) -> str:
    return OMITTED_MESSAGE if message else ""
