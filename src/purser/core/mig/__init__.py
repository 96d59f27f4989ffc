"""MIG geometry: in which sizes GPUs are cut (`profiles`; of more boards the names alone: `families`), what lies where
(`geometry`), and where the next instance is to be created (`choice`, which computes with numpy and is imported by
itself: agents have no room for it). Pure.

Not here: layouts that an administrator asks for (`purser.agent.mig`, `purser.operator.mig`), which say how many of each
profile and leave the places to the driver; of all this they use the names of profiles alone.
"""

from purser.core.mig.geometry import (
    MigGeometry,
    MigGeometryError,
    MigPlacement,
    bits_of,
    free_starts,
    pack_instances,
)
from purser.core.mig.profiles import MIG_KINDS, MigKind, MigProfile, kind_of_device, profile_name

__all__ = [
    "MIG_KINDS",
    "MigGeometry",
    "MigGeometryError",
    "MigKind",
    "MigPlacement",
    "MigProfile",
    "bits_of",
    "free_starts",
    "kind_of_device",
    "pack_instances",
    "profile_name",
]
