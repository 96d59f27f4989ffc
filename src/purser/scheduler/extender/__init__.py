"""What kube-scheduler asks, and what Purser does for the pods in kube-scheduler's queue.

- `KubeExtender` (``extender``): the four verbs, and the loop beside them.
- ``requeue_hints``: wakes kube-scheduler for pods that were refused and fit by now.
- ``early_nominations``: chooses nodes before kube-scheduler asks, in large clusters.

Not here: HTTPS and messages (``server``, ``extender_wire``, ``extender_api``), who leads (``leadership_gate``), and
what would make a pod fit (``explaining``).
"""

from purser.scheduler.extender.extender import KubeExtender

__all__ = [
    "KubeExtender",
]
