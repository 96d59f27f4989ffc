"""What the API server knows about pods: their checks, which fields may change, quality of service, binding. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from purser.core.kubernetes.naming import is_label, is_subdomain
from purser.kube.pods import TERMINAL_PHASES

from . import amounts, ephemeral, quantity
from .errors import Cause, Obj
from .names import (
    LABEL,
    SUBDOMAIN,
    duplicate,
    duplicate_names,
    forbidden,
    invalid,
    is_qualified,
    required,
    unsupported,
)

_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)


def check_spec(spec: Obj, path: str) -> Iterator[Cause]:
    """Causes for a pod spec at `path` (`spec`, or `spec.template.spec`)."""
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for index, container in enumerate(ephemeral.of(spec)):
        yield from _check_container(container, f"{path}.ephemeralContainers[{index}]", spec)
    yield from ephemeral.check(spec, path)
    yield from _check_pod_level(spec, f"{path}.resources")
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            where = f"{path}.{kind}[{index}]"
            yield from _check_container(container, where, spec)
            if (name := container.get("name")) in seen:
                yield duplicate(f"{where}.name", name or "")
            seen.add(name or "")
    yield from _check_choices(spec, path)
    if (node := spec.get("nodeName")) and not is_subdomain(node):
        yield invalid(f"{path}.nodeName", node, SUBDOMAIN)
    for index, volume in enumerate(spec.get("volumes") or ()):
        if not volume.get("name"):
            yield required(f"{path}.volumes[{index}].name")


def check_template(spec: Obj, path: str) -> Iterator[Cause]:
    """Causes for the spec of a pod template."""
    yield from check_spec(spec, path)
    yield from ephemeral.check_new(spec, path, "ephemeral containers not allowed in pod template")


def _check_choices(spec: Obj, path: str) -> Iterator[Cause]:
    choices = {
        "restartPolicy": ("Always", "OnFailure", "Never"),
        "dnsPolicy": ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
    }
    for name, supported in choices.items():
        if name in spec and spec[name] not in supported:
            yield unsupported(f"{path}.{name}", spec[name], supported)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        where = f"{path}.tolerations[{index}]"
        if toleration.get("operator", "Equal") not in ("Equal", "Exists"):
            yield unsupported(f"{where}.operator", toleration["operator"], ("Equal", "Exists"))
        if not toleration.get("key") and toleration.get("operator") != "Exists":
            yield invalid(
                f"{where}.operator", toleration.get("operator", ""), "operator must be Exists when `key` is empty"
            )


def _check_container(container: Obj, where: str, spec: Obj) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield required(f"{where}.name")
    elif not is_label(name):
        yield invalid(f"{where}.name", name, LABEL)
    if not container.get("image"):
        yield required(f"{where}.image")
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            field = f"{where}.volumeMounts[{index}].name"
            yield Cause("FieldValueNotFound", field, f'Not found: "{mount.get("name", "")}"')
    yield from _check_mount_paths(container.get("volumeMounts") or (), f"{where}.volumeMounts")
    yield from duplicate_names(container.get("ports") or (), f"{where}.ports")
    yield from check_resources(container.get("resources") or {}, f"{where}.resources")


def _check_mount_paths(mounts: Sequence[Obj], path: str) -> Iterator[Cause]:
    places = [mount.get("mountPath", "") for mount in mounts]
    for index, place in enumerate(places):
        if place in places[:index]:
            yield invalid(f"{path}[{index}].mountPath", place, "must be unique")


def _check_pod_level(spec: Obj, where: str) -> Iterator[Cause]:
    """What a pod asks for as a whole (1.34): CPU, memory and huge pages, and no less than its containers ask for."""
    resources = spec.get("resources") or {}
    if resources.get("claims"):
        yield forbidden(f"{where}.claims", "claims may not be set for Resources at pod-level")
    yield from check_resources(resources, where, _check_pod_level_name)
    limits = resources.get("limits") or {}
    for index, container in enumerate(spec.get("containers") or ()):
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and quantity.parse(amount) > quantity.parse(limits[name]):
                why = f"must be less than or equal to pod limits of {limits[name]}"
                yield invalid(f"{where}.containers[{index}][{name}].limits", amount, why)
    asked = amounts.of_containers(spec, "requests")
    for name, amount in (resources.get("requests") or {}).items():
        if name in asked and quantity.parse(asked[name]) > quantity.parse(amount):
            why = f"must be greater than or equal to aggregate container requests of {asked[name]}"
            yield invalid(f"{where}.requests[{name}]", amount, why)


def fill_requests_as_a_whole(spec: Obj) -> None:
    """Done after admission since 1.37, when all containers are there (PodLevelResourcesFixDefaulting), in place."""
    if requests := _requests_as_a_whole(spec):
        spec["resources"]["requests"] = requests


def _requests_as_a_whole(spec: Obj) -> Obj:
    """What a pod asks for as a whole where it says its limits: what its containers ask for, else the limit."""
    resources = spec.get("resources") or {}
    limits = {name: limit for name, limit in (resources.get("limits") or {}).items() if amounts.is_pod_level(name)}
    if not limits:
        return dict(resources.get("requests") or {})
    asked = amounts.of_containers(spec, "requests")
    totals = {name: asked[name] for name in amounts.POD_LEVEL if _nonzero(asked.get(name))}
    return {**limits, **totals, **(resources.get("requests") or {})}


def _check_pod_level_name(name: str, where: str) -> Iterator[Cause]:
    if not amounts.is_pod_level(name):
        yield unsupported(where, name, ("cpu", "hugepages-", "memory"))


def _check_name(name: str, where: str) -> Iterator[Cause]:
    if not is_qualified(name) or (
        "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-")
    ):
        yield invalid(where, name, "must be a standard resource type or fully qualified")


def check_resources(
    resources: Obj, where: str, check_name: Callable[[str, str], Iterator[Cause]] = _check_name
) -> Iterator[Cause]:
    """Limits and requests: names, signs, whole numbers, and requests against limits."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, listed in (("limits", limits), ("requests", requests)):
        for name, amount in listed.items():
            yield from check_name(name, f"{where}.{kind}[{name}]")
            yield from _check_amount(name, amount, f"{where}.{kind}[{name}]")
    for name, amount in requests.items():
        if name in limits:
            yield from _check_request(name, amount, limits[name], f"{where}.requests")
        elif not _overcommit_allowed(name):
            yield required(f"{where}.limits", "Limit must be set for non overcommitable resources")


def _check_amount(name: str, amount: str, where: str) -> Iterator[Cause]:
    if quantity.parse(amount) < 0:
        yield invalid(where, amount, "must be greater than or equal to 0")
    if amounts.is_extended(name) and quantity.parse(amount) % 1:
        yield invalid(where, amount, "must be an integer")


def _check_request(name: str, request: str, limit: str, where: str) -> Iterator[Cause]:
    asked, allowed = quantity.parse(request), quantity.parse(limit)
    if asked != allowed and not _overcommit_allowed(name):
        yield invalid(where, request, f"must be equal to {name} limit of {limit}")
    elif asked > allowed:
        yield invalid(where, request, f"must be less than or equal to {name} limit of {limit}")


def _overcommit_allowed(name: str) -> bool:
    return not amounts.is_extended(name) and not name.startswith("hugepages-")


def check_update(new: Obj, old: Obj) -> Iterator[Cause]:
    """Which fields of a pod may change once it exists."""
    added, kept = new.get("tolerations") or [], old.get("tolerations") or []
    if any(toleration not in added for toleration in kept):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    gates = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if (name := gate.get("name")) not in gates:
            why = f"only deletion is allowed, but found new scheduling gate '{name}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", why)
    if gates:
        yield from _check_selector(new.get("nodeSelector") or {}, old.get("nodeSelector") or {})
    free = ("nodeSelector",) if gates else ()
    if _fixed(new, *free) != _fixed(old, *free):
        yield forbidden("spec", _IMMUTABLE)


def _check_selector(new: Obj, old: Obj) -> Iterator[Cause]:
    """As long as a pod is gated, its selector may become narrower. Its node affinity may, too, but not here."""
    if not old.items() <= new.items():
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", new, why)


def _fixed(spec: Obj, *others: str) -> Obj:
    """What may not change; ``others``: what may beside what always may."""
    free = ("tolerations", "activeDeadlineSeconds", "schedulingGates", *others)
    fixed = {key: value for key, value in spec.items() if key not in free}
    for kind in ("initContainers", "containers"):
        if kind in fixed:
            fixed[kind] = [{k: v for k, v in container.items() if k != "image"} for container in fixed[kind]]
    return fixed


def qos_class(spec: Obj) -> str:
    """Guaranteed, Burstable or BestEffort, by cpu and memory alone: those of the pod as a whole, where it says any."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    whole = spec.get("resources") or {}
    has_resources = bool(whole.get("requests") or whole.get("limits"))
    resources = [whole] if has_resources else [container.get("resources") or {} for container in containers]
    amounts = [
        _nonzero((each.get(kind) or {}).get(name))
        for each in resources
        for kind in ("requests", "limits")
        for name in ("cpu", "memory")
    ]
    if not any(amounts):
        return "BestEffort"
    return "Guaranteed" if all(_guaranteed(each) for each in resources) else "Burstable"


def _nonzero(amount: Any) -> bool:
    return amount is not None and quantity.parse(amount) > 0


def _guaranteed(resources: Obj) -> bool:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return all(
        _nonzero(limits.get(name)) and quantity.parse(limits[name]) == quantity.parse(requests.get(name, limits[name]))
        for name in ("cpu", "memory")
    )


def new_status(spec: Obj, time: str) -> Obj:
    """Of a pod that is created at this time."""
    status: Obj = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        why = {"reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}
        gated = {"type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": time, **why}
        status["conditions"] = [gated]
    return status


def bound(pod: Obj, binding: Obj, time: str) -> Obj:
    """The pod after its binding: node, annotations and the PodScheduled condition in one step."""
    metadata, status = dict(pod["metadata"]), dict(pod["status"])
    if extra := (binding.get("metadata") or {}).get("annotations"):
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **extra}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": time}
    others = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
    status["conditions"] = [*others, scheduled]
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": binding["target"]["name"]},
        "status": status,
    }


def check_binding(pod: Obj, binding: Obj) -> str:
    """Why the pod cannot be bound; empty when it can. The wording is the registry's
    (pkg/registry/core/pod/storage)."""
    name = pod["metadata"]["name"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := pod["spec"].get("nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if pod["spec"].get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def grace_seconds(pod: Obj, asked: int | None) -> int:
    """How long a deleted pod stays for its kubelet: nothing where no kubelet has it, or it has ended."""
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in TERMINAL_PHASES:
        return 0
    seconds = pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return max(0, int(seconds))
