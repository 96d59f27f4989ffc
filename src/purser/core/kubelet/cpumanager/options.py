"""The options of policy static: which a kubelet knows, and which it refuses together or on a machine.

`purser.core.kubelet.versions` has the version of each; for an alpha option its feature gate is assumed to be on.
"""

from collections.abc import Iterator

from purser.core.kubelet.config import CpuOptions, TopologyPolicy
from purser.core.kubelet.cpumanager.topology import CpuTopology, topology_of
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.state import KubeletNode
from purser.core.kubelet.versions import behaviour

FULL_PCPUS_ONLY = "full-pcpus-only"
ACROSS_NUMA = "distribute-cpus-across-numa"
BY_SOCKET = "align-by-socket"
ACROSS_CORES = "distribute-cpus-across-cores"
STRICT_RESERVATION = "strict-cpu-reservation"
BY_UNCORE = "prefer-align-cpus-by-uncorecache"

_EXCLUSIVE_PAIRS = (
    (FULL_PCPUS_ONLY, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (BY_UNCORE, ACROSS_CORES),
    (BY_UNCORE, ACROSS_NUMA),
)


def check_options(node: KubeletNode) -> None:
    """Refuse options as kubelet does at its start. Raises `KubeletStartError`."""
    chosen = frozenset(_chosen(node.config.cpu_options))
    for option in sorted(chosen - behaviour(node.config.parsed_version).cpu_policy_options):
        raise KubeletStartError(f'unknown CPU Manager Policy option: "{option}"')
    for one, other in _EXCLUSIVE_PAIRS:
        if {one, other} <= chosen:
            raise KubeletStartError(f"static policy options {one} and {other} can not be used at the same time")
    if BY_SOCKET in chosen:
        _check_by_socket(node, topology_of(node))


def _check_by_socket(node: KubeletNode, topology: CpuTopology) -> None:
    policy = TopologyPolicy.SINGLE_NUMA_NODE
    if node.config.topology_policy is policy:
        raise KubeletStartError(
            f"Topolgy manager {policy} policy is incompatible with CPUManager {BY_SOCKET} policy option"
        )
    if topology.num_sockets > topology.num_numa_nodes:
        raise KubeletStartError(
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        )


def _chosen(options: CpuOptions) -> Iterator[str]:
    values = {
        FULL_PCPUS_ONLY: options.full_pcpus_only,
        ACROSS_NUMA: options.distribute_cpus_across_numa,
        BY_SOCKET: options.align_by_socket,
        ACROSS_CORES: options.distribute_cpus_across_cores,
        STRICT_RESERVATION: options.strict_cpu_reservation,
        BY_UNCORE: options.prefer_align_cpus_by_uncorecache,
    }
    return (name for name, is_set in values.items() if is_set)
