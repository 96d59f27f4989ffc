"""The agent's seam to NVIDIA's management library (NVML).

Here: what the agent asks of a driver (`driver`), the real binding over any copy of libnvidia-ml (`library`, with
`calls`, `devices` and `nvlinks`), a null driver that says why there is none (`null`), and the health policy as pure
functions (`xids`, `health`).

Not here: what is done with the answers. No kubelet, no Kubernetes, no metrics names, no sharing, no threads: every call
is a plain blocking function, and its caller decides where it runs. The simulated driver of the lab is in
`purser.lab.driver`; nothing here knows of it.
"""

from purser.agent.nvml.driver import (
    ComputeProcess,
    DeviceFault,
    DeviceReading,
    Driver,
    DriverError,
    DriverInfo,
    Ecc,
    FaultKind,
    Gpu,
    MigMode,
    RecoveryAction,
    RemappedRows,
    XidEvent,
)
from purser.agent.nvml.health import DeviceHealth
from purser.agent.nvml.library import LibraryDriver, open_driver
from purser.agent.nvml.null import NullDriver
from purser.agent.nvml.xids import XidClass, XidPolicy

__all__ = [
    "ComputeProcess",
    "DeviceFault",
    "DeviceHealth",
    "DeviceReading",
    "Driver",
    "DriverError",
    "DriverInfo",
    "Ecc",
    "FaultKind",
    "Gpu",
    "LibraryDriver",
    "MigMode",
    "NullDriver",
    "RecoveryAction",
    "RemappedRows",
    "XidClass",
    "XidEvent",
    "XidPolicy",
    "open_driver",
]
