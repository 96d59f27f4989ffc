"""What a container gets with its devices: kubelet's allocation response for one granted container. Pure.

The variables and mounts are HAMi-core's contract, which runs in the container where the node has it.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import PurePath

import msgspec

from purser.core.grant import share_variables
from purser.core.grant.enforcement import enforcement_of
from purser.core.model import ContainerGrant, Device, Enforcement, Grant, LibraryHold

_LIBRARY_DIR = PurePath("/usr/local/vgpu")
_DEVICES_DIR = PurePath("/var/run/nvidia-container-devices")
_CDI_KIND = "nvidia.com/gpu"
"""In the specification that NVIDIA's container toolkit writes, where devices have their uuids among their names."""
_CDI_ANNOTATION = "cdi.k8s.io/purser.dev_gpu"
_CONTROL_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


class DeviceList(StrEnum):
    """How a container's devices are named to what adds them; the words are NVIDIA's device plugin's."""

    VARIABLE = "envvar"
    """The variable NVIDIA_VISIBLE_DEVICES alone, which a container's own variables replace."""
    MOUNTS = "volume-mounts"
    """Mounts as well, which the toolkit heeds first (``accept-nvidia-visible-devices-as-volume-mounts``)."""
    CDI_ANNOTATIONS = "cdi-annotations"
    """CDI's names as well, in an annotation of the container, which containerd 1.7 and CRI-O 1.23 read."""
    CDI_CRI = "cdi-cri"
    """CDI's names as well, in kubelet's own field for them: kubelet 1.29 and a runtime that reads it."""


class Mount(msgspec.Struct, frozen=True):
    """A host path in a container."""

    container_path: str
    host_path: str
    read_only: bool = True


class ContainerFacts(msgspec.Struct, frozen=True):
    """What of the pod's spec matters for the answer."""

    priority: int | None = None
    """HAMi-core's task priority, 0 is high."""
    hold: LibraryHold = LibraryHold.FULL


class AllocationFacts(msgspec.Struct, frozen=True):
    """What of the node matters for the answer."""

    devices: Mapping[str, Device]
    library_dir: str
    """On the host: `AgentSettings.hami_core_dir`."""
    lock_dir: str
    device_nodes: tuple[str, ...] = ()
    """Device files of the node, by name in /dev; empty where none are to be passed."""
    minors: Mapping[str, int] = {}
    """The n of /dev/nvidia<n> by uuid."""
    device_list: DeviceList = DeviceList.VARIABLE

    def enforcement_of(self, part: ContainerGrant, hold: LibraryHold) -> Enforcement:
        """What holds a container to its part of a grant here and now; nothing of a device that is gone."""
        known = (self.devices.get(uuid) for uuid in part.uuids)
        return enforcement_of(part, hold, [each.enforcement if each else Enforcement.NONE for each in known])


class ContainerAllocation(msgspec.Struct, frozen=True):
    """Environment, mounts, device files and CDI devices of one container."""

    environment: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[str, ...] = ()
    """Names in /dev, same path in the container, to read and write."""
    annotations: Mapping[str, str] = {}
    """For the container runtime."""
    cdi_devices: tuple[str, ...] = ()
    """Full names, as ``nvidia.com/gpu=GPU-...``."""


def answer(grant: Grant, part: ContainerGrant, container: ContainerFacts, node: AllocationFacts) -> ContainerAllocation:
    """The answer for one container of a pod."""
    enforcement = node.enforcement_of(part, container.hold)
    library = _mounts(grant, part, node) if enforcement.has_library else ()
    cdi_names = tuple(f"{_CDI_KIND}={uuid}" for uuid in part.uuids)
    return ContainerAllocation(
        environment=_environment(grant, part, container, node, enforcement),
        mounts=(*library, *_named_by_mounts(part, node)),
        device_nodes=_device_nodes(part, node),
        annotations={_CDI_ANNOTATION: ",".join(cdi_names)} if node.device_list is DeviceList.CDI_ANNOTATIONS else {},
        cdi_devices=cdi_names if node.device_list is DeviceList.CDI_CRI else (),
    )


def cache_dir(grant: Grant, part: ContainerGrant, library_dir: str) -> str:
    """On the host: the folder in which HAMi-core keeps its accounting of one container."""
    return f"{library_dir}/containers/{grant.pod_uid}_{part.container}"


def in_bus_order(part: ContainerGrant, devices: Mapping[str, Device]) -> ContainerGrant:
    """The shares in the order in which the container will count its devices: by PCI bus id, as NVML does."""

    def key(uuid: str) -> tuple[str, str]:
        device = devices.get(uuid)
        return ("" if device is None else device.pci_bus_id, uuid)

    return msgspec.structs.replace(part, shares=tuple(sorted(part.shares, key=lambda share: key(share.uuid))))


def _environment(
    grant: Grant, part: ContainerGrant, container: ContainerFacts, node: AllocationFacts, enforcement: Enforcement
) -> dict[str, str]:
    part = in_bus_order(part, node.devices)
    variables = {
        share_variables.VISIBLE_DEVICES: ",".join(part.uuids),
        share_variables.ENFORCEMENT: enforcement.value,
    }
    if not part.is_whole:
        variables |= _limits(part)
    if enforcement.has_library:
        variables["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{_LIBRARY_DIR}/{grant.pod_uid}.cache"
        if container.priority is not None:
            variables["CUDA_TASK_PRIORITY"] = str(container.priority)
    return variables


def _limits(part: ContainerGrant) -> dict[str, str]:
    """HAMi-core knows one compute limit for all devices of a container: the first device's."""
    limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{place}": f"{share.memory_mib}m" for place, share in enumerate(part.shares)}
    cores_percent = part.shares[0].cores_percent if part.shares else 0
    return limits | ({"CUDA_DEVICE_SM_LIMIT": str(cores_percent)} if 0 < cores_percent < 100 else {})


def _mounts(grant: Grant, part: ContainerGrant, node: AllocationFacts) -> tuple[Mount, ...]:
    """The cache folder comes before the library, which is mounted inside it."""
    return (
        Mount(str(_LIBRARY_DIR), cache_dir(grant, part, node.library_dir), read_only=False),
        Mount(f"{_LIBRARY_DIR}/libvgpu.so", f"{node.library_dir}/libvgpu.so"),
        Mount("/etc/ld.so.preload", f"{node.library_dir}/ld.so.preload"),
        Mount("/tmp/vgpulock", node.lock_dir, read_only=False),
    )


def _named_by_mounts(part: ContainerGrant, node: AllocationFacts) -> tuple[Mount, ...]:
    """A mount of /dev/null per device: NVIDIA's toolkit takes these before any variable, where it is told to."""
    if node.device_list is not DeviceList.MOUNTS:
        return ()
    return tuple(Mount(f"{_DEVICES_DIR}/{uuid}", "/dev/null") for uuid in part.uuids)


def _device_nodes(part: ContainerGrant, node: AllocationFacts) -> tuple[str, ...]:
    control: Iterable[str] = (name for name in _CONTROL_DEVICES if name in node.device_nodes)
    minors = sorted(node.minors[uuid] for uuid in part.uuids if uuid in node.minors)
    own = (f"nvidia{minor}" for minor in minors if f"nvidia{minor}" in node.device_nodes)
    return (*control, *own)
