"""kubelet's memory manager, policy Static: which NUMA nodes a Guaranteed pod's memory and hugepages come from.

`start` makes the state of a node or takes up a saved one; `hints` and `pod_hints` compute the topology manager's hints;
`allocate` takes the memory; `free_all_but` and `remove` release it. The central rule is that of groups: a node that
serves allocations of its own may join none that span several nodes, and a node in such a group serves only that group
(KEP-1769).

`tables` counts bytes on nodes, `asked` reads a pod's requests, `hinting` enumerates node sets, `allocation` takes,
`starting` validates, `checkpoint` is the text of memory_manager_state.

Not here: policy None (the node's state has no `MemoryState` then), the BestEffort policy of Windows, pod-level
resources (an alpha gate in 1.36), and cgroups: the manager decides, the container runtime pins.
"""

from purser.core.kubelet.errors import CheckpointError, KubeletStartError
from purser.core.kubelet.memorymanager.allocation import allocate, free_all_but, remove
from purser.core.kubelet.memorymanager.hinting import Reusable, hints, pod_hints
from purser.core.kubelet.memorymanager.starting import start

__all__ = [
    "CheckpointError",
    "KubeletStartError",
    "Reusable",
    "allocate",
    "free_all_but",
    "hints",
    "pod_hints",
    "remove",
    "start",
]
