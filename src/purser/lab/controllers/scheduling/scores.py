"""kube-scheduler's scores: the share of CPU and memory that stays free (NodeResourcesFit, LeastAllocated)."""

from purser.lab.controllers.scheduling.filters import PodInfo
from purser.lab.controllers.scheduling.nodes import NodeInfo

MAX_NODE_SCORE = 100
# A container without requests counts as this much, as in kube-scheduler, lest pods pile up on one node.
_NON_ZERO = {"cpu": 100, "memory": 200 * 1024 * 1024 * 1000}


def least_allocated(view: PodInfo, node: NodeInfo) -> int:
    """0 to 100: the mean over CPU and memory of what would stay free."""
    return sum(_free_share(view, node, name) for name in _NON_ZERO) // len(_NON_ZERO)


def _free_share(view: PodInfo, node: NodeInfo, name: str) -> int:
    capacity = node.allocatable.get(name, 0)
    used = max(node.used.get(name, 0), _NON_ZERO[name] * len(node.pods))
    used += view.requests.get(name) or _NON_ZERO[name]
    return (capacity - used) * MAX_NODE_SCORE // capacity if 0 < used <= capacity else 0
