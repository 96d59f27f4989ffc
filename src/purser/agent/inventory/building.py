"""What a node has, out of what its driver reported. Pure, but for `has_library`, which looks for two files."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from purser.agent.host.hostfiles import on_host
from purser.agent.inventory.enforcement import Enforcers, enforcement_of_device
from purser.agent.inventory.mps_capability import max_clients, mps_obstacle
from purser.agent.nvml.driver import DriverInfo, Gpu
from purser.agent.settings import AgentSettings, EnforcementChoice
from purser.agent.sharing import SharingConfig
from purser.core.device.ids import id_sort_key, reported_numa_nodes
from purser.core.dialects.managed import is_managed
from purser.core.health.machine import GpuHealth
from purser.core.mig import MIG_KINDS, MigPlacement
from purser.core.mig.listing import ids_by_resource, max_instances
from purser.core.mig.profiles import compute_slices_of
from purser.core.model import Device, DeviceMode, Enforcement, NodeInventory, PartitionedGpu
from purser.core.names import GPU_RESOURCE
from purser.core.sharing import AdvertisedDevice, SharingStrategy, advertised_devices, refuses_second_replica
from purser.core.sharing.managed import managed_devices

LIBRARY_FILE = "libvgpu.so"
"""HAMi-core's preload library, in `AgentSettings.hami_core_dir`."""

PRELOAD_FILE = "ld.so.preload"
"""The file that makes the dynamic loader load it, beside the library."""

MIG_REASON = (
    "MIG mode is enabled: set a MIG strategy so that Purser serves MIG devices, or disable MIG (nvidia-smi -mig 0)"
)


class KubeletDevice(msgspec.Struct, frozen=True):
    """One of kubelet's devices: a GPU, a MIG device, or a slot of one; a place for a GPU instance."""

    id: str
    healthy: bool
    numa_nodes: tuple[int, ...] = ()
    resource: str = GPU_RESOURCE


class InventoryBasis(msgspec.Struct, frozen=True):
    """What a node's inventory is made of, but for its GPUs' health."""

    sharing: SharingConfig
    info: DriverInfo
    gpus: tuple[Gpu, ...]
    scan: int = 0
    """Counts looks at the driver."""


UngrantedInstances: TypeAlias = tuple[MigPlacement, ...] | str
"""What is on a GPU that is cut on demand and no grant's; a text says why that is not known."""


def make_inventory(
    settings: AgentSettings,
    basis: InventoryBasis,
    health: Mapping[str, GpuHealth],
    enforcers: Enforcers,
    agent_version: str,
    ungranted: Mapping[str, UngrantedInstances] | None = None,
    problems: list[str] | None = None,
    mismatch: str = "",
) -> NodeInventory:
    """The node's inventory. GPUs that were never readable have no identity and are left out (see `unreadable`), and so
    are those that the configuration keeps from pods. ``ungranted``: by uuid, of GPUs that are cut on demand.
    ``problems``: takes a sentence for each thing that the configuration says and these GPUs are not. ``mismatch``: why
    the node's own configuration, which sets a MIG strategy, does not hold.

    Raises `SharingError` where the configuration and these GPUs do not go together at all.
    """
    config, info = basis.sharing, basis.info
    problems = [] if problems is None else problems
    by_uuid = _gpus_for_pods(basis)
    node_gpus = [gpu.as_node_gpu() for gpu in by_uuid.values()]
    problems += config.set_aside.missing((gpu.uuid, gpu.index) for gpu in basis.gpus if gpu.uuid)
    found = managed_devices(
        advertised_devices(node_gpus, config.file, config.settings.mig_strategy, problems),
        config.file,
        lambda name: is_managed(name, settings.managed_resources),
        problems,
    )
    devices = []
    for each in found:
        gpu = by_uuid[each.parent or each.uuid]
        reason, degraded = _obstacle(gpu, health), _problem_of_open(gpu, health)
        if not reason and gpu.is_partitioned and not (each.parent or each.mig_kind):
            reason = (
                f"MIG mode is enabled, but the node's configuration does not match: {mismatch}"
                if mismatch
                else MIG_REASON
            )
        if each.mig_kind:
            cut_on_demand = _partitioned_on_demand(gpu, each, reason, (ungranted or {}).get(each.uuid, ()))
            devices.append(msgspec.structs.replace(cut_on_demand, degraded_reason=degraded))
            continue
        whole = _device(settings, info, gpu, each, reason, enforcers)
        whole = msgspec.structs.replace(whole, degraded_reason=degraded)
        is_shared = each.sharing is not SharingStrategy.NONE
        devices.append(_replicated_device(settings, whole, each, config, enforcers) if is_shared else whole)
    listed = {each.uuid for each in found}
    cut = (gpu for uuid, gpu in by_uuid.items() if gpu.is_partitioned and uuid not in listed)
    is_hami_core = bool(devices) and all(device.enforcement is Enforcement.HAMI_CORE for device in devices)
    return NodeInventory(
        node=settings.node_name,
        devices=tuple(sorted(devices, key=lambda device: (device.index, device.uuid))),
        cut=tuple(
            PartitionedGpu(gpu.uuid or "", gpu.name, gpu.memory_mib, not _obstacle(gpu, health), gpu.index)
            for gpu in cut
        ),
        enforcement=Enforcement.HAMI_CORE if is_hami_core else Enforcement.NONE,
        driver_version=info.version or "",
        agent_version=agent_version,
    )


def _gpus_for_pods(basis: InventoryBasis) -> dict[str, Gpu]:
    """The GPUs that have an identity and are not kept from pods, by it."""
    is_set_aside = basis.sharing.set_aside.names
    return {gpu.uuid: gpu for gpu in basis.gpus if gpu.uuid and not is_set_aside(gpu.uuid, gpu.index)}


def unreadable(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs that cannot be advertised because the driver never reported their identity."""
    return tuple(gpu for gpu in gpus if not gpu.uuid)


def _device(
    settings: AgentSettings, info: DriverInfo, gpu: Gpu, each: AdvertisedDevice, reason: str, enforcers: Enforcers
) -> Device:
    """One that is not divided."""
    mode = DeviceMode.MIG if each.parent else settings.mode
    if mode is DeviceMode.SHARED and not each.memory_mib:  # nobody knows how much a share would be
        mode = DeviceMode.WHOLE
    slots = settings.slots if mode is DeviceMode.SHARED else 1
    if settings.enforcement is EnforcementChoice.MPS and slots > 1 and not mps_obstacle(gpu, info.cuda_version):
        mode, slots = DeviceMode.MPS, min(slots, max_clients(gpu, info.cuda_version))
    return Device(
        uuid=each.uuid,
        index=gpu.index,
        model=gpu.name,
        memory_mib=each.memory_mib,
        slots=slots,
        numa_nodes=() if gpu.numa_node is None else (gpu.numa_node,),
        pci_bus_id=gpu.pci_bus_id,
        links=() if each.parent else gpu.links,
        mode=mode,
        healthy=not reason,
        unhealthy_reason=reason,
        compute_capability=gpu.compute_capability,
        enforcement=enforcement_of_device(settings.enforcement, each.uuid, slots, mode, enforcers),
        resource=each.resource,
        parent=each.parent,
        compute_slices=next((mig.ci_slices for mig in gpu.migs if mig.uuid == each.uuid), 0),
        gpu_compute_slices=compute_slices_of(gpu.pci_device) if each.parent else 0,
    )


def _partitioned_on_demand(gpu: Gpu, each: AdvertisedDevice, reason: str, ungranted: UngrantedInstances) -> Device:
    """A GPU on which instances are made as grants name them."""
    unknown = f"the GPU's instances are unknown: {ungranted}" if isinstance(ungranted, str) else ""
    reason = reason or unknown
    return Device(
        uuid=each.uuid,
        index=gpu.index,
        model=gpu.name,
        memory_mib=each.memory_mib,
        slots=max_instances(MIG_KINDS[each.mig_kind]),
        numa_nodes=() if gpu.numa_node is None else (gpu.numa_node,),
        pci_bus_id=gpu.pci_bus_id,
        mode=DeviceMode.MIG,
        healthy=not reason,
        unhealthy_reason=reason,
        compute_capability=gpu.compute_capability,
        enforcement=Enforcement.MIG,
        resource=each.resource,
        mig_kind=each.mig_kind,
        mig_held=() if isinstance(ungranted, str) else ungranted,
    )


def _replicated_device(
    settings: AgentSettings, device: Device, each: AdvertisedDevice, config: SharingConfig, enforcers: Enforcers
) -> Device:
    """The same as this many equal replicas, which HAMi-core does not limit: they have no amounts."""
    by_mps = each.sharing is SharingStrategy.MPS and settings.enforcement in (
        EnforcementChoice.AUTO,
        EnforcementChoice.MPS,
    )
    mode = DeviceMode.MPS if by_mps else DeviceMode.TIME_SLICING
    enforcers = Enforcers(mps=enforcers.mps)
    return msgspec.structs.replace(
        device,
        slots=each.replicas,
        replicas=each.replicas,
        mode=mode,
        enforcement=enforcement_of_device(settings.enforcement, each.uuid, each.replicas, mode, enforcers),
        one_each=refuses_second_replica(config.file.sharing),
        packed=config.settings.allocation_policy == "packed",
    )


def _obstacle(gpu: Gpu, health: Mapping[str, GpuHealth]) -> str:
    """Why the GPU takes no pods, whatever it is handed out as; empty: it does."""
    known = health.get(gpu.uuid or "")
    if known is not None and not known.takes_pods:
        return known.reason
    return "" if gpu.fault is None else str(gpu.fault)


def _problem_of_open(gpu: Gpu, health: Mapping[str, GpuHealth]) -> str:
    """Why a GPU that takes pods is degraded; empty: it is not."""
    known = health.get(gpu.uuid or "")
    return known.reason if known is not None and known.takes_pods else ""


def device_indexes(gpus: Iterable[Gpu]) -> dict[str, str]:
    """How NVIDIA's device plugin names devices by index, by uuid: ``0``, of a MIG device ``0:1``."""
    found = {}
    for gpu in gpus:
        if gpu.uuid:
            found[gpu.uuid] = str(gpu.index)
        found |= {mig.uuid: f"{gpu.index}:{at}" for at, mig in enumerate(gpu.migs)}
    return found


def advertise(inventory: NodeInventory, held: Mapping[str, str]) -> tuple[KubeletDevice, ...]:
    """kubelet's complete lists: every slot of every device, and as unhealthy what pods hold of GPUs that are gone: a
    kubelet that re-admits a pod whose device left the list dereferences nil (1.36.2) or rejects the pod (1.20.2).

    ``held`` is the resource of each id that a pod holds: the node may list its device under another by now.
    """
    listed = [
        KubeletDevice(device_id, device.healthy, reported_numa_nodes(device), resource)
        for device in inventory.devices
        for resource, ids in ids_by_resource(device).items()
        for device_id in ids
    ]
    known = {(entry.resource, entry.id) for entry in listed}
    gone = [
        KubeletDevice(device_id, healthy=False, resource=resource)
        for device_id, resource in held.items()
        if (resource, device_id) not in known
    ]
    return tuple(sorted(listed + gone, key=lambda entry: (id_sort_key(entry.id), entry.resource)))


def has_library(settings: AgentSettings) -> bool:
    """Whether this node has both of HAMi-core's files."""
    folder = on_host(settings, settings.hami_core_dir)
    return all((folder / name).is_file() for name in (LIBRARY_FILE, PRELOAD_FILE))


def devices_by_uuid(inventory: NodeInventory) -> dict[str, Device]:
    """The inventory's devices by their identity."""
    return {device.uuid: device for device in inventory.devices}
