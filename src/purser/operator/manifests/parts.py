"""What manifests are put together from: metadata and owners, containers, DaemonSets, host paths, and the hashes
by which one sees what differs without comparing it."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from purser.core.names import UNHEALTHY_TAINT
from purser.operator.model import RenderedManifest, RenderInputs, RuntimeKind
from purser.operator.names import (
    APPLIED_HASH_ANNOTATION,
    FIELD_MANAGER,
    GROUP,
    KIND,
    LABEL_TRUE,
    MANAGED_BY_LABEL,
    OPERAND_LABEL,
    RUNTIME_LABEL,
    TEMPLATE_LABEL,
    VERSION,
)
from purser.operator.order import Operand
from purser.operator.policy.fields import EnvVar, Image, OperandSection, Resources, Toleration

Raw = dict[str, Any]
"""An object of the API, or a part of one."""


def field_of_pod(path: str) -> Raw:
    """A variable's source. Its version is said, too: a server that fills it in would keep it when the source goes."""
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


NODE_NAME = field_of_pod("spec.nodeName")
NAMESPACE = field_of_pod("metadata.namespace")
GPU_DISCOVERY = "gpu-discovery"
OPERATOR = "operator"
"""`RenderedManifest.operand` of what belongs to no operand."""
PRIVILEGED: Raw = {"privileged": True, "runAsUser": 0, "seLinuxOptions": {"level": "s0"}}
"""Of what works on the node. Root whatever user the image has: of others the kernel takes the capabilities, and folders
that kubelet makes on the host are root's. Level s0 is what SELinux asks of who writes files that all may read."""

_UNHEALTHY_TOLERATION = Toleration(key=UNHEALTHY_TAINT, operator="Exists", effect="NoSchedule")


class MountedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume, and where a container has it. Pods get the volumes that their containers mount, so that the two never
    disagree."""

    name: str
    """Of the volume: equal names in a pod are one volume."""
    at: str
    source: Raw
    read_only: bool = False
    propagation: str = ""
    sub_path: str = ""


class ContainerTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A container, and what the pod must have for it."""

    body: Raw
    mounts: tuple[MountedVolume, ...] = ()
    pull_secrets: tuple[str, ...] = ()


class PodTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a DaemonSet, as far as operands differ."""

    account: str = ""
    """ServiceAccount; empty: no token is mounted."""
    containers: Sequence[ContainerTemplate]
    init: Sequence[ContainerTemplate] = ()
    other_fields: Raw = {}
    """Other fields of its spec."""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class DaemonSetPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """On which nodes a DaemonSet runs, beside its operand's deploy label."""

    label: tuple[str, str] | None = None
    """A pool's or runtime's label; also in the selector of its pods."""
    nodes: dict[str, str] = {}
    """More labels that nodes must have."""
    affinity: Raw = {}
    on_delete: bool = False


DEFAULT_PLACEMENT = DaemonSetPlacement()
"""Wherever the operand's deploy label is."""


def host_path(
    name: str, path: str, at: str = "", *, type: str = "", propagation: str = "", read_only: bool = False
) -> MountedVolume:
    """A folder or file of the host; where nothing else is said, at its own path."""
    source = {"hostPath": {"path": path, **({"type": type} if type else {})}}
    return MountedVolume(name=name, at=at or path, source=source, propagation=propagation, read_only=read_only)


def config_map(name: str, map_name: str, at: str, *, key: str = "", optional: bool = False) -> MountedVolume:
    """A ConfigMap as a folder; with a key: that key as one file. Optional: pods start without it, too."""
    source: Raw = {"configMap": {"name": map_name, **({"optional": True} if optional else {})}}
    if key:
        source["configMap"]["items"] = [{"key": key, "path": key}]
    return MountedVolume(name=name, at=at, source=source, read_only=True, sub_path=key)


def config_files(name: str, map_name: str, folder: str, keys: Sequence[str]) -> list[MountedVolume]:
    """Each key of a ConfigMap as a file in a folder that keeps what it has."""
    source: Raw = {"configMap": {"name": map_name}}
    return [
        MountedVolume(name=name, at=f"{folder}/{key}", source=source, read_only=True, sub_path=key)
        for key in sorted(keys)
    ]


def container(
    name: str,
    image: str,
    section: Image,
    *,
    command: Sequence[str] = (),
    args: Sequence[str] = (),
    env: Mapping[str, str | Raw] | None = None,
    mounts: Sequence[MountedVolume] = (),
    privileged: bool = False,
    resources: Resources | None = None,
    other_fields: Raw | None = None,
) -> ContainerTemplate:
    """A container with what its section of the policy says; an `OperandSection` has arguments, variables, resources."""
    options = section if isinstance(section, OperandSection) else None
    given = section.image_pull_policy
    found: dict[str, Any] = {
        "name": name,
        "image": image,
        "imagePullPolicy": given,
        "command": list(command),
        "args": [*args, *(options.args if options else ())],
        "env": variables(env or {}, options.env if options else ()),
        "resources": quantities(resources or (options.resources if options else Resources())),
        "securityContext": PRIVILEGED if privileged else {},
        "volumeMounts": [_volume_mount(mount) for mount in mounts],
        **(other_fields or {}),
    }
    body = {field: value for field, value in found.items() if value}
    return ContainerTemplate(body=body, mounts=tuple(mounts), pull_secrets=section.image_pull_secrets)


def variables(own: Mapping[str, str | Raw], given: Iterable[EnvVar]) -> list[Raw]:
    """Environment variables; the user's win, and stand where Purser's stood."""
    merged = {**own, **{each.name: each.value for each in given}}
    return [
        {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": value}
        for name, value in merged.items()
    ]


def quantities(resources: Resources) -> Raw:
    """As a container carries them: texts, for server-side apply of old API servers takes no numbers here."""
    kinds = {"limits": resources.limits, "requests": resources.requests}
    return {kind: {name: str(value) for name, value in given.items()} for kind, given in kinds.items() if given}


def daemon_set(
    wanted: RenderInputs, operand: str, name: str, pod: PodTemplate, placement: DaemonSetPlacement = DEFAULT_PLACEMENT
) -> RenderedManifest:
    """An operand's DaemonSet. ``operand`` is an `Operand`, which runs where its deploy label is, or the name of what
    has no such label: `GPU_DISCOVERY`, ``mps-control-daemon``."""
    common = wanted.policy.spec.daemonsets
    selector = {OPERAND_LABEL: operand, **dict(filter(None, [placement.label]))}
    labels = {**common.labels, "app.kubernetes.io/name": "purser", **pod.labels, **selector}
    template = {
        "metadata": _meta(labels=labels, annotations={**common.annotations, **pod.annotations}),
        "spec": _pod_spec(wanted, operand, pod, placement),
    }
    spec = {"selector": {"matchLabels": selector}, "updateStrategy": _strategy(wanted, placement), "template": template}
    obj = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": wanted.namespace}}
    return owned(wanted, operand, {**obj, "spec": spec}, labels=labels, annotations=common.annotations)


def owned(
    wanted: RenderInputs,
    operand: str,
    obj: Raw,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> RenderedManifest:
    """An object with owner, labels and hashes."""
    policy = wanted.policy
    own = {"app.kubernetes.io/name": "purser", MANAGED_BY_LABEL: FIELD_MANAGER, OPERAND_LABEL: operand}
    metadata = {
        **obj["metadata"],
        **_meta(
            labels={**policy.spec.operator.labels, **(labels or {}), **own},
            annotations={**policy.spec.operator.annotations, **(annotations or {})},
        ),
        "ownerReferences": [
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": KIND,
                "name": policy.metadata.name,
                "uid": policy.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    return RenderedManifest(hashed({**obj, "metadata": metadata}), operand)


def daemon_sets_per_runtime(
    wanted: RenderInputs, build: Callable[[RuntimeKind], PodTemplate], operand: Operand, *, on_delete: bool = False
) -> list[RenderedManifest]:
    """One DaemonSet per kind of runtime: ``build(kind)`` makes its pod. ``on_delete``: pods are replaced only when they
    are deleted."""
    return [
        daemon_set(
            wanted,
            operand,
            f"purser-{operand}-{kind.label}",
            build(kind),
            DaemonSetPlacement(label=(RUNTIME_LABEL, kind.label), on_delete=on_delete),
        )
        for kind in wanted.runtimes
    ]


def runtime_class(wanted: RenderInputs, kind: RuntimeKind) -> Raw:
    """The fields of a pod that has all GPUs of its node. Docker knows no RuntimeClass: NVIDIA's is its default."""
    return {} if kind.runtime == "docker" else {"runtimeClassName": wanted.policy.spec.operator.runtime_class}


def host_network(section: OperandSection) -> Raw:
    """The fields of a pod for ``hostNetwork``."""
    return {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if section.host_network else {}


def _meta(*, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Raw:
    return {"labels": dict(labels), **({"annotations": dict(annotations)} if annotations else {})}


def _pod_spec(wanted: RenderInputs, operand: str, pod: PodTemplate, placement: DaemonSetPlacement) -> Raw:
    common = wanted.policy.spec.daemonsets
    everything = [*pod.init, *pod.containers]
    secrets = sorted({name for each in everything for name in each.pull_secrets})
    spec: Raw = {
        "serviceAccountName": pod.account,
        "automountServiceAccountToken": None if pod.account else False,
        "priorityClassName": common.priority_class_name,
        "nodeSelector": _node_selector(operand, placement),
        "affinity": placement.affinity,
        "tolerations": [_toleration(each) for each in _tolerations(wanted)],
        "securityContext": without_empty(common.pod_security_context),
        "imagePullSecrets": [{"name": name} for name in secrets],
        "initContainers": [each.body for each in pod.init],
        "containers": [each.body for each in pod.containers],
        "volumes": _volumes(everything),
        **pod.other_fields,
    }
    return {field: value for field, value in spec.items() if value or value is False}


def _node_selector(operand: str, placement: DaemonSetPlacement) -> Raw:
    selector = {"kubernetes.io/os": "linux"}
    if operand in list(Operand):
        selector[Operand(operand).deploy_label] = LABEL_TRUE
    return {**selector, **placement.nodes, **dict(filter(None, [placement.label]))}


def _strategy(wanted: RenderInputs, placement: DaemonSetPlacement) -> Raw:
    common = wanted.policy.spec.daemonsets
    if placement.on_delete or common.update_strategy == "OnDelete":
        return {"type": "OnDelete"}
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": common.rolling_update.max_unavailable}}


def _tolerations(wanted: RenderInputs) -> Iterable[Toleration]:
    """Also of the taint of Purser's agent: otherwise no operand comes back to a node while one of its GPUs is ill."""
    plugin = wanted.policy.spec.device_plugin
    taints = plugin.is_agent and plugin.taint_nodes
    return (*wanted.policy.spec.daemonsets.tolerations, *([_UNHEALTHY_TOLERATION] if taints else []))


def _toleration(toleration: msgspec.Struct) -> Raw:
    return {name: value for name, value in msgspec.to_builtins(toleration).items() if value not in ("", None)}


def without_empty(section: msgspec.Struct | None) -> Raw:
    """A section of a policy as objects of the API have it: fields that say nothing are left out."""
    return _given_fields(msgspec.json.decode(msgspec.json.encode(section))) if section is not None else {}


def _given_fields(value: Raw) -> Raw:
    kept = {name: _given_fields(each) if isinstance(each, dict) else each for name, each in value.items()}
    return {name: each for name, each in kept.items() if each not in ("", None, {}, [])}


def _volumes(containers: Iterable[ContainerTemplate]) -> list[Raw]:
    found = {mount.name: {"name": mount.name, **mount.source} for each in containers for mount in each.mounts}
    return list(found.values())


def _volume_mount(mount: MountedVolume) -> Raw:
    found = {
        "name": mount.name,
        "mountPath": mount.at,
        "readOnly": mount.read_only,
        "mountPropagation": mount.propagation,
        "subPath": mount.sub_path,
    }
    return {field: value for field, value in found.items() if value}


# --- hashes


def hashed(obj: Raw) -> Raw:
    """The object with its hashes: of its pod template, on pods and DaemonSet, and of what is applied.

    Equal content has equal hashes, in whatever order it was written.
    """
    if obj["kind"] == "DaemonSet":
        obj = _with_template_hash(obj)
    annotations = {**obj["metadata"].get("annotations", {}), APPLIED_HASH_ANNOTATION: digest(obj, 16)}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def digest(value: Any, length: int) -> str:
    """The beginning of the SHA-256 of a JSON value, independent of the order of keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:length]


def _with_template_hash(obj: Raw) -> Raw:
    metadata, spec = obj["metadata"], obj["spec"]
    template = spec["template"]
    mark = {TEMPLATE_LABEL: digest(template, 10)}
    pods = {**template["metadata"], "labels": {**template["metadata"]["labels"], **mark}}
    return {
        **obj,
        "metadata": {**metadata, "labels": {**metadata["labels"], **mark}},
        "spec": {**spec, "template": {**template, "metadata": pods}},
    }
