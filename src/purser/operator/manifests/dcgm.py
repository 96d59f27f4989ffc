"""DCGM: its host engine, and the exporter that serves GPU metrics to Prometheus."""

from purser.operator.manifests.device_plugin import pod_resources
from purser.operator.manifests.mounts import until_driver
from purser.operator.manifests.parts import (
    NODE_NAME,
    MountedVolume,
    PodTemplate,
    Raw,
    config_map,
    container,
    host_network,
    host_path,
    owned,
    per_runtime,
    runtime_class,
)
from purser.operator.model import Rendered, RenderInputs, RuntimeKind
from purser.operator.names import OPERAND_LABEL
from purser.operator.order import Operand
from purser.operator.policy.fields import DEFAULTS, reference
from purser.operator.policy.sections import DcgmExporterSpec
from purser.operator.policy.spec import ClusterPolicySpec

SERVICE = "nvidia-dcgm"
HOSTENGINE_PORT = 5555


def render(wanted: RenderInputs) -> list[Rendered]:
    """The Service, and a DaemonSet per kind of runtime."""
    return [_service(wanted), *per_runtime(wanted, lambda kind: _pod(wanted, kind), Operand.DCGM)]


def _service(wanted: RenderInputs) -> Rendered:
    spec: Raw = {
        "type": "ClusterIP",
        "internalTrafficPolicy": "Local",
        "selector": {OPERAND_LABEL: Operand.DCGM.value},
        "ports": [{"name": "dcgm", "port": HOSTENGINE_PORT, "targetPort": HOSTENGINE_PORT, "protocol": "TCP"}],
    }
    metadata = {"name": SERVICE, "namespace": wanted.namespace}
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return owned(wanted, Operand.DCGM, obj, labels={"app": SERVICE})


def _pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    section = wanted.policy.spec.dcgm
    probe = {"tcpSocket": {"port": HOSTENGINE_PORT}, "initialDelaySeconds": 15}
    main = container(
        "nvidia-dcgm-ctr",
        reference(DEFAULTS["dcgm"], section),
        section,
        env={"NVIDIA_VISIBLE_DEVICES": "all"},
        privileged=True,
        more={
            "ports": [{"name": "dcgm", "containerPort": HOSTENGINE_PORT}],
            "livenessProbe": probe,
            "readinessProbe": probe,
        },
    )
    return PodTemplate(
        init=[until_driver(wanted.policy.spec)],
        containers=[main],
        more={**runtime_class(wanted, kind), **host_network(section)},
        labels={"app": SERVICE},
    )


# --- exporter


ACCOUNT = "purser-dcgm-exporter"
EXPORTER_SERVICE = "nvidia-dcgm-exporter"
EXPORTER_PORT = 9400
_METRICS = "dcgm-metrics.csv"


def render_exporter(wanted: RenderInputs) -> list[Rendered]:
    """The Service, and a DaemonSet per kind of runtime."""
    return [
        _exporter_service(wanted),
        *per_runtime(wanted, lambda kind: _exporter_pod(wanted, kind), Operand.DCGM_EXPORTER),
    ]


def asks_api(section: DcgmExporterSpec) -> bool:
    """Whether it reads pods from the API: for their labels or uids. Otherwise it has no account."""
    return section.enable_pod_labels or section.enable_pod_uid


def _exporter_service(wanted: RenderInputs) -> Rendered:
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
        mounts=[pod_resources(spec, kind), *custom, *_job_mapping(section)],
        privileged=True,
        more={
            "ports": [{"name": "metrics", "containerPort": EXPORTER_PORT}],
            "livenessProbe": {**health, "periodSeconds": 5},
            "readinessProbe": health,
        },
    )
    return PodTemplate(
        account=ACCOUNT if asks_api(section) else "",
        init=[until_driver(spec)],
        containers=[main],
        more={
            **runtime_class(wanted, kind),
            **host_network(section),
            **({"hostPID": True} if section.host_pid else {}),
        },
        labels={"app": EXPORTER_SERVICE},
        annotations=section.annotations,
    )


def _job_mapping(section: DcgmExporterSpec) -> list[MountedVolume]:
    """Where the batch scheduler says which job has which GPU."""
    given = section.hpc_job_mapping
    if not given.enabled:
        return []
    return [host_path("hpc-job-mapping", given.directory, type="DirectoryOrCreate", read_only=True)]


def _variables(spec: ClusterPolicySpec) -> dict[str, str | Raw]:
    section = spec.dcgm_exporter
    labels = ",".join(section.pod_label_allowlist_regex)
    metrics = _METRICS if section.config.name else "dcp-metrics-included.csv"
    engine = {"DCGM_REMOTE_HOSTENGINE_INFO": f"{SERVICE}:{HOSTENGINE_PORT}"}
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
