"""GPU instances of MIG on demand: the agent creates those that grants name, and destroys those that no grant names any
more.

`planning`, which is pure, decides the changes of one GPU; a file per GPU (`records`), written before an instance is
created, has the agent's own instances; `cutting` makes the changes, call by call, so that an agent that is killed
between any two leaves a state that the next one understands. `keeping` runs one of these per GPU, off the event loop,
and removes leftovers; `giving` allocates instances to containers. `devices` finds the MIG device of a grant's share.

Not here: which instance a pod gets and its placement, which the scheduler decides; NVML's calls (`purser.agent.nvml`);
layouts of the operator (`purser.agent.mig`), who has instances (`purser.agent.allocation.instance_users`).
"""

from purser.agent.instances.cutting import GpuPartitioning
from purser.agent.instances.giving import InstanceAllocator
from purser.agent.instances.keeping import InstanceError, InstanceManager

__all__ = ["GpuPartitioning", "InstanceAllocator", "InstanceError", "InstanceManager"]
