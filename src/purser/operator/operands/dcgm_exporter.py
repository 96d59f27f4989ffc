"""The DCGM exporter: metrics of GPUs, with the pods that use them."""

from purser.operator.model import Rendered, RenderInputs, RuntimeKind
from purser.operator.names import OPERAND_LABEL
from purser.operator.operands.dcgm import PORT as DCGM_PORT
from purser.operator.operands.dcgm import SERVICE as DCGM_SERVICE
from purser.operator.operands.device_plugin import pod_resources
from purser.operator.operands.parts import (
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
from purser.operator.operands.waiting import until_driver
from purser.operator.order import Operand
from purser.operator.policy.images import DEFAULTS, reference
from purser.operator.policy.sections import DcgmExporterSpec
from purser.operator.policy.spec import ClusterPolicySpec

ACCOUNT = "purser-dcgm-exporter"
SERVICE = "nvidia-dcgm-exporter"
PORT = 9400
_METRICS = "dcgm-metrics.csv"


def render(wanted: RenderInputs) -> list[Rendered]:
    """The Service, and a DaemonSet per kind of runtime."""
    if Operand.DCGM_EXPORTER not in wanted.policy.spec.enabled:
        return []
    return [_service(wanted), *per_runtime(wanted, lambda kind: _pod(wanted, kind), Operand.DCGM_EXPORTER)]


def asks_api(section: DcgmExporterSpec) -> bool:
    """Whether it reads pods from the API: for their labels or uids. Otherwise it has no account."""
    return section.enable_pod_labels or section.enable_pod_uid


def _service(wanted: RenderInputs) -> Rendered:
    given = wanted.policy.spec.dcgm_exporter.service
    local = {"internalTrafficPolicy": "Local"} if given.internal_traffic_policy == "Local" else {}
    spec: Raw = {
        "type": given.type,
        **local,
        "selector": {OPERAND_LABEL: Operand.DCGM_EXPORTER.value},
        "ports": [{"name": "gpu-metrics", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
    }
    metadata = {"name": SERVICE, "namespace": wanted.namespace}
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    scrape = {"prometheus.io/scrape": "true"}
    return owned(wanted, Operand.DCGM_EXPORTER, obj, labels={"app": SERVICE}, annotations=scrape)


def _pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    spec = wanted.policy.spec
    section = spec.dcgm_exporter
    health = {"httpGet": {"path": "/health", "port": PORT}, "initialDelaySeconds": 45}
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
            "ports": [{"name": "metrics", "containerPort": PORT}],
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
        labels={"app": SERVICE},
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
    engine = {"DCGM_REMOTE_HOSTENGINE_INFO": f"{DCGM_SERVICE}:{DCGM_PORT}"}
    jobs = section.hpc_job_mapping
    prefix = "DCGM_EXPORTER_KUBERNETES"
    return {
        "DCGM_EXPORTER_LISTEN": f":{PORT}",
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
