"""GPU instances of MIG on demand: the agent makes those that grants name, and removes those that none names any more.

What is to be done on one GPU is decided in `planning`, which is pure; which instances are the agent's own stands in a
file per GPU (`records`), written before an instance is made; `cutting` does it, call by call, so that an agent that is
killed between any two leaves what the next one understands. `keeping` has one of these at work per GPU, off the event
loop, and sees to what is left over, as `users` tells who has what; `giving` has containers given theirs. `devices` says
which MIG device a share of a grant is.

Not here: which instance a pod gets and where it lies, which the scheduler decides; NVML's calls (`purser.agent.nvml`);
layouts that an administrator asks the operator for (`purser.agent.mig`).
"""

from purser.agent.instances.cutting import GpuCut
from purser.agent.instances.giving import InstanceGiver
from purser.agent.instances.keeping import InstanceError, InstanceKeeper
from purser.agent.instances.users import NodeInstanceUsers

__all__ = ["GpuCut", "InstanceError", "InstanceGiver", "InstanceKeeper", "NodeInstanceUsers"]
