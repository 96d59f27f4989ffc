"""The node status exporter: what was validated on each node, as metrics."""

from purser.operator.model import Rendered, RenderInputs
from purser.operator.names import OPERAND_LABEL
from purser.operator.operands.mounts import RUN_NVIDIA, host_root
from purser.operator.operands.parts import (
    NAMESPACE,
    NODE_NAME,
    PodTemplate,
    container,
    daemon_set,
    host_network,
    owned,
)
from purser.operator.order import Operand
from purser.operator.policy.images import DEFAULTS, reference

ACCOUNT = "purser-node-status-exporter"
SERVICE = "nvidia-node-status-exporter"
PORT = 8000


def render(wanted: RenderInputs) -> list[Rendered]:
    """The Service and the DaemonSet."""
    if Operand.NODE_STATUS_EXPORTER not in wanted.policy.spec.enabled:
        return []
    operand = Operand.NODE_STATUS_EXPORTER
    return [_service(wanted), daemon_set(wanted, operand, f"purser-{operand}", _pod(wanted))]


def _service(wanted: RenderInputs) -> Rendered:
    spec = {
        "type": "ClusterIP",
        "selector": {OPERAND_LABEL: Operand.NODE_STATUS_EXPORTER.value},
        "ports": [{"name": "node-status", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
    }
    metadata = {"name": SERVICE, "namespace": wanted.namespace}
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    scrape = {"prometheus.io/scrape": "true"}
    return owned(wanted, Operand.NODE_STATUS_EXPORTER, obj, labels={"app": SERVICE}, annotations=scrape)


def _pod(wanted: RenderInputs) -> PodTemplate:
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
            "METRICS_PORT": str(PORT),
            "NODE_NAME": NODE_NAME,
            "OPERATOR_NAMESPACE": NAMESPACE,
        },
        mounts=[RUN_NVIDIA, host_root(spec)],
        privileged=True,
        more={"ports": [{"name": "node-status", "containerPort": PORT}]},
    )
    return PodTemplate(account=ACCOUNT, containers=[main], more=host_network(section), labels={"app": SERVICE})
