"""The cluster as the scheduler knows it, from informers: `ClusterCache` holds all of it.

- Of nodes: devices (``cache``), what their agents dispute (``disputes``), what is free beside GPUs
  (``node_free_resources``), what their kubelets hold (``kubelets``; ``topologies``: where no agent says).
- Of pods: what they ask for (``readings``), which arrive (``arrivals``), which are nominated (``nominations``), what
  those that are bound hold (``bound_grants``), what HAMi's scheduler wrote on them (``hami_records``).
- Of namespaces: ``budgets``, the disruption budgets, and `purser.adapters.quotas`.

Not here: what follows from it, and grants that the API server does not have yet (``placement``).
"""

from purser.scheduler.cache.cache import ClusterCache
from purser.scheduler.cache.topologies import Topologies

__all__ = [
    "ClusterCache",
    "Topologies",
]
