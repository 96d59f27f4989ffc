"""How GPUs are watched: DCGM's host engine, the exporter that serves GPU metrics to Prometheus, and how Prometheus
finds metrics and alerts: objects of the Prometheus operator, where its kinds are there.
"""

from purser.operator.manifests import validator
from purser.operator.manifests.mounts import wait_for_driver
from purser.operator.manifests.parts import (
    NODE_NAME,
    OPERATOR,
    MountedVolume,
    PodTemplate,
    Raw,
    config_map,
    container,
    daemon_sets_per_runtime,
    host_network,
    host_path,
    owned,
    runtime_class,
    without_empty,
)
from purser.operator.manifests.toolkit import pod_resources
from purser.operator.model import GAUGE_PREFIX, Gauge, RenderedManifest, RenderInputs, RuntimeKind
from purser.operator.names import OPERAND_LABEL
from purser.operator.order import Operand
from purser.operator.policy.fields import DEFAULTS, Relabeling, ServiceMonitor, reference
from purser.operator.policy.sections import DcgmExporterSpec
from purser.operator.policy.spec import ClusterPolicySpec

ENGINE_SERVICE = "nvidia-dcgm"
HOSTENGINE_PORT = 5555


def render_dcgm(wanted: RenderInputs) -> list[RenderedManifest]:
    """The Service, and a DaemonSet per kind of runtime."""
    return [
        _hostengine_service(wanted),
        *daemon_sets_per_runtime(wanted, lambda kind: _hostengine_pod(wanted, kind), Operand.DCGM),
    ]


def _hostengine_service(wanted: RenderInputs) -> RenderedManifest:
    spec: Raw = {
        "type": "ClusterIP",
        "internalTrafficPolicy": "Local",
        "selector": {OPERAND_LABEL: Operand.DCGM.value},
        "ports": [{"name": "dcgm", "port": HOSTENGINE_PORT, "targetPort": HOSTENGINE_PORT, "protocol": "TCP"}],
    }
    metadata = {"name": ENGINE_SERVICE, "namespace": wanted.namespace}
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return owned(wanted, Operand.DCGM, obj, labels={"app": ENGINE_SERVICE})


def _hostengine_pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    section = wanted.policy.spec.dcgm
    probe = {"tcpSocket": {"port": HOSTENGINE_PORT}, "initialDelaySeconds": 15}
    main = container(
        "nvidia-dcgm-ctr",
        reference(DEFAULTS["dcgm"], section),
        section,
        env={"NVIDIA_VISIBLE_DEVICES": "all"},
        privileged=True,
        other_fields={
            "ports": [{"name": "dcgm", "containerPort": HOSTENGINE_PORT}],
            "livenessProbe": probe,
            "readinessProbe": probe,
        },
    )
    return PodTemplate(
        init=[wait_for_driver(wanted.policy.spec)],
        containers=[main],
        other_fields={**runtime_class(wanted, kind), **host_network(section)},
        labels={"app": ENGINE_SERVICE},
    )


# --- exporter


EXPORTER_ACCOUNT = "purser-dcgm-exporter"
EXPORTER_SERVICE = "nvidia-dcgm-exporter"
EXPORTER_PORT = 9400
_METRICS = "dcgm-metrics.csv"


def render_exporter(wanted: RenderInputs) -> list[RenderedManifest]:
    """The Service, and a DaemonSet per kind of runtime."""
    return [
        _exporter_service(wanted),
        *daemon_sets_per_runtime(wanted, lambda kind: _exporter_pod(wanted, kind), Operand.DCGM_EXPORTER),
    ]


def reads_pods(section: DcgmExporterSpec) -> bool:
    """Whether it reads pods from the API: for their labels or uids. Otherwise it has no account."""
    return section.enable_pod_labels or section.enable_pod_uid


def _exporter_service(wanted: RenderInputs) -> RenderedManifest:
    given = wanted.policy.spec.dcgm_exporter.service
    local = {"internalTrafficPolicy": "Local"} if given.internal_traffic_policy == "Local" else {}
    spec: Raw = {
        "type": given.type,
        **local,
        "selector": {OPERAND_LABEL: Operand.DCGM_EXPORTER.value},
        "ports": [{"name": "gpu-metrics", "port": EXPORTER_PORT, "targetPort": EXPORTER_PORT, "protocol": "TCP"}],
    }
    metadata = {"name": EXPORTER_SERVICE, "namespace": wanted.namespace}
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    scrape = {"prometheus.io/scrape": "true"}
    return owned(wanted, Operand.DCGM_EXPORTER, obj, labels={"app": EXPORTER_SERVICE}, annotations=scrape)


def _exporter_pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    spec = wanted.policy.spec
    section = spec.dcgm_exporter
    health = {"httpGet": {"path": "/health", "port": EXPORTER_PORT}, "initialDelaySeconds": 45}
    name = section.config.name
    custom = [config_map("metrics-config", name, f"/etc/dcgm-exporter/{_METRICS}", key=_METRICS)] if name else []
    main = container(
        "nvidia-dcgm-exporter",
        reference(DEFAULTS["dcgm-exporter"], section),
        section,
        env=_variables(spec),
        mounts=[pod_resources(spec, kind), *custom, *_hpc_job_mounts(section)],
        privileged=True,
        other_fields={
            "ports": [{"name": "metrics", "containerPort": EXPORTER_PORT}],
            "livenessProbe": {**health, "periodSeconds": 5},
            "readinessProbe": health,
        },
    )
    return PodTemplate(
        account=EXPORTER_ACCOUNT if reads_pods(section) else "",
        init=[wait_for_driver(spec)],
        containers=[main],
        other_fields={
            **runtime_class(wanted, kind),
            **host_network(section),
            **({"hostPID": True} if section.host_pid else {}),
        },
        labels={"app": EXPORTER_SERVICE},
        annotations=section.annotations,
    )


def _hpc_job_mounts(section: DcgmExporterSpec) -> list[MountedVolume]:
    """Where the batch scheduler says which job has which GPU."""
    given = section.hpc_job_mapping
    if not given.enabled:
        return []
    return [host_path("hpc-job-mapping", given.directory, type="DirectoryOrCreate", read_only=True)]


def _variables(spec: ClusterPolicySpec) -> dict[str, str | Raw]:
    section = spec.dcgm_exporter
    labels = ",".join(section.pod_label_allowlist_regex)
    metrics = _METRICS if section.config.name else "dcp-metrics-included.csv"
    engine = {"DCGM_REMOTE_HOSTENGINE_INFO": f"{ENGINE_SERVICE}:{HOSTENGINE_PORT}"}
    jobs = section.hpc_job_mapping
    prefix = "DCGM_EXPORTER_KUBERNETES"
    return {
        "DCGM_EXPORTER_LISTEN": f":{EXPORTER_PORT}",
        prefix: "true",
        "DCGM_EXPORTER_COLLECTORS": f"/etc/dcgm-exporter/{metrics}",
        "NODE_NAME": NODE_NAME,
        "NVIDIA_VISIBLE_DEVICES": "all",
        **(engine if Operand.DCGM in spec.enabled else {}),
        **({f"{prefix}_ENABLE_POD_LABELS": "true"} if section.enable_pod_labels else {}),
        **({f"{prefix}_ENABLE_POD_UID": "true"} if section.enable_pod_uid else {}),
        **({"DCGM_HPC_JOB_MAPPING_DIR": jobs.directory} if jobs.enabled else {}),
        **({f"{prefix}_POD_LABEL_ALLOWLIST_REGEX": labels} if labels else {}),
    }


# --- the Prometheus operator's objects


_API = "monitoring.coreos.com/v1"
OPERATOR_SERVICE = "purser-operator"
"""The Service of the operator's own metrics, and the value of its label app; the Helm chart makes it."""


def render(wanted: RenderInputs) -> list[RenderedManifest]:
    """Monitors that are enabled, and alerts."""
    if not wanted.service_monitors:
        return []
    return [*_monitors(wanted), *_rules(wanted)]


def _monitors(wanted: RenderInputs) -> list[RenderedManifest]:
    spec = wanted.policy.spec
    exporter, own = spec.dcgm_exporter.service_monitor, spec.operator.metrics.service_monitor
    found = []
    if Operand.DCGM_EXPORTER in spec.enabled and exporter.enabled:
        found.append(_monitor(wanted, Operand.DCGM_EXPORTER, EXPORTER_SERVICE, "gpu-metrics", exporter))
    if Operand.NODE_STATUS_EXPORTER in spec.enabled and own.enabled:
        operand = Operand.NODE_STATUS_EXPORTER
        found.append(_monitor(wanted, operand, validator.SERVICE, "node-status", own))
    if own.enabled:
        found.append(_monitor(wanted, OPERATOR, OPERATOR_SERVICE, "metrics", own))
    return found


def _monitor(wanted: RenderInputs, operand: str, service: str, port: str, given: ServiceMonitor) -> RenderedManifest:
    endpoint: Raw = {"port": port, "path": "/metrics", "interval": given.interval, "honorLabels": given.honor_labels}
    if given.scrape_timeout:
        endpoint["scrapeTimeout"] = given.scrape_timeout
    if given.relabelings:
        endpoint["relabelings"] = [_relabeling(each) for each in given.relabelings]
    spec = {
        "endpoints": [endpoint],
        "jobLabel": "app",
        "namespaceSelector": {"matchNames": [wanted.namespace]},
        "selector": {"matchLabels": {"app": service}},
    }
    metadata = {"name": service, "namespace": wanted.namespace}
    obj = {"apiVersion": _API, "kind": "ServiceMonitor", "metadata": metadata, "spec": spec}
    return owned(wanted, operand, obj, labels={"app": service, **given.additional_labels})


def _relabeling(given: Relabeling) -> Raw:
    texts = {"separator": given.separator, "regex": given.regex, "replacement": given.replacement}
    found = {**without_empty(given), **{name: text for name, text in texts.items() if text is not None}}
    return {name: each for name, each in found.items() if name != "modulus" or each}


def _rules(wanted: RenderInputs) -> list[RenderedManifest]:
    own = wanted.policy.spec.operator.metrics
    if not own.prometheus_rules:
        return []
    alerts = [_alert(*each) for each in _ALERTS]
    metadata = {"name": OPERATOR_SERVICE, "namespace": wanted.namespace}
    spec = {"groups": [{"name": "purser-operator", "rules": alerts}]}
    obj = {"apiVersion": _API, "kind": "PrometheusRule", "metadata": metadata, "spec": spec}
    return [owned(wanted, OPERATOR, obj, labels=own.service_monitor.additional_labels)]


def _alert(name: str, expression: str, lasts: str, severity: str, summary: str) -> Raw:
    return {
        "alert": name,
        "expr": expression,
        "for": lasts,
        "labels": {"severity": severity},
        "annotations": {"summary": summary},
    }


def _by_leader(gauge: Gauge) -> str:
    """The leader's value, whichever replica that is: an alert restarts when the labels of its series change."""
    return f"max by (namespace, job) ({GAUGE_PREFIX}{gauge})"


# An upgrade may take days, and the stack is not ready for as long. One that goes on, or queued for upgrade, is no
# failure; one that failed somewhere has an alert of its own, and so has one that gets nowhere.
_UPGRADING = (
    f"({_by_leader(Gauge.UPGRADES_IN_PROGRESS)} > 0 or ({_by_leader(Gauge.UPGRADES_PENDING)} > 0"
    f" and {_by_leader(Gauge.UPGRADES_FAILED)} == 0 and {_by_leader(Gauge.AUTO_UPGRADE)} == 1))"
)

_ALERTS = (
    (
        "GPUOperatorReconciliationFailed",
        f"{_by_leader(Gauge.RECONCILIATION)} < 0 or ({_by_leader(Gauge.RECONCILIATION)} == 0 unless {_UPGRADING})",
        "1h",
        "warning",
        "For an hour, reconciliation has failed, there has been no ClusterPolicy to act on, or the GPU stack has not"
        " been ready without a driver upgrade to explain it. See the operator's log and the ClusterPolicy's status.",
    ),
    (
        "PurserDriverUpgradeGetsNowhere",
        f"{_by_leader(Gauge.UPGRADES_IN_PROGRESS)} > 0 and changes(({_by_leader(Gauge.UPGRADES_DONE)})[15m:1m]) == 0",
        "6h",
        "warning",
        "Driver upgrades are in progress, but no node has finished one in six hours. The ClusterPolicy's status says"
        " what they wait for.",
    ),
    (
        "GPUOperatorDriverAutoUpgradeFailures",
        f"{_by_leader(Gauge.UPGRADES_FAILED)} > 0",
        "30m",
        "warning",
        "The driver upgrade failed on one or more nodes. Their purser.dev/driver-upgrade-failure annotation says why.",
    ),
    (
        "GPUOperatorNodeDeploymentDriverFailed",
        "gpu_operator_node_driver_ready == 0",
        "30m",
        "warning",
        "A node's driver is not ready.",
    ),
    (
        "GPUOperatorNodeDeploymentFailed",
        "gpu_operator_node_plugin_ready == 0",
        "30m",
        "warning",
        "A node's device plugin is not ready.",
    ),
    (
        "GPUOperatorNodeToolkitFailed",
        "gpu_operator_node_toolkit_ready == 0",
        "30m",
        "warning",
        "A node's container toolkit is not ready.",
    ),
    (
        "GPUOperatorNodeCudaFailed",
        "gpu_operator_node_cuda_ready == 0",
        "30m",
        "warning",
        "CUDA does not work on a node.",
    ),
)
"""Name, expression, for how long, severity, and what it means."""
