"""MIG geometry: in which sizes GPUs are cut (`profiles`), what lies where (`geometry`), and where the next instance is
to be created (`choice`). Pure.

Not here: layouts that an administrator asks for (`purser.agent.mig`, `purser.operator.mig`), which say how many of each
profile and leave the places to the driver; of all this they use the names of profiles alone. The lab's driver takes
its tables from here; nothing chooses places by `choice` yet but benchmarks/mig.py.
"""

from purser.core.mig.choice import MigChooser, chooser
from purser.core.mig.geometry import (
    MigGeometry,
    MigGeometryError,
    MigPlacement,
    bits_of,
    free_starts,
    packed,
    room_table,
)
from purser.core.mig.profiles import MIG_KINDS, MigKind, MigProfile, kind_of_device, profile_name

__all__ = [
    "MIG_KINDS",
    "MigChooser",
    "MigGeometry",
    "MigGeometryError",
    "MigKind",
    "MigPlacement",
    "MigProfile",
    "bits_of",
    "chooser",
    "free_starts",
    "kind_of_device",
    "packed",
    "profile_name",
    "room_table",
]
