"""Values the API server fills in for built-in types (k8s.io/kubernetes, pkg/apis/*/v1/defaults.go), in place."""

import base64
from collections.abc import Callable, Iterable
from typing import Any

from .errors import Obj
from .jsonio import now


def _fill(obj: Obj, **values: Any) -> None:
    for key, value in values.items():
        obj.setdefault(key, value)


def pod(obj: Obj) -> None:
    """A pod, or nothing where there is no spec to default."""
    pod_spec(obj.setdefault("spec", {}))


def pod_spec(spec: Obj) -> None:
    """The spec of a pod or of a pod template."""
    _fill(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        securityContext={},
    )
    for container in _containers(spec):
        _container(container, host_network=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        _volume(volume)


def bare_pod(obj: Obj) -> None:
    """What is defaulted on pods but not in templates."""
    pod(obj)
    spec = obj["spec"]
    spec.setdefault("enableServiceLinks", True)
    for container in _containers(spec):
        _requests_from_limits(container["resources"])


def _containers(spec: Obj) -> Iterable[Obj]:
    return [each for kind in ("initContainers", "containers", "ephemeralContainers") for each in spec.get(kind) or ()]


def _container(container: Obj, *, host_network: bool) -> None:
    image = container.get("image", "")
    has_moving_tag = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
    _fill(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if has_moving_tag and "@" not in image else "IfNotPresent",
    )
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for variable in container.get("env") or ():
        _field_ref((variable.get("valueFrom") or {}).get("fieldRef"))
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _probe(container[probe])


def _requests_from_limits(resources: Obj) -> None:
    limits = resources.get("limits")
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _probe(probe: Obj) -> None:
    _fill(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if "httpGet" in probe:
        _fill(probe["httpGet"], path="/", scheme="HTTP")


def _field_ref(ref: Obj | None) -> None:
    if ref is not None:
        ref.setdefault("apiVersion", "v1")


def _volume(volume: Obj) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if source in volume:
            _fill(volume[source], defaultMode=420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _field_ref(item.get("fieldRef"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        _fill(source.get("serviceAccountToken", {}), expirationSeconds=3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _field_ref(item.get("fieldRef"))


def _fill_template(obj: Obj) -> Obj:
    spec: Obj = obj.setdefault("spec", {})
    template = spec.setdefault("template", {})
    pod(template)
    return spec


def deployment(obj: Obj) -> None:
    """apps/v1 Deployment."""
    spec = _fill_template(obj)
    _fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={})
    spec["strategy"].setdefault("type", "RollingUpdate")
    if spec["strategy"]["type"] == "RollingUpdate":
        _fill(spec["strategy"].setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")


def replica_set(obj: Obj) -> None:
    """apps/v1 ReplicaSet."""
    _fill(_fill_template(obj), replicas=1)


def replication_controller(obj: Obj) -> None:
    """v1 ReplicationController: without a selector its template's labels are it, and its own, too."""
    spec = _fill_template(obj)
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    _fill(spec, replicas=1, selector=dict(labels))
    obj["metadata"].setdefault("labels", dict(labels))


def daemon_set(obj: Obj) -> None:
    """apps/v1 DaemonSet."""
    spec = _fill_template(obj)
    _fill(spec, revisionHistoryLimit=10, updateStrategy={})
    spec["updateStrategy"].setdefault("type", "RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _fill(spec["updateStrategy"].setdefault("rollingUpdate", {}), maxUnavailable=1, maxSurge=0)


def stateful_set(obj: Obj) -> None:
    """apps/v1 StatefulSet."""
    spec = _fill_template(obj)
    _fill(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady", updateStrategy={})
    spec["updateStrategy"].setdefault("type", "RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _fill(spec["updateStrategy"].setdefault("rollingUpdate", {}), partition=0)


def job(obj: Obj) -> None:
    """batch/v1 Job. The server also selects the job's pods by its uid."""
    spec = _fill_template(obj)
    _fill(spec, backoffLimit=6, completionMode="NonIndexed", suspend=False)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)


def cron_job(obj: Obj) -> None:
    """batch/v1 CronJob."""
    spec: Obj = obj.setdefault("spec", {})
    _fill_template(spec.setdefault("jobTemplate", {}))
    _fill(
        spec,
        concurrencyPolicy="Allow",
        suspend=False,
        successfulJobsHistoryLimit=3,
        failedJobsHistoryLimit=1,
    )


def service(obj: Obj) -> None:
    """v1 Service."""
    spec = obj.setdefault("spec", {})
    _fill(spec, type="ClusterIP", sessionAffinity="None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def secret(obj: Obj) -> None:
    """v1 Secret: `stringData` is a write-only convenience that becomes `data`."""
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def namespace(obj: Obj) -> None:
    """v1 Namespace."""
    labels = obj["metadata"].setdefault("labels", {})
    if name := obj["metadata"].get("name"):
        labels["kubernetes.io/metadata.name"] = name


def node(obj: Obj) -> None:
    """v1 Node: what is not said to be reserved can be allocated."""
    status = obj.setdefault("status", {})
    obj.setdefault("spec", {})
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))


def persistent_volume(obj: Obj) -> None:
    """v1 PersistentVolume."""
    _fill(obj.setdefault("spec", {}), persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")


def persistent_volume_claim(obj: Obj) -> None:
    """v1 PersistentVolumeClaim."""
    _fill(obj.setdefault("spec", {}), volumeMode="Filesystem")


def device_taint_rule(obj: Obj) -> None:
    """resource.k8s.io/v1 DeviceTaintRule: its taint counts from now on."""
    obj.setdefault("spec", {}).setdefault("taint", {}).setdefault("timeAdded", now())


def webhook_configuration(obj: Obj) -> None:
    """Both kinds of webhook configuration."""
    for webhook in obj.get("webhooks") or ():
        _fill(
            webhook,
            failurePolicy="Fail",
            matchPolicy="Equivalent",
            timeoutSeconds=10,
            namespaceSelector={},
            objectSelector={},
        )
        if obj["kind"] == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in webhook.get("rules") or ():
            rule.setdefault("scope", "*")
        if "service" in (webhook.get("clientConfig") or {}):
            webhook["clientConfig"]["service"].setdefault("port", 443)


def custom_resource_definition(obj: Obj) -> None:
    """apiextensions/v1 CustomResourceDefinition."""
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    _fill(names, singular=kind.lower(), listKind=f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


def priority_class(obj: Obj) -> None:
    """scheduling.k8s.io/v1 PriorityClass."""
    _fill(obj, preemptionPolicy="PreemptLowerPriority")


def limit_range(obj: Obj) -> None:
    """v1 LimitRange: the limit of containers follows from `max`, the request from the limit, else from `min`."""
    for item in (obj.get("spec") or {}).get("limits") or ():
        if item.get("type") == "Container":
            limits = {**(item.get("max") or {}), **(item.get("default") or {})}
            requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
            item |= {key: each for key, each in (("default", limits), ("defaultRequest", requests)) if each}


def storage_class(obj: Obj) -> None:
    """storage.k8s.io/v1 StorageClass."""
    _fill(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def role_binding(obj: Obj) -> None:
    """rbac/v1 RoleBinding and ClusterRoleBinding."""
    if obj.get("roleRef"):
        obj["roleRef"].setdefault("apiGroup", "rbac.authorization.k8s.io")
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


BY_STORAGE: dict[str, Callable[[Obj], None]] = {
    "pods": bare_pod,
    "deployments.apps": deployment,
    "replicasets.apps": replica_set,
    "replicationcontrollers": replication_controller,
    "daemonsets.apps": daemon_set,
    "statefulsets.apps": stateful_set,
    "jobs.batch": job,
    "cronjobs.batch": cron_job,
    "services": service,
    "secrets": secret,
    "namespaces": namespace,
    "nodes": node,
    "limitranges": limit_range,
    "persistentvolumes": persistent_volume,
    "persistentvolumeclaims": persistent_volume_claim,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": webhook_configuration,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": webhook_configuration,
    "customresourcedefinitions.apiextensions.k8s.io": custom_resource_definition,
    "devicetaintrules.resource.k8s.io": device_taint_rule,
    "priorityclasses.scheduling.k8s.io": priority_class,
    "storageclasses.storage.k8s.io": storage_class,
    "rolebindings.rbac.authorization.k8s.io": role_binding,
    "clusterrolebindings.rbac.authorization.k8s.io": role_binding,
}
"""Defaulting by stored resource; a resource without an entry has no defaults."""
