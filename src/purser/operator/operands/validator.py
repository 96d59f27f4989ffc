"""The validator: NVIDIA's checks, one after another, each time its pod starts. Ready means: this node is complete.

The check with CUDA runs in the validator's own pod, which has all GPUs anyway: no account that can make pods is needed,
no GPU has to be free, and nothing is left behind.
"""

from collections.abc import Sequence

from purser.operator.model import Rendered, RuntimeKind, Wanted
from purser.operator.operands.mounts import VALIDATIONS, host_root
from purser.operator.operands.parts import (
    NAMESPACE,
    NODE_NAME,
    Container,
    Mount,
    Pod,
    Raw,
    container,
    host_network,
    host_path,
    per_runtime,
    runtime_class,
)
from purser.operator.order import Operand
from purser.operator.policy.fields import EnvVar, Image
from purser.operator.policy.images import DEFAULTS, reference
from purser.operator.policy.sections import ValidatorSpec
from purser.operator.policy.spec import ClusterPolicySpec

ACCOUNT = "purser-operator-validator"
_CUDA = 'if [ "$WITH_WORKLOAD" != false ]; then vectorAdd; fi && WITH_WORKLOAD=false nvidia-validator'


def render(wanted: Wanted) -> list[Rendered]:
    """A DaemonSet per kind of runtime: Docker's have no RuntimeClass."""
    if Operand.VALIDATOR not in wanted.policy.spec.enabled:
        return []
    return per_runtime(wanted, lambda kind: _pod(wanted, kind), Operand.VALIDATOR)


def _pod(wanted: Wanted, kind: RuntimeKind) -> Pod:
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
        more={"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "rm -f /run/nvidia/validations/*-ready"]}}}},
    )
    return Pod(
        account=ACCOUNT,
        init=_checks(spec),
        containers=[main],
        more={**runtime_class(wanted, kind), **host_network(section)},
        labels={"app": "nvidia-operator-validator"},
    )


def _checks(spec: ClusterPolicySpec) -> list[Container]:
    """In their order. Without a device plugin there is nothing to count."""
    section = spec.validator
    node: dict[str, str | Raw] = {"NODE_NAME": NODE_NAME, "OPERATOR_NAMESPACE": NAMESPACE}
    install = spec.host_paths.driver_install_dir
    driver = [
        host_root(spec),
        host_path("driver-install-dir", install, type="DirectoryOrCreate", propagation="HostToContainer"),
        host_path("host-dev-char", "/dev/char", "/host-dev-char"),
    ]
    where: dict[str, str | Raw] = {
        "DRIVER_INSTALL_DIR": install,
        "DRIVER_INSTALL_DIR_CTR_PATH": install,
        "HOST_ROOT": spec.host_paths.root_fs,
    }
    plugin = {**node, "WITH_WORKLOAD": "false", "MIG_STRATEGY": spec.mig.strategy}
    found = [
        _check(section, "driver", section.driver.env, {**node, **where, "WITH_WAIT": "true"}, driver),
        _check(section, "toolkit", section.toolkit.env, {"NVIDIA_VISIBLE_DEVICES": "all", "WITH_WAIT": "false"}),
        _check(section, "cuda", section.cuda.env, {**node, "NVIDIA_VISIBLE_DEVICES": "all"}, script=_CUDA),
        _check(section, "plugin", section.plugin.env, plugin),
    ]
    return found if Operand.DEVICE_PLUGIN in spec.enabled else found[:-1]


def _check(
    section: ValidatorSpec,
    component: str,
    given: Sequence[EnvVar],
    env: dict[str, str | Raw],
    mounts: Sequence[Mount] = (),
    script: str = "nvidia-validator",
) -> Container:
    return container(
        f"{component}-validation",
        reference(DEFAULTS["operator-validator"], section),
        Image(image_pull_policy=section.image_pull_policy),
        command=["sh", "-c"],
        args=[script],
        env={"COMPONENT": component, "WITH_WAIT": "false", **env, **{each.name: each.value for each in given}},
        mounts=[VALIDATIONS, *mounts],
        privileged=True,
    )
