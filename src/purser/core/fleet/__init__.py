"""The fleet: every node's devices together with what is taken of them, in two forms.

`Fleet` is what the live scheduler knows, node by node, built from inventories, the book and what kubelets report
(`fleet`), with what is known of each kubelet (`kubelet_snapshot`), what is free beside GPUs (`free_resources`) and what
is kept for pods without grants (`kept`).
`FleetArrays` is what decisions are made from: one array per fact over all nodes, GPU axis first, changed row by row
(`arrays`, fed with `facts`); in the live scheduler it follows a `Fleet` (`live`), the simulator has only that. `rule`
says whether a GPU takes a container, and what is left of it, for all of these.

Not here: who holds what (`purser.core.ledger`), and which node is best (`purser.core.placement`).
"""

from purser.core.fleet.fleet import DeviceState, Fleet, NodeState, node_state
from purser.core.fleet.free_resources import FreeResources
from purser.core.fleet.kept import NO_NOMINATED_USAGE, NominatedUsage, nominated_usage

__all__ = [
    "NO_NOMINATED_USAGE",
    "DeviceState",
    "Fleet",
    "FreeResources",
    "NodeState",
    "NominatedUsage",
    "node_state",
    "nominated_usage",
]
