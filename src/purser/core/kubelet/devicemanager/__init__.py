"""kubelet's device manager: which devices there are, who holds them, which ones a container gets.

Pure functions over `purser.core.kubelet.state.DeviceManagerState`: ``plugins`` processes reports of device plugins and
computes the node's devices, ``holdings`` who holds what, ``topologyhints`` the hints for the topology manager,
``allocation`` chooses devices and asks the plugins, ``registration`` says which plugins are taken, ``checkpoint`` is
the file that survives a restart. Functions are named after kubelet's where it has one; what kubelet leaves to chance
(which of equally good devices, which resource first) goes by name here.

Not here: sockets and files, and the merging of plugins' responses into a container's run options, which needs their
protobuf messages (`purser.lab.kubelet`).
"""

from purser.core.kubelet.devicemanager.allocation import allocate, reusable_devices
from purser.core.kubelet.devicemanager.holdings import free_all_but, held_by
from purser.core.kubelet.devicemanager.plugins import (
    Capacity,
    allocatable,
    capacity,
    is_device_resource,
    register,
    registered,
    restore,
    stop,
    update,
    with_plugins_of,
)
from purser.core.kubelet.devicemanager.topologyhints import Reusable, hints, pod_hints

__all__ = [
    "Capacity",
    "Reusable",
    "allocatable",
    "allocate",
    "capacity",
    "free_all_but",
    "held_by",
    "hints",
    "is_device_resource",
    "pod_hints",
    "register",
    "registered",
    "restore",
    "reusable_devices",
    "stop",
    "update",
    "with_plugins_of",
]
