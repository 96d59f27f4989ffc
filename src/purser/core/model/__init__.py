"""The nouns of the kernel: what nodes have (`inventory`), pods ask for (`requests`, `policies`) and hold (`grants`).

All are frozen msgspec Structs: they decode with field-level errors at the rim and need no further validation inside.
What there is one of per device or node is left out of garbage collection: it holds no cycles, and there are thousands.
Memory is in MiB, compute in percent of one device (100 = the whole GPU). Devices are identified by uuid, never by
index.
"""

from purser.core.model.grants import ContainerGrant, DeviceShare, Grant, GrantState, PoolShare
from purser.core.model.inventory import (
    NVIDIA,
    WHOLE_MILLI,
    WHOLE_PERCENT,
    Amount,
    Device,
    DeviceMode,
    Enforcement,
    Link,
    MigPlacement,
    NodeInventory,
    NodePool,
    PartitionedGpu,
    PcieLevel,
    PcieSwitches,
    PoolPlace,
)
from purser.core.model.policies import GpuPolicy, NodePolicy, ScoreWeights
from purser.core.model.requests import ContainerRequest, DeviceRequest, GpuNic, LibraryHold, PodRequest, SpecHold
from purser.core.pod.manifest import ContainerKind

__all__ = [
    "NVIDIA",
    "WHOLE_MILLI",
    "WHOLE_PERCENT",
    "Amount",
    "ContainerGrant",
    "ContainerKind",
    "ContainerRequest",
    "Device",
    "DeviceMode",
    "DeviceRequest",
    "DeviceShare",
    "Enforcement",
    "GpuNic",
    "GpuPolicy",
    "Grant",
    "GrantState",
    "LibraryHold",
    "Link",
    "MigPlacement",
    "NodeInventory",
    "NodePolicy",
    "NodePool",
    "PartitionedGpu",
    "PcieLevel",
    "PcieSwitches",
    "PodRequest",
    "PoolPlace",
    "PoolShare",
    "ScoreWeights",
    "SpecHold",
]
