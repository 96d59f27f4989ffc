"""What a node has, out of what its driver reported. Pure, but for `has_library`, which looks for two files."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from purser.agent.nvml.driver import DriverInfo, Gpu
from purser.agent.settings import AgentSettings
from purser.core.device.ids import device_ids, id_order, told_numa_nodes
from purser.core.health.machine import GpuHealth
from purser.core.model import Device, DeviceMode, Enforcement, NodeInventory

LIBRARY_FILE = "libvgpu.so"
"""HAMi-core's preload library, in `AgentSettings.hami_core_dir`."""

PRELOAD_FILE = "ld.so.preload"
"""The file that makes the dynamic loader load it, beside the library."""

MIG_REASON = "MIG mode is on: switch it off (nvidia-smi -mig 0) to have Purser hand this GPU out"


class Advertised(msgspec.Struct, frozen=True):
    """One of kubelet's devices: a GPU, or a slot of one."""

    id: str
    healthy: bool
    numa_nodes: tuple[int, ...] = ()


def make_inventory(
    settings: AgentSettings,
    info: DriverInfo,
    gpus: Iterable[Gpu],
    health: Mapping[str, GpuHealth],
    library: bool,
    agent_version: str,
) -> NodeInventory:
    """The node's inventory. GPUs that were never readable have no identity and are left out (see `unreadable`).

    ``library``: see `has_library`.
    """
    devices = [_device(settings, gpu, gpu.uuid, health.get(gpu.uuid), library) for gpu in gpus if gpu.uuid]
    by_library = bool(devices) and all(device.enforcement is Enforcement.HAMI_CORE for device in devices)
    return NodeInventory(
        node=settings.node_name,
        devices=tuple(sorted(devices, key=lambda device: (device.index, device.uuid))),
        enforcement=Enforcement.HAMI_CORE if by_library else Enforcement.NONE,
        driver_version=info.version or "",
        agent_version=agent_version,
    )


def unreadable(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs that cannot be advertised because the driver never told who they are."""
    return tuple(gpu for gpu in gpus if not gpu.uuid)


def _device(settings: AgentSettings, gpu: Gpu, uuid: str, health: GpuHealth | None, library: bool) -> Device:
    reason = _unhealthy_reason(gpu, health)
    slots = settings.slots if settings.mode is DeviceMode.SHARED else 1
    return Device(
        uuid=uuid,
        index=gpu.index,
        model=gpu.name,
        memory_mib=gpu.memory_mib,
        slots=slots,
        numa_nodes=() if gpu.numa_node is None else (gpu.numa_node,),
        pci_bus_id=gpu.pci_bus_id,
        links=gpu.links,
        mode=settings.mode,
        healthy=not reason,
        unhealthy_reason=reason,
        compute_capability=gpu.compute_capability,
        enforcement=_enforcement(slots, library),
    )


def _enforcement(slots: int, library: bool) -> Enforcement:
    if library:
        return Enforcement.HAMI_CORE
    return Enforcement.TIME_SLICING if slots > 1 else Enforcement.WHOLE_DEVICE


def _unhealthy_reason(gpu: Gpu, health: GpuHealth | None) -> str:
    if health is not None and not health.takes_pods:
        return health.reason
    if gpu.fault is not None:
        return str(gpu.fault)
    return MIG_REASON if gpu.mig is not None and gpu.mig.enabled else ""


def advertise(inventory: NodeInventory, held: Iterable[str]) -> tuple[Advertised, ...]:
    """kubelet's complete list: every slot of every device, and as unhealthy what pods hold of GPUs that are gone: a
    kubelet that re-admits a pod whose device left the list dereferences nil (1.36.2) or rejects the pod (1.20.2)."""
    listed = [
        Advertised(id=device_id, healthy=device.healthy, numa_nodes=told_numa_nodes(device))
        for device in inventory.devices
        for device_id in device_ids(device)
    ]
    known = {entry.id for entry in listed}
    gone = [Advertised(id=device_id, healthy=False) for device_id in set(held) - known]
    return tuple(sorted(listed + gone, key=lambda entry: id_order(entry.id)))


def has_library(settings: AgentSettings) -> bool:
    """Whether this node has both of HAMi-core's files."""
    folder = on_host(settings, settings.hami_core_dir)
    return all((folder / name).is_file() for name in (LIBRARY_FILE, PRELOAD_FILE))


def on_host(settings: AgentSettings, path: Path) -> Path:
    """Where the agent itself finds a path of the host."""
    return settings.host_root / path.relative_to("/")


def devices_by_uuid(inventory: NodeInventory) -> dict[str, Device]:
    """The inventory's devices by their identity."""
    return {device.uuid: device for device in inventory.devices}
