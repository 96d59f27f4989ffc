"""Which differences between container runtimes matter under a policy: GPU nodes that differ in nothing else share
their DaemonSets, and the update of a runtime moves no pods for nothing."""

import msgspec

from purser.operator.model import RuntimeKind
from purser.operator.order import Operand
from purser.operator.policy.spec import ClusterPolicySpec


def uses_cdi(spec: ClusterPolicySpec, kind: RuntimeKind) -> bool:
    """Whether GPUs are handed over by CDI on nodes of this kind: where policy and runtime can do it."""
    return _could_use_cdi(spec) and kind.cdi and kind.runtime != "docker"


def as_told_apart(kind: RuntimeKind, spec: ClusterPolicySpec) -> RuntimeKind:
    """The kind without what makes no difference to any manifest of this policy."""
    return msgspec.structs.replace(
        kind,
        cdi=kind.cdi or not _could_use_cdi(spec),
        config_v2=kind.config_v2 and Operand.TOOLKIT in spec.enabled,
    )


def _could_use_cdi(spec: ClusterPolicySpec) -> bool:
    """Only with NVIDIA's plugin, which writes the specification of its devices itself. Purser's agent names GPUs in a
    variable; with CDI, NVIDIA's runtime would look them up in what the toolkit writes, which knows no single GPU."""
    return spec.cdi.enabled and spec.device_plugin.flavor == "nvidia"
