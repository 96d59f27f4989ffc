"""The MIG worker: brings the GPUs of one node into the layout that the operator asks for.

The operator writes a `MigRequest` to the node, the worker (`worker`) answers with a `MigResult`. Layouts come from a
file in mig-parted's form (`layouts`); what differs is applied, and undone where it fails (`applying`); GPUs are behind
a seam with the real NVML and a null object (`hardware`, `nvml`).

Not here: when a node may be changed. It is cordoned and empty before a request comes (`purser.operator.mig`).
"""

from purser.agent.mig.hardware import HardwareError, Layout, MigGpu, MigHardware, NoHardware
from purser.agent.mig.layouts import LayoutError
from purser.agent.mig.worker import run

__all__ = ["HardwareError", "Layout", "LayoutError", "MigGpu", "MigHardware", "NoHardware", "run"]
