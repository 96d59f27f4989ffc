"""What differs between kubelets, in one table: a `Behaviour` for each version.

Boundaries are those at which upstream's change was released, and where a gate holds it, at which that is on by default:
each field names the pull request or the enhancement (KEP), or the release in whose source the difference stands first
where neither is known. All were looked up in the sources of the releases beside them.
"""

import re
from functools import lru_cache

import msgspec

Version = tuple[int, int, int]
"""Major, minor and patch."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def parse_version(text: str) -> Version:
    """``v1.29.4-gke.100`` as (1, 29, 4). Raises ValueError."""
    found = _VERSION.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not a kubelet version: must have a form such as v1.36.2")
    return int(found[1]), int(found[2]), int(found[3] or 0)


class Behaviour(msgspec.Struct, frozen=True):
    """The switches of one kubelet version. True is the newer behaviour."""

    merges_equal_masks: bool
    """A merged hint is preferred only where all masks are equal (PRs 108052, 108154; 1.24)."""
    has_policy_options: bool
    """Topology manager policy options exist (KEP-3545; 1.26)."""
    has_max_allowable_numa_nodes: bool
    """One of them is max-allowable-numa-nodes (KEP-4622; 1.31)."""
    registers_synchronously: bool
    """Register dials the plugin and asks for its options before it answers (PR 109016; 1.25)."""
    ends_newest_plugin: bool
    """The end of any plugin of a resource ends the one that registered last, be it another one (runClient since PR
    109016; 1.25 to 1.36). Seen on 1.36.3."""
    keeps_plugins_by_socket: bool
    """The plugins of a resource are told apart by their sockets: where one of several ends, another one takes its
    place, and a socket that kubelet has not seen end cannot register again (read in the source: 1.37)."""
    any_numa_node_aligns: bool
    """A device on several NUMA nodes is aligned when any of them is in the mask (PR 101893; 1.22)."""
    needs_a_node_for_topology: bool
    """A device has a topology only if that names a node. Older ones count an empty topology as one (read in the source:
    1.26)."""
    checks_health_of_held_devices: bool
    """Unregistered and unhealthy devices are errors before all else (PRs 114640, 116376; 1.25.10, 1.26.5, 1.27.2)."""
    keeps_last_admission: bool
    """The pod that a manager was asked about last counts as active there until it is asked about another one, be it
    over or gone by then (``pendingAdmissionPod``, PR 103979; 1.22.1 to 1.31). Seen on 1.28.15."""
    wants_devices_for_zero: bool
    """A container that asks for 0 of a resource cannot be created where the plugin wants PreStartContainer (until PR
    96781; 1.21)."""
    prints_empty_answers: bool
    """Its error about an Allocate answer without containers shows that answer; protobuf prints nothing instead of it,
    gogo did something (the generated API in k8s.io/kubelet; until 1.34). Seen on 1.20.2 and 1.36.3."""
    no_topology_key: int
    """Where the checkpoint has devices without topology: 0, since 1.23 -1 (PR 103289)."""
    packs_by_numa: bool
    """takeByTopology knows NUMA nodes and is deterministic (PR 102014; 1.22). 1.22 itself is deterministic and takes
    whole sockets, but no whole NUMA nodes yet (1.23): where a socket has several, it is treated like its successors."""
    has_memory_manager: bool
    """The memory manager is a hint provider, the last one (KEP-1769; 1.21)."""
    guards_memory_groups: bool
    """The memory manager refuses to allocate from nodes that break its groups (PR 123443; 1.32)."""
    enumerates_bearing_nodes_only: bool
    """Device hints name only NUMA nodes that hold the resource (PR 138244; 1.36)."""
    has_sidecars: bool
    """Init containers with restartPolicy Always keep what they hold (KEP-753; 1.28 alpha, on since 1.29)."""
    merges_cdi_devices: bool
    """CDI devices of Allocate responses reach the runtime (KEP-4009; 1.28 alpha, on since 1.29)."""
    was_rejected_prefix: bool
    """status.message starts with ``Pod was rejected: `` instead of ``Pod `` (read in the source: 1.26). Nothing but the
    text depends on it."""
    has_allocatable_resources: bool
    """PodResources has GetAllocatableResources (KEP-2403; 1.21 alpha, on by default since 1.23)."""
    refuses_allocatable_resources: bool
    """It has the call and answers that it is disabled (KEP-2403; 1.21 and 1.22)."""
    has_pod_resources_get: bool
    """PodResources has Get (KEP-3695; 1.27 alpha, on by default since 1.34)."""
    refuses_pod_resources_get: bool
    """It has the call and answers that it is disabled (KEP-3695; 1.27 to 1.33). Seen on 1.32.2."""
    lists_active_pods_only: bool
    """PodResources lists active pods only (gate KubeletPodResourcesListUseActivePods; 1.34)."""
    lists_sidecars: bool
    """PodResources lists sidecars too (read in the source: 1.30)."""
    lists_exclusive_cpus_only: bool
    """PodResources lists exclusive CPUs only; older ones list the shared pool for the other containers (read in the
    source: 1.23)."""
    keeps_unknown_files: bool
    """At its start kubelet removes only sockets from the plugin folder; older ones every file but the checkpoint (read
    in the source: 1.33)."""
    keeps_cpus_of_siblings: bool
    """A removed container gives back no CPU that another one of its pod still holds (PR 104837; 1.24)."""
    checks_free_physical_cpus: bool
    """full-pcpus-only counts free CPUs without the siblings of reserved ones (PR 114114; 1.27)."""
    names_exhausted_physical_cpus: bool
    """Its error says so even when none is free (PR 127959; 1.32)."""
    keeps_parts_of_cores: bool
    """A container keeps the CPUs that it has where full-pcpus-only would refuse it now (read in the source: 1.37)."""
    limits_numa_shares: bool
    """distribute-cpus-across-numa takes no more of a NUMA node than it has, and honours align-by-socket (1.37)."""
    counts_cpus_in_errors: bool
    """``not enough cpus available`` says how many were asked for and are there (read in the source:
    1.29)."""
    takes_odd_uncore_parts: bool
    """prefer-align-cpus-by-uncorecache fits odd remainders into one cache too (PR 131850; 1.34)."""
    adds_data_to_state_files: bool
    """The state files of the CPU and the memory manager have their content once more, as a string with a checksum of
    its own (1.37). Seen on 1.37.2."""
    cpu_policy_options: frozenset[str]
    """The options that the static CPU manager policy knows, those behind an alpha gate included."""


_CPU_POLICY_OPTIONS: dict[str, Version] = {
    "full-pcpus-only": (1, 22, 0),
    "distribute-cpus-across-numa": (1, 23, 0),
    "align-by-socket": (1, 25, 0),
    "distribute-cpus-across-cores": (1, 31, 0),
    "strict-cpu-reservation": (1, 32, 0),
    "prefer-align-cpus-by-uncorecache": (1, 32, 0),
}
"""Since when each option exists (KEPs 2625, 2902, 3327, 4176, 4540, 4800)."""


@lru_cache(maxsize=256)
def behaviour(version: Version) -> Behaviour:
    """The switches of a version; versions beyond the newest known one behave like it."""
    return Behaviour(
        merges_equal_masks=version >= (1, 24, 0),
        has_policy_options=version >= (1, 26, 0),
        has_max_allowable_numa_nodes=version >= (1, 31, 0),
        registers_synchronously=version >= (1, 25, 0),
        ends_newest_plugin=(1, 25, 0) <= version < (1, 37, 0),
        keeps_plugins_by_socket=version >= (1, 37, 0),
        any_numa_node_aligns=version >= (1, 22, 0),
        needs_a_node_for_topology=version >= (1, 26, 0),
        checks_health_of_held_devices=_has_reboot_checks(version),
        keeps_last_admission=(1, 22, 1) <= version < (1, 32, 0),
        wants_devices_for_zero=version < (1, 21, 0),
        prints_empty_answers=version < (1, 34, 0),
        no_topology_key=-1 if version >= (1, 23, 0) else 0,
        packs_by_numa=version >= (1, 22, 0),
        has_memory_manager=version >= (1, 21, 0),
        guards_memory_groups=version >= (1, 32, 0),
        enumerates_bearing_nodes_only=version >= (1, 36, 0),
        has_sidecars=version >= (1, 29, 0),
        merges_cdi_devices=version >= (1, 29, 0),
        was_rejected_prefix=version >= (1, 26, 0),
        has_allocatable_resources=version >= (1, 23, 0),
        refuses_allocatable_resources=(1, 21, 0) <= version < (1, 23, 0),
        has_pod_resources_get=version >= (1, 34, 0),
        refuses_pod_resources_get=(1, 27, 0) <= version < (1, 34, 0),
        lists_active_pods_only=version >= (1, 34, 0),
        lists_sidecars=version >= (1, 30, 0),
        lists_exclusive_cpus_only=version >= (1, 23, 0),
        keeps_unknown_files=version >= (1, 33, 0),
        keeps_cpus_of_siblings=version >= (1, 24, 0),
        checks_free_physical_cpus=version >= (1, 27, 0),
        names_exhausted_physical_cpus=version >= (1, 32, 0),
        keeps_parts_of_cores=version >= (1, 37, 0),
        limits_numa_shares=version >= (1, 37, 0),
        counts_cpus_in_errors=version >= (1, 29, 0),
        takes_odd_uncore_parts=version >= (1, 34, 0),
        adds_data_to_state_files=version >= (1, 37, 0),
        cpu_policy_options=frozenset(name for name, since in _CPU_POLICY_OPTIONS.items() if version >= since),
    )


def _has_reboot_checks(version: Version) -> bool:
    """The fix went into three patch releases at once."""
    first_patch = {25: 10, 26: 5, 27: 2}
    major, minor, patch = version
    return (major, minor) >= (1, 28) or (major == 1 and minor in first_patch and patch >= first_patch[minor])
