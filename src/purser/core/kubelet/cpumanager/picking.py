"""Which algorithm picks the CPUs: a matter of kubelet's version and options."""

from purser.core.kubelet.config import CpuOptions
from purser.core.kubelet.cpumanager.by_socket import take_by_socket
from purser.core.kubelet.cpumanager.distributed import take_distributed
from purser.core.kubelet.cpumanager.packed import take_packed
from purser.core.kubelet.cpumanager.topology import CpuTopology
from purser.core.kubelet.cpuset import CpuSet
from purser.core.kubelet.versions import Behaviour


def take_cpus(
    behaviour: Behaviour, options: CpuOptions, topology: CpuTopology, available: CpuSet, count: int
) -> CpuSet:
    """``count`` of the available CPUs (takeByTopology). Raises `taking.NotTakenError`."""
    if not behaviour.packs_by_numa:
        return take_by_socket(topology, available, count)
    if options.distribute_cpus_across_numa:
        return take_distributed(
            topology,
            available,
            count,
            topology.cpus_per_core if options.full_pcpus_only else 1,
            is_spread=options.distribute_cpus_across_cores,
            by_socket=options.align_by_socket and behaviour.limits_numa_shares,
            limits_shares=behaviour.limits_numa_shares,
            counted_errors=behaviour.counts_cpus_in_errors,
        )
    return take_packed(
        topology,
        available,
        count,
        is_spread=options.distribute_cpus_across_cores,
        by_uncore=options.prefer_align_cpus_by_uncorecache,
        odd_uncore_parts=behaviour.takes_odd_uncore_parts,
        counted_errors=behaviour.counts_cpus_in_errors,
    )
