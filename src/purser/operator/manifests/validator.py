"""NVIDIA's validator, which checks that a node's driver and toolkit work, and the node status exporter, which serves
what it found to Prometheus."""

from purser.operator.manifests.mounts import (
    RUN_NVIDIA,
    VALIDATIONS,
    VALIDATIONS_DIR,
    driver_validation,
    host_root,
    validation,
)
from purser.operator.manifests.parts import (
    NAMESPACE,
    NODE_NAME,
    ContainerTemplate,
    PodTemplate,
    Raw,
    container,
    daemon_set,
    daemon_sets_per_runtime,
    host_network,
    owned,
    runtime_class,
)
from purser.operator.model import RenderedManifest, RenderInputs, RuntimeKind
from purser.operator.names import OPERAND_LABEL
from purser.operator.order import Operand
from purser.operator.policy.fields import DEFAULTS, reference
from purser.operator.policy.spec import ClusterPolicySpec

ACCOUNT = "purser-operator-validator"
_WORKLOAD = "WITH_WORKLOAD"
"""Whether a check starts a pod of its own."""

_CUDA = 'if [ "$WITH_WORKLOAD" != false ]; then vectorAdd; fi && WITH_WORKLOAD=false nvidia-validator'


_STOP_COMMAND = " ".join(("rm -f", *(f"{VALIDATIONS_DIR}/{each}-ready" for each in ("toolkit", "cuda", "plugin"))))
"""The files that it wrote, except for the driver's place: other pods read it, and may outlive the validator."""


def render(wanted: RenderInputs) -> list[RenderedManifest]:
    """A DaemonSet per kind of runtime: Docker's have no RuntimeClass."""
    return daemon_sets_per_runtime(wanted, lambda kind: _pod(wanted, kind), Operand.VALIDATOR)


def _pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    spec = wanted.policy.spec
    section = spec.validator
    main = container(
        "nvidia-operator-validator",
        reference(DEFAULTS["operator-validator"], section),
        section,
        command=["sh", "-c"],
        args=["trap exit TERM; while true; do sleep 3600 & wait $!; done"],
        mounts=[VALIDATIONS],
        privileged=True,
        other_fields={"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _STOP_COMMAND]}}}},
    )
    return PodTemplate(
        account=ACCOUNT,
        init=_checks(spec),
        containers=[main],
        other_fields={**runtime_class(wanted, kind), **host_network(section)},
        labels={"app": "nvidia-operator-validator"},
    )


def _checks(spec: ClusterPolicySpec) -> list[ContainerTemplate]:
    """In their order. Without a device plugin there is nothing to count."""
    section = spec.validator
    node: dict[str, str | Raw] = {"NODE_NAME": NODE_NAME, "OPERATOR_NAMESPACE": NAMESPACE}
    plugin = {**node, _WORKLOAD: "false", "MIG_STRATEGY": spec.mig.nvidia_strategy}
    given = [each for each in section.plugin.env if each.name != _WORKLOAD]  # it may not make pods
    found = [
        driver_validation(spec),
        validation(spec, "toolkit", {"NVIDIA_VISIBLE_DEVICES": "all"}, section.toolkit.env),
        validation(spec, "cuda", {**node, "NVIDIA_VISIBLE_DEVICES": "all"}, section.cuda.env, script=_CUDA),
        validation(spec, "plugin", plugin, given),
    ]
    return found if Operand.DEVICE_PLUGIN in spec.enabled else found[:-1]


# --- node status exporter


EXPORTER_ACCOUNT = "purser-node-status-exporter"
SERVICE = "nvidia-node-status-exporter"
NODE_STATUS_PORT = 8000


def render_node_status_exporter(wanted: RenderInputs) -> list[RenderedManifest]:
    """The Service and the DaemonSet."""
    operand = Operand.NODE_STATUS_EXPORTER
    return [_service(wanted), daemon_set(wanted, operand, f"purser-{operand}", _exporter_pod(wanted))]


def _service(wanted: RenderInputs) -> RenderedManifest:
    spec = {
        "type": "ClusterIP",
        "selector": {OPERAND_LABEL: Operand.NODE_STATUS_EXPORTER.value},
        "ports": [{"name": "node-status", "port": NODE_STATUS_PORT, "targetPort": NODE_STATUS_PORT, "protocol": "TCP"}],
    }
    metadata = {"name": SERVICE, "namespace": wanted.namespace}
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    scrape = {"prometheus.io/scrape": "true"}
    return owned(wanted, Operand.NODE_STATUS_EXPORTER, obj, labels={"app": SERVICE}, annotations=scrape)


def _exporter_pod(wanted: RenderInputs) -> PodTemplate:
    spec = wanted.policy.spec
    section = spec.node_status_exporter
    main = container(
        "nvidia-node-status-exporter",
        reference(DEFAULTS["node-status-exporter"], section),
        section,
        command=["nvidia-validator"],
        env={
            "NVIDIA_VISIBLE_DEVICES": "void",
            "COMPONENT": "metrics",
            "METRICS_PORT": str(NODE_STATUS_PORT),
            "NODE_NAME": NODE_NAME,
            "OPERATOR_NAMESPACE": NAMESPACE,
        },
        mounts=[RUN_NVIDIA, host_root(spec)],
        privileged=True,
        other_fields={"ports": [{"name": "node-status", "containerPort": NODE_STATUS_PORT}]},
    )
    return PodTemplate(
        account=EXPORTER_ACCOUNT, containers=[main], other_fields=host_network(section), labels={"app": SERVICE}
    )
