"""Changes of MIG layouts: a state machine over one snapshot of the fleet. It decides the next steps, and does no I/O.

The label ``nvidia.com/mig.config`` names the layout that a node is to have. A change's step stands in one annotation of
its node, written in the same patch as what the step does, so that a change continues after a crash of any process::

    checking   the node's worker is asked whether the layout differs; nothing is touched
    draining   cordoned, operands that hold GPUs paused; pods of GPUs that change leave by eviction
    applying   the worker is asked to apply the layout
    stopping   it took too long, or its manager was switched off: the request is withdrawn, and the node held until the
               manager's pod that may still be at it has gone

All transitions; ``(none)`` is a node without a change::

    (none)    -> checking, applying
    checking  -> draining, (none)
    draining  -> applying, (none)
    applying  -> stopping, (none)
    stopping  -> (none)

Straight to ``applying`` goes a node whose record was lost while its worker may be at it.

However it ends (success, an error, a timeout, a label that changed, a manager that was switched off), one write takes
the record away, lifts the cordon if it is ours, and says how it ended; with the record the pause is over, too.

A node is emptied for a change only within the bound of driver upgrades (``driver.upgradePolicy.maxUnavailable``): both
count the same nodes. One that is unavailable anyway needs no room.

`advance` (``machine``) asks for each node's next step; ``states`` has what is read off a node, and its patches.

Not here: applying a layout (the MIG worker in ``purser.agent.mig``), what it shares with driver upgrades
(``maintenance``), and the writing (``writing``).
"""

from purser.operator.mig.machine import advance, waits_of_changes
from purser.operator.mig.states import (
    GPU_CLIENTS,
    MigFleet,
    failure_of,
    is_under_way,
    makes_unavailable,
    needs_workloads,
    pause_of,
)

__all__ = [
    "GPU_CLIENTS",
    "MigFleet",
    "advance",
    "failure_of",
    "is_under_way",
    "makes_unavailable",
    "needs_workloads",
    "pause_of",
    "waits_of_changes",
]
