"""The agent's seam to NVIDIA's management library (NVML).

Here: what the agent asks of a driver (`driver`), the real binding over any copy of libnvidia-ml (`library`, with
`calls`, `devices`, `nvlinks`, for MIG `migs` and `instances`, and for what is measured `telemetry` and `gpm`), what
another process sees of the GPUs (`fresh`), and a null driver that says why there is none (`null`). What its answers
say of a GPU's health is judged in `purser.core.health`, and whose its processes are in `purser.core.monitoring`.

Not here: what is done with the answers. No kubelet, no Kubernetes, no sharing, no threads: every call is a plain
blocking function, and its caller decides where it runs. The simulated driver of the lab is in `purser.lab.driver`;
nothing here knows of it.
"""

from purser.agent.nvml.driver import (
    DeviceReading,
    Driver,
    DriverError,
    DriverInfo,
    Ecc,
    Gpu,
    GpuInstance,
    GpuProcess,
    InstanceTelemetry,
    MigCallError,
    MigContents,
    MigMode,
    MigTrouble,
    Telemetry,
    XidEvent,
)
from purser.agent.nvml.library import LibraryDriver, open_driver
from purser.agent.nvml.null import NullDriver

__all__ = [
    "DeviceReading",
    "Driver",
    "DriverError",
    "DriverInfo",
    "Ecc",
    "Gpu",
    "GpuInstance",
    "GpuProcess",
    "InstanceTelemetry",
    "LibraryDriver",
    "MigCallError",
    "MigContents",
    "MigMode",
    "MigTrouble",
    "NullDriver",
    "Telemetry",
    "XidEvent",
    "open_driver",
]
