"""Which GPUs are cut on demand, and which MIG device a share of a grant is. Pure."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from purser.agent.nvml.driver import Gpu
from purser.core.mig import MigKind, MigPlacement, kind_of_device
from purser.core.model import ContainerGrant, Device, DeviceShare, Grant
from purser.core.sharing import MigStrategy

InstanceDevices: TypeAlias = Mapping[tuple[str, MigPlacement], str]
"""uuids of MIG devices, by the uuid of their GPU and their place on it."""


def on_demand_kind(gpu: Gpu, strategy: MigStrategy) -> MigKind | None:
    """How a GPU is cut on demand; None: it is not, or Purser does not know GPUs of its kind."""
    if strategy is not MigStrategy.ON_DEMAND or not gpu.is_partitioned:
        return None
    return kind_of_device(gpu.pci_device)


def granted_devices(grant: Grant, devices: InstanceDevices) -> Grant:
    """The grant with the MIG devices that are there in the place of their GPUs."""
    return msgspec.structs.replace(
        grant, containers=tuple(part_with_devices(part, devices) for part in grant.containers)
    )


def part_with_devices(part: ContainerGrant, devices: InstanceDevices) -> ContainerGrant:
    """The same of one container."""
    if all(share.mig is None for share in part.shares):
        return part
    return msgspec.structs.replace(part, shares=tuple(_as_device(share, devices) for share in part.shares))


def _as_device(share: DeviceShare, devices: InstanceDevices) -> DeviceShare:
    uuid = devices.get((share.uuid, share.mig)) if share.mig is not None else None
    return share if not uuid else DeviceShare(uuid, share.memory_mib, share.cores_percent)


def mig_device(gpu: Device, uuid: str) -> Device:
    """An instance's MIG device, as the inventory lists those that an administrator made."""
    return msgspec.structs.replace(gpu, uuid=uuid, parent=gpu.uuid, slots=1, mig_kind="", mig_held=())
