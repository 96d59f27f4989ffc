"""Pods of lower priority leave for one that fits nowhere.

- `Preemptor` (``preemptor``): answers kube-scheduler, and preempts where kube-scheduler finds no victims.
- ``victims``: the victims on each node.

Not here: who is spared (``cache.budgets``), and what is kept for pods that others left for (``cache.nominations``).
"""

from purser.scheduler.preemption.preemptor import Preemptor

__all__ = [
    "Preemptor",
]
