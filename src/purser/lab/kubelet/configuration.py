"""A node's kubelet as people configure it: the fields of KubeletConfiguration that change what is admitted.

`KubeletSection` is one layer of it (a profile's, a scenario's, the command line's): whatever is not said in it is left
to the layer below. `configure` makes of all layers what the twin works with, and `render` the file that kubelet on a
real node would have been given.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from purser.core.kubelet.config import (
    CpuOptions,
    CpuPolicy,
    KubeletConfig,
    MemoryPolicy,
    TopologyOptions,
    TopologyPolicy,
    TopologyScope,
    cpu_options,
    topology_options,
)
from purser.core.kubelet.cpuset import format_cpuset, parse_cpuset
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.versions import behaviour, parse_version
from purser.core.kubernetes.quantities import quantity_ceil, quantity_milli
from purser.yaml_text import yaml_text

DEFAULT_VERSION = "v1.36.2"
FILE_NAME = "config.yaml"
"""In kubelet's root folder, where kubeadm puts it."""

EVICTION_HARD_BYTES = 100 * 1024 * 1024
"""The default of evictionHard's memory.available: a part of the node's reserved memory."""

_VERSION = re.compile(r"v1\.\d+\.\d+")
_OLDEST_VERSION = (1, 20, 0)
_MEMORY = "memory"


class ReservedMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of one NUMA node's memory the memory manager keeps for the system."""

    numaNode: int
    limits: dict[str, str]


class KubeletSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One layer of settings. Every field but ``version`` is KubeletConfiguration's; None: not said here."""

    version: str | None = None
    """As the Node reports it, such as v1.36.2."""
    topologyManagerPolicy: TopologyPolicy | None = None
    topologyManagerScope: TopologyScope | None = None
    topologyManagerPolicyOptions: dict[str, str] | None = None
    cpuManagerPolicy: CpuPolicy | None = None
    cpuManagerPolicyOptions: dict[str, str] | None = None
    reservedSystemCPUs: str | None = None
    memoryManagerPolicy: MemoryPolicy | None = None
    reservedMemory: tuple[ReservedMemory, ...] | None = None
    systemReserved: dict[str, str] | None = None
    kubeReserved: dict[str, str] | None = None

    def over(self, below: "KubeletSection") -> "KubeletSection":
        """Both together; what is said here counts."""
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(below, **said)


class ConfiguredKubelet(msgspec.Struct, frozen=True):
    """A kubelet with everything decided."""

    config: KubeletConfig
    reserved_memory_bytes: int = EVICTION_HARD_BYTES
    """What the node keeps of its memory: capacity less allocatable."""


def configure(section: KubeletSection, machine: Machine) -> ConfiguredKubelet:
    """What a kubelet with these settings does on a machine. Raises ValueError that names the field and the fix.

    Where the policies need reservations and none are said, the first core and, of memory, kubelet's own eviction
    threshold on the first NUMA node are reserved.
    """
    version = _version(section.version or DEFAULT_VERSION)
    _check_version(section, version)
    memory_bytes = EVICTION_HARD_BYTES + _reserved_amount(section, _MEMORY)
    cpu_policy = section.cpuManagerPolicy or CpuPolicy.NONE
    memory_policy = section.memoryManagerPolicy or MemoryPolicy.NONE
    reserved_memory = _reserved_memory(section, machine)
    if memory_policy is MemoryPolicy.STATIC:
        reserved_memory = reserved_memory or {machine.numa_nodes[0].node: {_MEMORY: memory_bytes}}
        _check_sum(reserved_memory, memory_bytes)
    millis = _reserved_amount(section, "cpu")
    config = KubeletConfig(
        version=version,
        topology_policy=section.topologyManagerPolicy or TopologyPolicy.NONE,
        topology_scope=section.topologyManagerScope or TopologyScope.CONTAINER,
        topology_options=topology_options(section.topologyManagerPolicyOptions or {}),
        cpu_policy=cpu_policy,
        cpu_options=cpu_options(section.cpuManagerPolicyOptions or {}),
        reserved_cpus=_reserved_cpus(section, machine, needed=cpu_policy is CpuPolicy.STATIC and not millis),
        reserved_cpu_millis=millis,
        memory_policy=memory_policy,
        reserved_memory=reserved_memory,
    )
    return ConfiguredKubelet(config, memory_bytes)


def render(configured: ConfiguredKubelet) -> str:
    """KubeletConfiguration as a file."""
    config = configured.config
    fields: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "topologyManagerPolicy": config.topology_policy.value,
        "topologyManagerScope": config.topology_scope.value,
        "cpuManagerPolicy": config.cpu_policy.value,
        "evictionHard": {"memory.available": str(EVICTION_HARD_BYTES)},
    }
    fields |= _optional_field("topologyManagerPolicyOptions", _option_texts(config.topology_options))
    fields |= _optional_field("cpuManagerPolicyOptions", _option_texts(config.cpu_options))
    fields |= _optional_field("reservedSystemCPUs", config.reserved_cpus)
    fields |= _optional_field("systemReserved", _system_reserved(configured))
    if config.memory_policy is MemoryPolicy.STATIC:
        reserved = [
            {"numaNode": node, "limits": {name: str(amount) for name, amount in limits.items()}}
            for node, limits in sorted(config.reserved_memory.items())
        ]
        fields |= {"memoryManagerPolicy": config.memory_policy.value, "reservedMemory": reserved}
    return yaml_text(fields)


def _optional_field(name: str, value: Any) -> dict[str, Any]:
    return {name: value} if value else {}


def _system_reserved(configured: ConfiguredKubelet) -> dict[str, str]:
    memory = configured.reserved_memory_bytes - EVICTION_HARD_BYTES
    millis = configured.config.reserved_cpu_millis
    return _optional_field("cpu", f"{millis}m" if millis else "") | _optional_field(
        _MEMORY, str(memory) if memory else ""
    )


def _option_texts(options: TopologyOptions | CpuOptions) -> dict[str, str]:
    said = msgspec.to_builtins(options)
    return {name.replace("_", "-"): str(value).lower() for name, value in said.items()}


def _version(text: str) -> str:
    if _VERSION.fullmatch(text) is None or parse_version(text) < _OLDEST_VERSION:
        raise ValueError(
            f"version: {text} is not a supported kubelet version: must be v1.20.0 or newer, written as v1.36.2"
        )
    return text


def _check_version(section: KubeletSection, version: str) -> None:
    known = behaviour(parse_version(version))
    if section.topologyManagerPolicyOptions and not known.has_policy_options:
        raise ValueError(f"topologyManagerPolicyOptions: not supported by kubelet {version}: use v1.26.0 or newer")
    if section.memoryManagerPolicy is MemoryPolicy.STATIC and not known.has_memory_manager:
        raise ValueError(f"memoryManagerPolicy: kubelet {version} does not have a memory manager: use v1.21.0 or newer")


def _reserved_amount(section: KubeletSection, resource: str) -> int:
    """systemReserved and kubeReserved of one resource; CPU in millicores."""
    amount = quantity_milli if resource == "cpu" else quantity_ceil
    total = 0
    for field in ("systemReserved", "kubeReserved"):
        try:
            total += amount((getattr(section, field) or {}).get(resource, 0))
        except ValueError as error:
            raise ValueError(f"{field}.{resource}: {error}") from error
    return total


def _reserved_cpus(section: KubeletSection, machine: Machine, *, needed: bool) -> str:
    if section.reservedSystemCPUs is None:
        return format_cpuset(next(iter(machine.cpus_by_core.values()))) if needed and machine.cpus else ""
    try:
        reserved = parse_cpuset(section.reservedSystemCPUs)
    except ValueError as error:
        raise ValueError(f"reservedSystemCPUs: {error}") from error
    if foreign := reserved & ~machine.all_cpus:
        has = format_cpuset(machine.all_cpus)
        raise ValueError(f"reservedSystemCPUs: the node does not have CPUs {format_cpuset(foreign)}: it has {has}")
    return section.reservedSystemCPUs


def _reserved_memory(section: KubeletSection, machine: Machine) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for index, each in enumerate(section.reservedMemory or ()):
        where = f"reservedMemory[{index}]"
        if not machine.nodes_mask >> each.numaNode & 1:
            raise ValueError(f"{where}.numaNode: the node does not have NUMA node {each.numaNode}")
        if each.numaNode in found:
            raise ValueError(
                f"{where}.numaNode: NUMA node {each.numaNode} is already listed: merge the limits into one entry"
            )
        try:
            found[each.numaNode] = {name: quantity_ceil(amount) for name, amount in each.limits.items()}
        except ValueError as error:
            raise ValueError(f"{where}.limits: {error}") from error
    return found


def _check_sum(reserved: Mapping[int, Mapping[str, int]], expected: int) -> None:
    """kubelet does not start where the two differ."""
    total = sum(limits.get(_MEMORY, 0) for limits in reserved.values())
    if total != expected:
        raise ValueError(
            f"reservedMemory: the memory adds up to {total} bytes, but systemReserved, kubeReserved and the eviction "
            f"threshold of 100Mi add up to {expected}: kubelet does not start unless both are equal"
        )
