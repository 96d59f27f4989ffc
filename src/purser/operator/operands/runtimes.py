"""Which differences between container runtimes matter under a policy: GPU nodes that differ in nothing else share
their DaemonSets, and the update of a runtime moves no pods for nothing."""

import msgspec

from purser.operator.model import RuntimeKind
from purser.operator.order import Operand
from purser.operator.policy.spec import ClusterPolicySpec

ACCEPT_VARIABLE = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
"""Whether the toolkit heeds NVIDIA_VISIBLE_DEVICES in containers that are not privileged."""

ACCEPT_MOUNTS = "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"
"""Whether it heeds mounts of /dev/null that are named as devices."""

CDI_STRATEGY = "cdi-annotations,cdi-cri"


def uses_cdi(spec: ClusterPolicySpec, kind: RuntimeKind) -> bool:
    """Whether GPUs are handed over by CDI on nodes of this kind: where policy and runtime can do it."""
    return _could_use_cdi(spec) and kind.cdi and kind.runtime != "docker"


def device_list(spec: ClusterPolicySpec, kind: RuntimeKind) -> frozenset[str]:
    """How containers' devices are named to the toolkit, in words of NVIDIA's device plugin.

    By mounts wherever it is Purser's agent that names them: a variable can be replaced by a pod, or by an image.
    """
    told = {each.name: each.value for each in spec.toolkit.env}
    if Operand.DEVICE_PLUGIN not in spec.enabled:
        return frozenset({"envvar"})  # somebody else's plugin, which may do nothing but that
    if spec.device_plugin.flavor == "purser":
        return frozenset({"envvar" if told.get(ACCEPT_MOUNTS, "true").lower() == "false" else "volume-mounts"})
    named = {each.name: each.value for each in spec.device_plugin.env}.get("DEVICE_LIST_STRATEGY")
    return frozenset((named or (CDI_STRATEGY if uses_cdi(spec, kind) else "envvar")).split(","))


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
