"""What differs between kubelets, in one table: a `Behaviour` for each version.

Boundaries are those at which upstream's change was released (Kubernetes pull requests named at each field).
"""

import re
from functools import cache

import msgspec

Version = tuple[int, int, int]
"""Major, minor and patch."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def parse_version(text: str) -> Version:
    """``v1.29.4-gke.100`` as (1, 29, 4). Raises ValueError."""
    found = _VERSION.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no kubelet version: expected one such as v1.36.2")
    return int(found[1]), int(found[2]), int(found[3] or 0)


class Behaviour(msgspec.Struct, frozen=True):
    """The switches of one kubelet version. True is the newer behaviour."""

    merges_equal_masks: bool
    """A merged hint is preferred only where all masks are equal (PRs 108052, 108154; 1.24)."""
    has_policy_options: bool
    """Topology manager policy options exist (KEP-3545; 1.26)."""
    registers_synchronously: bool
    """Register dials the plugin and asks for its options before it answers (PR 109016; 1.25)."""
    any_numa_node_aligns: bool
    """A device on several NUMA nodes is aligned when any of them is in the mask (PR 101893; 1.22)."""
    needs_a_node_for_topology: bool
    """A device has a topology only if that names a node. Older ones count an empty topology as one."""
    checks_health_of_held_devices: bool
    """Unregistered and unhealthy devices are errors before all else (PRs 114640, 116376; 1.25.10, 1.26.5, 1.27.2)."""
    no_topology_key: int
    """Where the checkpoint has devices without topology: 0, since 1.23 -1 (PR 103289)."""
    packs_by_numa: bool
    """takeByTopology knows NUMA nodes and is deterministic (PR 102014; 1.22)."""
    has_memory_manager: bool
    """The memory manager is a hint provider, the last one (KEP-1769; 1.21)."""
    enumerates_bearing_nodes_only: bool
    """Device hints name only NUMA nodes that hold the resource (PR 138244; 2026, seen in 1.36.2)."""
    has_sidecars: bool
    """Init containers with restartPolicy Always keep what they hold (KEP-753; 1.28)."""
    merges_cdi_devices: bool
    """CDI devices of Allocate responses reach the runtime (KEP-4009; 1.28 alpha, on since 1.29)."""
    was_rejected_prefix: bool
    """status.message starts with ``Pod was rejected: `` instead of ``Pod ``."""
    has_allocatable_resources: bool
    """PodResources has GetAllocatableResources (1.21 alpha, on by default since 1.23)."""
    has_pod_resources_get: bool
    """PodResources has Get (1.27 alpha, on by default since 1.34)."""
    lists_active_pods_only: bool
    """PodResources lists active pods only (1.34)."""
    lists_exclusive_cpus_only: bool
    """PodResources lists exclusive CPUs only; older ones list the shared pool for the other containers."""
    keeps_unknown_sockets: bool
    """At its start kubelet removes only sockets from the plugin folder; 1.20 every file but the checkpoint."""


@cache
def behaviour(version: Version) -> Behaviour:
    """The switches of a version; versions beyond the newest known one behave like it."""
    return Behaviour(
        merges_equal_masks=version >= (1, 24, 0),
        has_policy_options=version >= (1, 26, 0),
        registers_synchronously=version >= (1, 25, 0),
        any_numa_node_aligns=version >= (1, 22, 0),
        needs_a_node_for_topology=version >= (1, 22, 0),
        checks_health_of_held_devices=_has_reboot_checks(version),
        no_topology_key=-1 if version >= (1, 23, 0) else 0,
        packs_by_numa=version >= (1, 22, 0),
        has_memory_manager=version >= (1, 21, 0),
        enumerates_bearing_nodes_only=version >= (1, 36, 2),
        has_sidecars=version >= (1, 28, 0),
        merges_cdi_devices=version >= (1, 28, 0),
        was_rejected_prefix=version >= (1, 22, 0),
        has_allocatable_resources=version >= (1, 23, 0),
        has_pod_resources_get=version >= (1, 34, 0),
        lists_active_pods_only=version >= (1, 34, 0),
        lists_exclusive_cpus_only=version >= (1, 22, 0),
        keeps_unknown_sockets=version >= (1, 22, 0),
    )


def _has_reboot_checks(version: Version) -> bool:
    """The fix went into three patch releases at once."""
    first_patch = {25: 10, 26: 5, 27: 2}
    major, minor, patch = version
    return (major, minor) >= (1, 28) or (major == 1 and minor in first_patch and patch >= first_patch[minor])
