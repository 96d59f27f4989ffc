"""The kernel: one pure function from a `Snapshot` to an `Outcome`.

`reconcile` reads as the round goes: ``active`` chooses the policy, ``facts`` and ``pools`` say what nodes are,
``standing`` how far they are; the state machines of ``upgrade`` and ``mig`` move; ``gates`` says which operands a node
gets, `purser.operator.merging` makes one write per node of it all; ``drift`` and ``objects`` say what has to be applied
or removed;
``failing``, ``conditions`` and ``status`` tell people. ``leaving`` takes everything away again, and ``others`` is about
policies that do not count.

Two rules make it safe to kill the operator between any two writes. A state and its effect travel in one write, never in
two that must both happen. And what is done next is found from what is there, not from what was done.

Not here: manifests (``operands``), the steps of an upgrade or a MIG change, and any I/O.
"""

from purser.operator.kernel.drift import projection
from purser.operator.kernel.leaving import cleanup, is_clean
from purser.operator.kernel.reconcile import nodes_to_look_into, reconcile, upgrade_fleet

__all__ = ["cleanup", "is_clean", "nodes_to_look_into", "projection", "reconcile", "upgrade_fleet"]
