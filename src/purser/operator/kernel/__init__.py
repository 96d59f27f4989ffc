"""The kernel: one pure function from a `Snapshot` to an `Outcome`.

`reconcile` reads as the round goes:

- ``active_policy`` chooses the policy; ``facts`` and ``pools`` say what nodes are and where they belong, with
  ``unseen_gpus`` on GPUs that may not count as gone yet; ``standing`` how far operands are on them, with
  ``missing_pods`` on those that have no pod, and ``driver_removal`` on drivers that are to leave and still have users.
- The state machines of ``upgrade`` and ``mig`` move; ``late_sets`` says which drivers cannot come yet. ``gates``
  says which operands a node gets, and `purser.operator.merging` makes one write per node of it all.
- ``objects`` says what has to be applied or removed, by what ``drift`` finds to differ.
- ``status`` tells people how it goes, of ``conditions`` and ``failing`` nodes, and ``policy_writes`` brings it to the
  policy; ``events`` says what became otherwise, and what gauges are told.
- Where there is nothing to decide: ``standstill`` is about an active policy that cannot be read or has a rival,
  ``inactive_policies`` about all others, and ``cleanup`` takes everything away once there is none.

Two rules make it safe to kill the operator between any two writes. A state and its effect travel in one write, never in
two that must both happen. And what is done next is found from what is there, not from what was done.

Not here: manifests (``operands``), the steps of an upgrade or a MIG change, and any I/O.
"""

from purser.operator.kernel.cleanup import is_clean
from purser.operator.kernel.driver_removal import held_back
from purser.operator.kernel.reconcile import nodes_to_look_into, reconcile, upgrade_fleet

__all__ = ["held_back", "is_clean", "nodes_to_look_into", "reconcile", "upgrade_fleet"]
