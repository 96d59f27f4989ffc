"""kubelet's CPU manager: which exclusive CPUs a container has (policies none and static).

Containers of Guaranteed pods that request whole CPUs get exclusive ones; all others run in the shared pool. All
functions take a `purser.core.kubelet.state.CpuState` and return a new one; None, the state of policy none, stays None.

`start` reserves CPUs and checks the saved state, `hints` and `pod_hints` speak to the topology manager, `allocate`
picks, `remove` and `free_all_but` take back, `checkpoint` reads and writes cpu_manager_state. One module for each
algorithm: `by_socket` (up to 1.21), `packed` with its variants `spread` and `uncore`, `distributed`; `picking` chooses.

Not here: cgroups and the reconcile loop, CPUs of pods as a whole (PodLevelResourceManagers, off in 1.37),
resizing in place, and distribution by sockets (distribute-cpus-across-numa with align-by-socket, 1.37).
"""

from purser.core.kubelet.cpumanager.allocation import CpuAllocation, CpuRefusal, allocate
from purser.core.kubelet.cpumanager.release import free_all_but, remove
from purser.core.kubelet.cpumanager.starting import start
from purser.core.kubelet.cpumanager.topology_hints import hints, pod_hints

__all__ = ["CpuAllocation", "CpuRefusal", "allocate", "free_all_but", "hints", "pod_hints", "remove", "start"]
