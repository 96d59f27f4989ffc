"""kubelet's topology manager: of what the other managers hint at, the one hint that a container is given.

`policy_for` takes the policy that a kubelet runs with; each policy is one file, and merges with the functions of
`merge`, in one of two generations. `order` says which of two masks is better.

A merge is a fold over resources, not kubelet's cross product of all hints: 4 resources of an 8-node machine are
4 billion combinations there and at most 255 masks here.

Not here: what the hints are (the other managers), the order in which managers are asked and their answers are
carried out (`purser.core.kubelet.admission`).
"""

from purser.core.kubelet.topologymanager.policies import policy_for
from purser.core.kubelet.topologymanager.policy import HintMerger

__all__ = ["HintMerger", "policy_for"]
