"""A host engine of its own for DCGM, which exporters and people on the node share.

Its Service keeps to the node (``internalTrafficPolicy: Local``), which Kubernetes knows since 1.22: older clusters
leave ``spec.dcgm`` off, as it is by default.
"""

from purser.operator.model import Rendered, RenderInputs, RuntimeKind
from purser.operator.names import OPERAND_LABEL
from purser.operator.operands.parts import (
    PodTemplate,
    Raw,
    container,
    host_network,
    owned,
    per_runtime,
    runtime_class,
)
from purser.operator.operands.waiting import until_driver
from purser.operator.order import Operand
from purser.operator.policy.images import DEFAULTS, reference

SERVICE = "nvidia-dcgm"
PORT = 5555


def render(wanted: RenderInputs) -> list[Rendered]:
    """The Service, and a DaemonSet per kind of runtime."""
    if Operand.DCGM not in wanted.policy.spec.enabled:
        return []
    return [_service(wanted), *per_runtime(wanted, lambda kind: _pod(wanted, kind), Operand.DCGM)]


def _service(wanted: RenderInputs) -> Rendered:
    spec: Raw = {
        "type": "ClusterIP",
        "internalTrafficPolicy": "Local",
        "selector": {OPERAND_LABEL: Operand.DCGM.value},
        "ports": [{"name": "dcgm", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
    }
    metadata = {"name": SERVICE, "namespace": wanted.namespace}
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return owned(wanted, Operand.DCGM, obj, labels={"app": SERVICE})


def _pod(wanted: RenderInputs, kind: RuntimeKind) -> PodTemplate:
    section = wanted.policy.spec.dcgm
    probe = {"tcpSocket": {"port": PORT}, "initialDelaySeconds": 15}
    main = container(
        "nvidia-dcgm-ctr",
        reference(DEFAULTS["dcgm"], section),
        section,
        env={"NVIDIA_VISIBLE_DEVICES": "all"},
        privileged=True,
        more={
            "ports": [{"name": "dcgm", "containerPort": PORT}],
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
