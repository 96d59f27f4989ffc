"""The round: one pure function from a `Snapshot` to a `RoundOutcome`.

`reconcile` reads as the round goes:

- ``policy.decoding`` chooses the policy. ``gates`` finds where each GPU node belongs and how far its operands are.
- The state machines of ``upgrade`` and ``mig`` say their next steps, ``gates`` which operands a node gets, and one
  write per node is made of it all.
- ``manifests`` says what has to be applied or removed.
- ``status`` says how it goes, of ``failing`` nodes, too, in conditions, events and gauges.
- Where there is nothing to decide: ``policies`` is about those that are not active, cannot be read or belong to another
  operator, and removes everything once there is none.
- ``isolation`` leaves those nodes out of a round on which it fails unexpectedly.

Two rules make it safe to kill the operator between any two writes. A state and its effect travel in one write, never in
two that must both happen. And what is done next is found from what is there, not from what was done.

Not here: manifests, the steps of an upgrade or a MIG change, and any I/O.
"""

from purser.operator.deciding.policies import is_clean
from purser.operator.deciding.reconcile import nodes_to_inspect, reconcile, upgrade_fleet
from purser.operator.gates import blocked_removals

__all__ = ["blocked_removals", "is_clean", "nodes_to_inspect", "reconcile", "upgrade_fleet"]
