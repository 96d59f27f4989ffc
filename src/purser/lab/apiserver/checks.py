"""What is wrong with an object, or with a change of it: the validation of the real server's registries. Pure."""

from collections.abc import Callable, Iterator
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from purser.core.kubernetes.naming import is_subdomain
from purser.core.kubernetes.selectors import OBJECT_OPERATORS
from purser.lab import cron

from . import ephemeral, limitrangechecks, pods, quotachecks, structural
from .errors import Cause, Obj
from .names import check_metadata, duplicate_names, forbidden, invalid, required, unsupported
from .resources import ServedResource, get_path


def check(resource: ServedResource, obj: Obj) -> list[Cause]:
    """Everything wrong with a whole object."""
    causes = list(check_metadata(obj["metadata"], resource.storage))
    if resource.custom:
        causes += structural.check(obj, resource.schema, "")
    elif checker := _CHECKS.get(resource.storage):
        causes += checker(obj)
    return causes


def check_create(resource: ServedResource, obj: Obj) -> list[Cause]:
    """Everything wrong with a new object."""
    causes = check(resource, obj)
    if resource.storage == "pods":
        causes += ephemeral.check_new(obj["spec"], "spec", "cannot be set on create")
    return causes


def check_update(resource: ServedResource, new: Obj, old: Obj, subresource: str = "") -> list[Cause]:
    """Changes that are not allowed."""
    causes = list(_check_finalizers(new["metadata"], old["metadata"]))
    if resource.storage == "pods":
        if subresource == ephemeral.SUBRESOURCE:
            causes += ephemeral.check_update(new["spec"], old["spec"])
        else:
            causes += pods.check_update(new["spec"], old["spec"])
    for path in _IMMUTABLE.get(resource.storage, ()):
        if get_path(old, path) != get_path(new, path):
            causes.append(invalid(path, _shown_value(get_path(new, path)), "field is immutable"))
    if resource.storage in ("configmaps", "secrets") and old.get("immutable"):
        causes += [forbidden(key, "field is immutable when `immutable` is set")
                   for key in ("data", "binaryData", "immutable") if old.get(key) != new.get(key)]  # fmt: skip
    return causes


def _check_finalizers(new: Obj, old: Obj) -> Iterator[Cause]:
    added = [each for each in new.get("finalizers") or () if each not in (old.get("finalizers") or ())]
    if added and old.get("deletionTimestamp"):
        listed = ", ".join(f'"{each}"' for each in added)
        why = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
        )
        yield forbidden("metadata.finalizers", why)


def _shown_value(value: Any) -> Any:
    return value if value is not None else "null"


_IMMUTABLE = {
    "deployments.apps": ("spec.selector",),
    "replicasets.apps": ("spec.selector",),
    "daemonsets.apps": ("spec.selector",),
    "statefulsets.apps": ("spec.selector", "spec.serviceName"),
    "jobs.batch": ("spec.template", "spec.selector"),
    "secrets": ("type",),
    "resourcequotas": ("spec.scopes",),
    "runtimeclasses.node.k8s.io": ("handler",),
    "priorityclasses.scheduling.k8s.io": ("value",),
    "rolebindings.rbac.authorization.k8s.io": ("roleRef",),
    "clusterrolebindings.rbac.authorization.k8s.io": ("roleRef",),
    "customresourcedefinitions.apiextensions.k8s.io": ("spec.names.plural", "spec.scope", "spec.group"),
}


def _check_pod(obj: Obj) -> Iterator[Cause]:
    yield from pods.check_spec(obj.get("spec") or {}, "spec")


def _check_workload(obj: Obj) -> Iterator[Cause]:
    spec = obj["spec"]
    selector = (spec.get("selector") or {}).get("matchLabels") or {}
    if not spec.get("selector"):
        yield required("spec.selector")
    labels = get_path(spec, "template.metadata.labels") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    template = spec["template"].get("spec") or {}
    claims = spec.get("volumeClaimTemplates") or ()
    for index, claim in enumerate(claims):
        if not get_path(claim, "metadata.name"):
            yield required(f"spec.volumeClaimTemplates[{index}].metadata.name")
    # Its pods have a volume of each claim's name, in place of the template's.
    volumes = [*(template.get("volumes") or ()), *({"name": get_path(each, "metadata.name")} for each in claims)]
    yield from pods.check_template({**template, "volumes": volumes} if claims else template, "spec.template.spec")
    policy = get_path(spec, "template.spec.restartPolicy")
    if policy != "Always":
        yield unsupported("spec.template.spec.restartPolicy", policy, ("Always",))
    if int(spec.get("replicas") or 0) < 0:
        yield invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0")


def _check_job(obj: Obj) -> Iterator[Cause]:
    template = obj["spec"]["template"].get("spec") or {}
    yield from pods.check_template(template, "spec.template.spec")
    if template.get("restartPolicy") == "Always":
        yield unsupported("spec.template.spec.restartPolicy", "Always", ("OnFailure", "Never"))


def _check_cron_job(obj: Obj) -> Iterator[Cause]:
    spec = obj["spec"]
    try:
        cron.parse(spec.get("schedule", ""))
    except ValueError as error:
        yield invalid("spec.schedule", spec.get("schedule", ""), str(error))
    if (zone := spec.get("timeZone")) is not None and not _is_time_zone(zone):
        yield invalid("spec.timeZone", zone, f"unknown time zone {zone}")
    if (policy := spec["concurrencyPolicy"]) not in _POLICIES:
        yield unsupported("spec.concurrencyPolicy", policy, _POLICIES)
    template = get_path(spec, "jobTemplate.spec.template.spec") or {}
    path = "spec.jobTemplate.spec.template.spec"
    yield from pods.check_template(template, path)
    if template.get("restartPolicy") == "Always":
        yield unsupported(f"{path}.restartPolicy", "Always", ("OnFailure", "Never"))


_POLICIES = ("Allow", "Forbid", "Replace")


def _is_time_zone(name: str) -> bool:
    try:
        return bool(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False


def _check_replication_controller(obj: Obj) -> Iterator[Cause]:
    spec = obj["spec"]
    labels = get_path(spec, "template.metadata.labels") or {}
    selector = spec.get("selector") or {}
    if not selector:
        yield required("spec.selector")
    if any(labels.get(key) != value for key, value in selector.items()):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from pods.check_template(spec["template"].get("spec") or {}, "spec.template.spec")


def _check_config_map(obj: Obj) -> Iterator[Cause]:
    for kind in ("data", "binaryData"):
        for key in obj.get(kind) or {}:
            if not key or len(key) > 253 or not all(c.isalnum() or c in "-_." for c in key):
                why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
                yield invalid(f"{kind}[{key}]", key, why)


def _check_webhooks(obj: Obj) -> Iterator[Cause]:
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        where = f"webhooks[{index}]"
        if webhook.get("name", "").count(".") < 2 or not is_subdomain(webhook.get("name", "")):
            yield invalid(
                f"{where}.name",
                webhook.get("name", ""),
                "should be a domain with at least three segments separated by dots",
            )
        if not webhook.get("sideEffects"):
            yield required(f"{where}.sideEffects", "must specify one of None, NoneOnDryRun")
        if not webhook.get("admissionReviewVersions"):
            yield required(f"{where}.admissionReviewVersions", "must specify one of v1, v1beta1")
        config = webhook.get("clientConfig") or {}
        if ("url" in config) == ("service" in config):
            yield required(f"{where}.clientConfig", "exactly one of url or service is required")
        for name in ("name", "namespace"):
            if "service" in config and not config["service"].get(name):
                yield required(f"{where}.clientConfig.service.{name}")
        for name in ("namespaceSelector", "objectSelector"):
            yield from _check_selector(webhook[name], f"{where}.{name}")
        if not 1 <= webhook["timeoutSeconds"] <= 30:
            yield invalid(
                f"{where}.timeoutSeconds",
                webhook["timeoutSeconds"],
                "the timeout value must be between 1 and 30 seconds",
            )


def _check_service(obj: Obj) -> Iterator[Cause]:
    ports = obj["spec"].get("ports") or ()
    yield from duplicate_names(ports, "spec.ports")
    for index, port in enumerate(ports):
        if len(ports) > 1 and not port.get("name"):
            yield required(f"spec.ports[{index}].name")
        if not 1 <= port.get("port", 0) <= 65535:
            where = f"spec.ports[{index}].port"
            yield invalid(where, port.get("port", 0), "must be between 1 and 65535, inclusive")


def _check_selector(selector: Obj, path: str) -> Iterator[Cause]:
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        if expression.get("operator") not in OBJECT_OPERATORS:
            where = f"{path}.matchExpressions[{index}].operator"
            yield invalid(where, expression.get("operator", ""), "not a valid selector operator")
        if not expression.get("key"):
            yield required(f"{path}.matchExpressions[{index}].key")


def _check_definition(obj: Obj) -> Iterator[Cause]:
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    plural, group = get_path(spec, "names.plural") or "", spec.get("group") or ""
    if name != f"{plural}.{group}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not spec["names"].get("kind"):
        yield required("spec.names.kind")
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        yield unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", len(versions), "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        if not get_path(version, "schema.openAPIV3Schema"):
            yield required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required")
        else:
            where = f"spec.versions[{index}].schema.openAPIV3Schema"
            yield from structural.check_schema(version["schema"]["openAPIV3Schema"], where)


_CHECKS: dict[str, Callable[[Obj], Iterator[Cause]]] = {
    "pods": _check_pod,
    "deployments.apps": _check_workload,
    "replicasets.apps": _check_workload,
    "daemonsets.apps": _check_workload,
    "statefulsets.apps": _check_workload,
    "jobs.batch": _check_job,
    "cronjobs.batch": _check_cron_job,
    "replicationcontrollers": _check_replication_controller,
    "services": _check_service,
    "resourcequotas": quotachecks.check,
    "limitranges": limitrangechecks.check,
    "configmaps": _check_config_map,
    "secrets": _check_config_map,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _check_webhooks,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _check_webhooks,
    "customresourcedefinitions.apiextensions.k8s.io": _check_definition,
}
