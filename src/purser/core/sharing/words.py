"""Words of NVIDIA's device plugin for how GPUs are cut and shared; its feature discovery has the same in labels."""

from enum import StrEnum


class MigStrategy(StrEnum):
    """How MIG devices become kubelet resources."""

    NONE = "none"
    """Not at all: a GPU is handed out as if it had none."""
    SINGLE = "single"
    """As GPUs: all of a node are cut, and all alike."""
    MIXED = "mixed"
    """By profile: ``nvidia.com/mig-1g.5gb``."""
    ON_DEMAND = "on-demand"
    """Purser's own: GPU instances are made on GPUs with MIG enabled when a pod is granted one."""


class SharingStrategy(StrEnum):
    """How the replicas of a device share it."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
