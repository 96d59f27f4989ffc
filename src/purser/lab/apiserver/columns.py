"""Columns of the built-in kinds, as `kubectl get` shows them (pkg/printers/internalversion).

Pure but for the clock that ages need.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .errors import Obj
from .jsonio import parse_time
from .resources import get_path

Cell = Any


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column; `wide` ones are shown by `-o wide` only."""

    name: str
    value: Callable[[Obj], Cell]
    type: str = "string"
    wide: bool = False

    def definition(self) -> Obj:
        """Its `columnDefinitions` entry."""
        form = "name" if self.name == "Name" else ""
        return {
            "name": self.name, "type": self.type, "format": form, "description": "", "priority": int(self.wide),
        }  # fmt: skip


def age(text: object) -> str:
    """Time since then, as kubectl shortens it: 5s, 3m20s, 4h, 2d3h, 30d, 2y."""
    moment = parse_time(text)
    if moment is None:
        return "<unknown>"
    return duration(int((datetime.now(UTC) - moment).total_seconds()))


def duration(seconds: int) -> str:
    """k8s.io/apimachinery/pkg/util/duration.HumanDuration."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(0, seconds)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _value_at(path: str, default: Cell = "<none>") -> Callable[[Obj], Cell]:
    def value(obj: Obj) -> Cell:
        found = get_path(obj, path)
        return default if found in (None, "") else found

    return value


def _used_amounts(quota: Obj, *, limits: bool) -> str:
    """Of a quota's lines over limits, or of all others: used and hard."""
    hard, used = (get_path(quota, f"status.{each}") or {} for each in ("hard", "used"))
    names = [name for name in sorted(hard) if name.startswith("limits.") == limits]
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)


def _count(path: str) -> Callable[[Obj], Cell]:
    return lambda obj: len(get_path(obj, path) or ())


def _age_of(path: str) -> Callable[[Obj], Cell]:
    return lambda obj: age(get_path(obj, path))


def _labels(path: str) -> Callable[[Obj], Cell]:
    return lambda obj: ",".join(f"{k}={v}" for k, v in sorted((get_path(obj, path) or {}).items())) or "<none>"


def _images(path: str) -> list[TableColumn]:
    def joined(key: str) -> Callable[[Obj], Cell]:
        return lambda obj: ",".join(str(container.get(key, "")) for container in get_path(obj, path) or ())

    return [TableColumn("Containers", joined("name"), wide=True), TableColumn("Images", joined("image"), wide=True)]


AGE_COLUMN = TableColumn("Age", _age_of("metadata.creationTimestamp"))


def _pod_statuses(pod: Obj, kind: str = "containerStatuses") -> list[Obj]:
    return get_path(pod, f"status.{kind}") or []


def _pod_ready(pod: Obj) -> str:
    total = len(get_path(pod, "spec.containers") or ())
    return f"{sum(bool(status.get('ready')) for status in _pod_statuses(pod))}/{total}"


def _pod_status(pod: Obj) -> str:
    reason = get_path(pod, "status.reason") or get_path(pod, "status.phase") or "Unknown"
    if any(each.get("reason") == "SchedulingGated" for each in get_path(pod, "status.conditions") or ()):
        reason = "SchedulingGated"
    initializing = _init_status(pod)
    reason = initializing or _container_reason(pod) or reason
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if get_path(pod, "status.reason") == "NodeLost" else "Terminating"
    return str(reason)


def _init_status(pod: Obj) -> str:
    total = len(get_path(pod, "spec.initContainers") or ())
    for index, status in enumerate(_pod_statuses(pod, "initContainerStatuses")):
        state = status.get("state") or {}
        ended = state.get("terminated")
        if (ended and ended.get("exitCode") == 0) or status.get("started"):
            continue
        why = (ended or {}).get("reason") or (state.get("waiting") or {}).get("reason")
        return f"Init:{why}" if why and why != "PodInitializing" else f"Init:{index}/{total}"
    return ""


def _container_reason(pod: Obj) -> str:
    reason, running = "", False
    for status in reversed(_pod_statuses(pod)):
        state = status.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
        running = running or bool(status.get("ready") and "running" in state)
    if reason == "Completed" and running:
        return "Running"
    return reason


def _pod_restarts(pod: Obj) -> str:
    return str(sum(int(status.get("restartCount", 0)) for status in _pod_statuses(pod)))


def _readiness_gates(pod: Obj) -> str:
    gates = get_path(pod, "spec.readinessGates") or []
    true = {c.get("type") for c in get_path(pod, "status.conditions") or () if c.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}" if gates else "<none>"


_POD = [
    TableColumn("Ready", _pod_ready),
    TableColumn("Status", _pod_status),
    TableColumn("Restarts", _pod_restarts),
    AGE_COLUMN,
    TableColumn("IP", _value_at("status.podIP"), wide=True),
    TableColumn("Node", _value_at("spec.nodeName"), wide=True),
    TableColumn("Nominated Node", _value_at("status.nominatedNodeName"), wide=True),
    TableColumn("Readiness Gates", _readiness_gates, wide=True),
]


def _node_status(node: Obj) -> str:
    ready = next((c.get("status") for c in get_path(node, "status.conditions") or () if c.get("type") == "Ready"), None)
    status = {"True": "Ready", None: "Unknown"}.get(ready, "NotReady")
    return status + (",SchedulingDisabled" if get_path(node, "spec.unschedulable") else "")


def _node_roles(node: Obj) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    roles |= {labels["kubernetes.io/role"]} if labels.get("kubernetes.io/role") else set()
    return ",".join(sorted(roles)) or "<none>"


def _node_address(kind: str) -> Callable[[Obj], Cell]:
    def value(node: Obj) -> Cell:
        addresses = get_path(node, "status.addresses") or ()
        return next((address.get("address") for address in addresses if address.get("type") == kind), "<none>")

    return value


_NODE = [
    TableColumn("Status", _node_status),
    TableColumn("Roles", _node_roles),
    AGE_COLUMN,
    TableColumn("Version", _value_at("status.nodeInfo.kubeletVersion", "")),
    TableColumn("Internal-IP", _node_address("InternalIP"), wide=True),
    TableColumn("External-IP", _node_address("ExternalIP"), wide=True),
    TableColumn("OS-Image", _value_at("status.nodeInfo.osImage", "<unknown>"), wide=True),
    TableColumn("Kernel-Version", _value_at("status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
    TableColumn("Container-Runtime", _value_at("status.nodeInfo.containerRuntimeVersion", "<unknown>"), wide=True),
]


def _of(done: str, wanted: str) -> Callable[[Obj], Cell]:
    return lambda obj: f"{get_path(obj, done) or 0}/{get_path(obj, wanted) or 0}"


def _event_seen(event: Obj) -> str:
    series = get_path(event, "series.lastObservedTime")
    return age(series or event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp"))


def _event_object(event: Obj) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_source(event: Obj) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    parts = (source.get("component") or event.get("reportingComponent"), source.get("host"))
    return ", ".join(str(part) for part in parts if part)


_EVENT = [
    TableColumn("Last Seen", _event_seen),
    TableColumn("Type", _value_at("type", "")),
    TableColumn("Reason", _value_at("reason", "")),
    TableColumn("Object", _event_object),
    TableColumn("Subobject", _value_at("involvedObject.fieldPath", ""), wide=True),
    TableColumn("Source", _event_source, wide=True),
    TableColumn("Message", lambda event: str(event.get("message") or event.get("note") or "").strip()),
    TableColumn("First Seen", _age_of("firstTimestamp"), wide=True),
    TableColumn("Count", _value_at("count", 1), "integer", wide=True),
]


def _ports(service: Obj) -> str:
    ports = get_path(service, "spec.ports") or ()
    return ",".join(_port(port) for port in ports) or "<none>"


def _port(port: Obj) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


_NUMBER = "integer"
BY_STORAGE: dict[str, list[TableColumn]] = {
    "pods": _POD,
    "nodes": _NODE,
    "events": _EVENT,
    "namespaces": [TableColumn("Status", _value_at("status.phase")), AGE_COLUMN],
    "configmaps": [
        TableColumn("Data", lambda o: len(o.get("data") or ()) + len(o.get("binaryData") or ())),
        AGE_COLUMN,
    ],
    "secrets": [TableColumn("Type", _value_at("type")), TableColumn("Data", _count("data"), _NUMBER), AGE_COLUMN],
    "serviceaccounts": [TableColumn("Secrets", _count("secrets"), _NUMBER), AGE_COLUMN],
    "services": [
        TableColumn("Type", _value_at("spec.type")),
        TableColumn("Cluster-IP", _value_at("spec.clusterIP")),
        TableColumn("External-IP", _value_at("spec.externalName")),
        TableColumn("Port(s)", _ports),
        AGE_COLUMN,
        TableColumn("Selector", _labels("spec.selector"), wide=True),
    ],
    "leases.coordination.k8s.io": [TableColumn("Holder", _value_at("spec.holderIdentity", "")), AGE_COLUMN],
    "devicetaintrules.resource.k8s.io": [
        TableColumn("Key", _value_at("spec.taint.key", "")),
        TableColumn("Value", _value_at("spec.taint.value", "")),
        TableColumn("Effect", _value_at("spec.taint.effect", "")),
        TableColumn("TimeAdded", lambda o: age(get_path(o, "spec.taint.timeAdded"))),
        AGE_COLUMN,
    ],
    "deployments.apps": [
        TableColumn("Ready", _of("status.readyReplicas", "spec.replicas")),
        TableColumn("Up-to-date", _value_at("status.updatedReplicas", 0), _NUMBER),
        TableColumn("Available", _value_at("status.availableReplicas", 0), _NUMBER),
        AGE_COLUMN,
        *_images("spec.template.spec.containers"),
        TableColumn("Selector", _labels("spec.selector.matchLabels"), wide=True),
    ],
    "replicasets.apps": [
        TableColumn("Desired", _value_at("spec.replicas", 0), _NUMBER),
        TableColumn("Current", _value_at("status.replicas", 0), _NUMBER),
        TableColumn("Ready", _value_at("status.readyReplicas", 0), _NUMBER),
        AGE_COLUMN,
        *_images("spec.template.spec.containers"),
        TableColumn("Selector", _labels("spec.selector.matchLabels"), wide=True),
    ],
    "daemonsets.apps": [
        TableColumn("Desired", _value_at("status.desiredNumberScheduled", 0), _NUMBER),
        TableColumn("Current", _value_at("status.currentNumberScheduled", 0), _NUMBER),
        TableColumn("Ready", _value_at("status.numberReady", 0), _NUMBER),
        TableColumn("Up-to-date", _value_at("status.updatedNumberScheduled", 0), _NUMBER),
        TableColumn("Available", _value_at("status.numberAvailable", 0), _NUMBER),
        TableColumn("Node Selector", _labels("spec.template.spec.nodeSelector")),
        AGE_COLUMN,
        *_images("spec.template.spec.containers"),
        TableColumn("Selector", _labels("spec.selector.matchLabels"), wide=True),
    ],
    "statefulsets.apps": [
        TableColumn("Ready", _of("status.readyReplicas", "spec.replicas")),
        AGE_COLUMN,
        *_images("spec.template.spec.containers"),
    ],
    "replicationcontrollers": [
        TableColumn("Desired", _value_at("spec.replicas", 0), _NUMBER),
        TableColumn("Current", _value_at("status.replicas", 0), _NUMBER),
        TableColumn("Ready", _value_at("status.readyReplicas", 0), _NUMBER),
        AGE_COLUMN,
        *_images("spec.template.spec.containers"),
        TableColumn("Selector", _labels("spec.selector"), wide=True),
    ],
    "cronjobs.batch": [
        TableColumn("Schedule", _value_at("spec.schedule")),
        TableColumn("Timezone", _value_at("spec.timeZone")),
        TableColumn("Suspend", lambda o: str(get_path(o, "spec.suspend") or False)),
        TableColumn("Active", lambda o: len(get_path(o, "status.active") or ()), _NUMBER),
        TableColumn("Last Schedule", lambda o: age(t) if (t := get_path(o, "status.lastScheduleTime")) else "<none>"),
        AGE_COLUMN,
        *_images("spec.jobTemplate.spec.template.spec.containers"),
    ],
    "jobs.batch": [TableColumn("Completions", _of("status.succeeded", "spec.completions")), AGE_COLUMN],
    "priorityclasses.scheduling.k8s.io": [
        TableColumn("Value", _value_at("value", 0), _NUMBER),
        TableColumn("Global-Default", _value_at("globalDefault", False), "boolean"),
        AGE_COLUMN,
    ],
    "runtimeclasses.node.k8s.io": [TableColumn("Handler", _value_at("handler", "")), AGE_COLUMN],
    "customresourcedefinitions.apiextensions.k8s.io": [
        TableColumn("Created At", _value_at("metadata.creationTimestamp"))
    ],
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": [
        TableColumn("Webhooks", _count("webhooks"), _NUMBER),
        AGE_COLUMN,
    ],
    "validatingwebhookconfigurations.admissionregistration.k8s.io": [
        TableColumn("Webhooks", _count("webhooks"), _NUMBER),
        AGE_COLUMN,
    ],
    "resourcequotas": [
        TableColumn("Request", lambda obj: _used_amounts(obj, limits=False)),
        TableColumn("Limit", lambda obj: _used_amounts(obj, limits=True)),
        AGE_COLUMN,
    ],
    "limitranges": [TableColumn("Created At", _value_at("metadata.creationTimestamp"))],
    "poddisruptionbudgets.policy": [
        TableColumn("Min Available", _value_at("spec.minAvailable", "N/A")),
        TableColumn("Max Unavailable", _value_at("spec.maxUnavailable", "N/A")),
        TableColumn("Allowed Disruptions", _value_at("status.disruptionsAllowed", 0), _NUMBER),
        AGE_COLUMN,
    ],
}
