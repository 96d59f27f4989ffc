"""Changes of MIG layouts: a state machine over one snapshot of the fleet. It says what to do next, and does nothing.

A change's step stands in one annotation of its node, written in the same patch as what the step does, so that a change
goes on where it was whoever dies. However it ends, the paused operands come back.

Not here: applying a layout (the MIG worker in ``purser.agent.mig``), and the writing (``acting``).
"""
