"""The validator: NVIDIA's checks, one after another, each time its pod starts. Ready means: this node is complete.

The check with CUDA runs in the validator's own pod, which has all GPUs anyway: no account that can make pods is needed,
no GPU has to be free, and nothing is left behind.
"""

from purser.operator.model import Rendered, RenderInputs, RuntimeKind
from purser.operator.operands.mounts import VALIDATIONS, VALIDATIONS_DIR
from purser.operator.operands.parts import (
    NAMESPACE,
    NODE_NAME,
    ContainerTemplate,
    PodTemplate,
    Raw,
    container,
    host_network,
    per_runtime,
    runtime_class,
)
from purser.operator.operands.waiting import driver_validation, validation
from purser.operator.order import Operand
from purser.operator.policy.images import DEFAULTS, reference
from purser.operator.policy.spec import ClusterPolicySpec

ACCOUNT = "purser-operator-validator"
_WORKLOAD = "WITH_WORKLOAD"
"""Whether a check starts a pod of its own."""

_CUDA = 'if [ "$WITH_WORKLOAD" != false ]; then vectorAdd; fi && WITH_WORKLOAD=false nvidia-validator'


_GOES = " ".join(("rm -f", *(f"{VALIDATIONS_DIR}/{each}-ready" for each in ("toolkit", "cuda", "plugin"))))
"""What it wrote; not where the driver is: others are told that by it, and who needs it may outlive the validator."""


def render(wanted: RenderInputs) -> list[Rendered]:
    """A DaemonSet per kind of runtime: Docker's have no RuntimeClass."""
    if Operand.VALIDATOR not in wanted.policy.spec.enabled:
        return []
    return per_runtime(wanted, lambda kind: _pod(wanted, kind), Operand.VALIDATOR)


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
        more={"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _GOES]}}}},
    )
    return PodTemplate(
        account=ACCOUNT,
        init=_checks(spec),
        containers=[main],
        more={**runtime_class(wanted, kind), **host_network(section)},
        labels={"app": "nvidia-operator-validator"},
    )


def _checks(spec: ClusterPolicySpec) -> list[ContainerTemplate]:
    """In their order. Without a device plugin there is nothing to count."""
    section = spec.validator
    node: dict[str, str | Raw] = {"NODE_NAME": NODE_NAME, "OPERATOR_NAMESPACE": NAMESPACE}
    plugin = {**node, _WORKLOAD: "false", "MIG_STRATEGY": spec.mig.strategy}
    given = [each for each in section.plugin.env if each.name != _WORKLOAD]  # it may not make pods
    found = [
        driver_validation(spec),
        validation(spec, "toolkit", {"NVIDIA_VISIBLE_DEVICES": "all"}, section.toolkit.env),
        validation(spec, "cuda", {**node, "NVIDIA_VISIBLE_DEVICES": "all"}, section.cuda.env, script=_CUDA),
        validation(spec, "plugin", plugin, given),
    ]
    return found if Operand.DEVICE_PLUGIN in spec.enabled else found[:-1]
