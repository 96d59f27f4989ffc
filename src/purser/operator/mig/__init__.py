"""Changes of MIG layouts: a state machine over one snapshot of the fleet. It says what to do next, and does nothing.

The label ``nvidia.com/mig.config`` names the layout that a node is to have. A change's step stands in one annotation of
its node, written in the same patch as what the step does, so that a change goes on where it was whoever dies::

    checking   the node's worker is asked whether the layout differs; nothing is touched
    draining   cordoned, operands that hold GPUs paused; GPU pods leave by eviction
    applying   the worker is asked to apply the layout

However it ends (success, an error, a timeout, a label that changed, a manager that was switched off), one write takes
the record away, lifts the cordon if it is ours, and says how it ended; with the record the pause is over, too.

Not here: applying a layout (the MIG worker in ``purser.agent.mig``), and the writing (``acting``).
"""

from purser.operator.mig.advance import advance
from purser.operator.mig.states import GPU_CLIENTS, MigFleet, is_under_way, needs_workloads, pause_of, trouble_of

__all__ = ["GPU_CLIENTS", "MigFleet", "advance", "is_under_way", "needs_workloads", "pause_of", "trouble_of"]
