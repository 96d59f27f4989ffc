"""A simulated NVIDIA driver: one folder per node, behind the real NVML bindings.

Here: node profiles (`profiles`), a node's state (`state`, of `parts`), the C library with NVML's symbols
(``library/``, `compile`) and the file that it reads (`statefile`), the same functions in Python for machines without a
C compiler (`python_nvml`), what both answer (`readings`), the node that faults are injected into (`node`), what
they do to a GPU (`changes`), and what GPUs are cut into (`node_mig`).

Not here: kubelet, containers, /dev. The agent gets a driver as it gets the real one; nothing in `purser.agent` knows of
this package.
"""

from purser.lab.driver.node import DriverKind, SimulatedDriver
from purser.lab.driver.profiles import NodeProfile, ProfileError

__all__ = ["DriverKind", "NodeProfile", "ProfileError", "SimulatedDriver"]
