"""The driver upgrade: a state machine over one snapshot of the fleet. It says what to do next, and does nothing.

A node's state stands in its label ``nvidia.com/gpu-driver-upgrade-state``; everything else that must outlive a round is
an annotation beside it, written in the same patch.

Not here: which driver a node should have (``kernel``), and the writing (``acting``).
"""
