"""How one node's kubelet is configured, as far as admission goes. Names are KubeletConfiguration's."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from purser.core.kubelet.versions import Version, parse_version
from purser.core.kubernetes.booleans import parse_bool


class TopologyPolicy(StrEnum):
    """topologyManagerPolicy."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class TopologyScope(StrEnum):
    """topologyManagerScope."""

    CONTAINER = "container"
    POD = "pod"


class TopologyOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """topologyManagerPolicyOptions."""

    prefer_closest_numa_nodes: bool = False
    max_allowable_numa_nodes: int = 8


class CpuPolicy(StrEnum):
    """cpuManagerPolicy."""

    NONE = "none"
    STATIC = "static"


class CpuOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """cpuManagerPolicyOptions."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


class MemoryPolicy(StrEnum):
    """memoryManagerPolicy."""

    NONE = "None"
    STATIC = "Static"


class KubeletConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node's kubelet: everything that changes its decisions."""

    version: str = "v1.36.2"
    """As in the Node's status.nodeInfo.kubeletVersion."""
    topology_policy: TopologyPolicy = TopologyPolicy.NONE
    topology_scope: TopologyScope = TopologyScope.CONTAINER
    topology_options: TopologyOptions = TopologyOptions()
    cpu_policy: CpuPolicy = CpuPolicy.NONE
    cpu_options: CpuOptions = CpuOptions()
    reserved_cpus: str = ""
    """reservedSystemCPUs, a CPU list; empty: as many as ``reserved_cpu_millis`` rounds up to, kubelet's choice."""
    reserved_cpu_millis: int = 0
    """systemReserved.cpu + kubeReserved.cpu."""
    memory_policy: MemoryPolicy = MemoryPolicy.NONE
    reserved_memory: dict[int, dict[str, int]] = {}
    """reservedMemory: by NUMA node, bytes by resource (``memory``, ``hugepages-2Mi``)."""

    @property
    def parsed_version(self) -> Version:
        """The version to compare with. Raises ValueError when it is none."""
        return parse_version(self.version)


def topology_options(options: Mapping[str, object]) -> TopologyOptions:
    """topologyManagerPolicyOptions as they stand in a configuration. Raises ValueError that names the option."""
    values: dict[str, bool | int] = {}
    for name, value in options.items():
        where = f"topologyManagerPolicyOptions.{name}"
        if name == "prefer-closest-numa-nodes":
            values["prefer_closest_numa_nodes"] = _flag(where, value)
        elif name == "max-allowable-numa-nodes":
            values["max_allowable_numa_nodes"] = _node_limit(where, value)
        else:
            raise ValueError(f"{where}: unknown option: must be prefer-closest-numa-nodes or max-allowable-numa-nodes")
    return msgspec.convert(values, TopologyOptions)


def cpu_options(options: Mapping[str, object]) -> CpuOptions:
    """cpuManagerPolicyOptions as they stand in a configuration. Raises ValueError that names the option."""
    fields = {field.replace("_", "-"): field for field in CpuOptions.__struct_fields__}
    for name in options.keys() - fields.keys():
        raise ValueError(f"cpuManagerPolicyOptions.{name}: unknown option: must be one of {', '.join(fields)}")
    return CpuOptions(
        **{fields[name]: _flag(f"cpuManagerPolicyOptions.{name}", value) for name, value in options.items()}
    )


def _flag(where: str, value: object) -> bool:
    text = str(value)
    flag = parse_bool(text)
    if flag is None:
        raise ValueError(f'{where}: invalid value {text!r}: must be "true" or "false", in quotes')
    return flag


def _node_limit(where: str, value: object) -> int:
    least = TopologyOptions().max_allowable_numa_nodes
    text = str(value)
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"{where}: invalid value {text!r}: must be an integer of at least {least}, in quotes")
    return int(text)
