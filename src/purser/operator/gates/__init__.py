"""The order gates: which operand a node gets now.

Every operand has a label ``nvidia.com/gpu.deploy.<operand>`` on each GPU node, and its DaemonSet selects it. A gate
opens once all that the operand needs is ready on that node (``order``), and stays open whatever becomes of what it
needs, until one of a few causes closes or pauses it. What the label says, per operand and node::

    closed                     -> open
    open                       -> closed, paused-for-driver-upgrade, paused-for-mig-change
    paused-for-driver-upgrade  -> closed, open, paused-for-mig-change
    paused-for-mig-change      -> closed, open, paused-for-driver-upgrade

It closes for a reboot, for a driver that is to be removed once no pod uses it, for GPUs that are gone, and because the
policy or people say so; a paused one, which has to wait for its turn again, also because what it needs is not ready.
What people write there themselves (``false``) stays.

A round asks, in this order:

- `node_assignments` and `wanted_pools` (``assignment``): where each GPU node belongs, of what it is (``facts``).
- `driver_removals` (``driver_removal``): drivers that are to leave and still have users.
- `node_progress` (``progress``): how far each operand is on each node, and what keeps it out.
- `gate_patch` (``labels``): the labels and annotations of one node that follow; `gone_patch` and `removal_patch`: what
  is taken away where nothing follows any more.

Not here: the manifests, and what is done to a node whose driver or MIG layout changes (``upgrade``, ``mig``).
"""

from purser.operator.gates.assignment import node_assignments, wanted_pools
from purser.operator.gates.driver_removal import blocked_removals, driver_removals, removal_blocker
from purser.operator.gates.facts import (
    CONTAINER,
    do_gpus_support_mig,
    has_nfd,
    nodes_about_to_lose_gpus,
    unknown_workload,
)
from purser.operator.gates.labels import NO_POLICY, changes_pool, gate_patch, gone_patch, is_marked, removal_patch
from purser.operator.gates.progress import (
    REASONS_WITHOUT_POD,
    is_unobserved,
    missing_pod_deadline,
    node_progress,
    outdated_daemonsets,
    ready_deadline,
    stale_validations,
)

__all__ = [
    "CONTAINER",
    "NO_POLICY",
    "REASONS_WITHOUT_POD",
    "blocked_removals",
    "changes_pool",
    "do_gpus_support_mig",
    "driver_removals",
    "gate_patch",
    "gone_patch",
    "has_nfd",
    "is_marked",
    "is_unobserved",
    "missing_pod_deadline",
    "node_assignments",
    "node_progress",
    "nodes_about_to_lose_gpus",
    "outdated_daemonsets",
    "ready_deadline",
    "removal_blocker",
    "removal_patch",
    "stale_validations",
    "unknown_workload",
    "wanted_pools",
]
