"""What a container gets with its devices: kubelet's allocation response for one granted container. Pure.

The variables and mounts are HAMi-core's contract, which runs in the container where the node has it.
"""

from collections.abc import Mapping
from pathlib import PurePath

import msgspec

from purser.agent.cdi.names import cdi_name
from purser.agent.inventory.device_files import CONTROL_DEVICES, IMEX_CHANNEL
from purser.agent.kubelet.calls import ContainerAllocation, Mount
from purser.agent.mps.access import ClientAccess, client_access
from purser.agent.sharing.device_lists import DeviceList
from purser.core.dialects import environment
from purser.core.grant import share_variables
from purser.core.grant.enforcement import enforcement_of
from purser.core.model import ContainerGrant, Device, Enforcement, Grant, SpecHold
from purser.core.pod.manifest import PodManifest

_LIBRARY_DIR = PurePath("/usr/local/vgpu")
_LIST_DIR = "/var/run/nvidia-container-devices"
"""Of mounts by which NVIDIA's toolkit is named devices."""
_CDI_ANNOTATION_SUFFIX = "purser.dev_gpu"
"""Behind the prefix of annotations that name CDI devices."""
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"


class ContainerFacts(msgspec.Struct, frozen=True):
    """What of the pod's spec matters for the answer."""

    priority: int | None = None
    """HAMi-core's task priority, 0 is high."""
    hold: SpecHold = SpecHold()
    pod: PodManifest | None = None
    """None: nothing is known of it."""


class DeviceListing(msgspec.Struct, frozen=True):
    """How this node names devices to what adds them."""

    ways: frozenset[DeviceList] = frozenset({DeviceList.VARIABLE})
    indexes: Mapping[str, str] = {}
    """Of each device, by uuid: what it is named by. A device that is not here is named by its uuid."""
    annotation_prefix: str = "cdi.k8s.io/"
    extra_cdi_classes: tuple[str, ...] = ()
    """Classes of CDI that every container has all devices of: ``gdrcopy``, ``gds``, ``mofed``."""
    variables: Mapping[str, str] = {}
    """Of every container."""
    imex_channels: tuple[int, ...] = ()


class DeviceNodes(msgspec.Struct, frozen=True):
    """The node's device files, by name in /dev."""

    there: frozenset[str]
    of_device: Mapping[str, tuple[str, ...]] = {}
    """By uuid, those that a device has for itself: nvidia<n> of a GPU, of a MIG device its capabilities too."""
    root: str = ""
    """On the host: what is before /dev."""


class AllocationFacts(msgspec.Struct, frozen=True):
    """What of the node matters for the answer."""

    devices: Mapping[str, Device]
    library_dir: str
    """On the host: `AgentSettings.hami_core_dir`."""
    lock_dir: str
    listing: DeviceListing = DeviceListing()
    nodes: DeviceNodes | None = None
    """None: the runtime adds device nodes by itself."""
    mps_exclusive: bool = False
    """Whether only clients of MPS may use GPUs that have a daemon: `AgentSettings.mps_exclusive`."""

    def enforcement_of(self, part: ContainerGrant, hold: SpecHold) -> Enforcement:
        """What holds a container to its part of a grant here and now; nothing of a device that is gone."""
        known = (self.devices.get(uuid) for uuid in part.uuids)
        return enforcement_of(part, hold, [each.enforcement if each else Enforcement.NONE for each in known])

    def mps_access(self, part: ContainerGrant, enforcement: Enforcement) -> ClientAccess | None:
        """What makes a container a client of its GPU's MPS daemon; None: it is none."""
        limited = enforcement in (Enforcement.MPS, Enforcement.MPS_ADVISORY)
        devices = [self.devices.get(uuid) for uuid in set(part.uuids)]
        has_daemon = len(devices) == 1 and devices[0] is not None and devices[0].enforcement is Enforcement.MPS
        return client_access(part, limited=limited) if limited or (self.mps_exclusive and has_daemon) else None


NO_DEVICES = ContainerAllocation({share_variables.VISIBLE_DEVICES: "void"})
"""For a container that does not start: NVIDIA's toolkit adds nothing for ``void``."""


def answer(grant: Grant, part: ContainerGrant, container: ContainerFacts, node: AllocationFacts) -> ContainerAllocation:
    """The answer for one container of a pod."""
    enforcement = node.enforcement_of(part, container.hold)
    library = _mounts(grant, part, node) if enforcement.has_library else ()
    mps = node.mps_access(part, enforcement)
    daemon = tuple(Mount(inside, host, read_only=False) for inside, host in mps.mounts) if mps else ()
    listing, names = node.listing, _names(part, node)
    cdi = _cdi_names(names, listing)
    annotation = f"{listing.annotation_prefix}{_CDI_ANNOTATION_SUFFIX}"
    variables = _environment(grant, part, container, node, enforcement) | (dict(mps.environment) if mps else {})
    return ContainerAllocation(
        environment=variables | _listed(names, listing),
        mounts=(*library, *daemon, *_device_mounts(names, listing)),
        device_nodes=_device_nodes(part, node),
        annotations={annotation: ",".join(cdi)} if DeviceList.CDI_ANNOTATIONS in listing.ways else {},
        cdi_devices=cdi if DeviceList.CDI_CRI in listing.ways else (),
    )


def _names(part: ContainerGrant, node: AllocationFacts) -> tuple[str, ...]:
    """The devices' names for the container runtime, each once, in the container's order."""
    uuids = ordered_by_bus_id(part, node.devices).uuids
    return tuple(dict.fromkeys(node.listing.indexes.get(uuid, uuid) for uuid in uuids))


def _listed(names: tuple[str, ...], listing: DeviceListing) -> dict[str, str]:
    """The variables that name devices: those of mounts hide the others."""
    channels = {IMEX_CHANNELS: ",".join(map(str, listing.imex_channels))} if listing.imex_channels else {}
    found = dict(listing.variables)
    if DeviceList.VARIABLE in listing.ways:
        found |= {share_variables.VISIBLE_DEVICES: ",".join(names), **channels}
    if DeviceList.MOUNTS in listing.ways:
        found[share_variables.VISIBLE_DEVICES] = _LIST_DIR
    return found


def _cdi_names(names: tuple[str, ...], listing: DeviceListing) -> tuple[str, ...]:
    return (
        *(cdi_name("gpu", name) for name in names),
        *(cdi_name("imex-channel", str(channel)) for channel in listing.imex_channels),
        *(cdi_name(each, "all") for each in listing.extra_cdi_classes),
    )


def cache_dir(grant: Grant, part: ContainerGrant, library_dir: str) -> str:
    """On the host: the folder in which HAMi-core keeps its accounting of one container."""
    return f"{library_dir}/containers/{grant.pod_uid}_{part.container}"


def ordered_by_bus_id(part: ContainerGrant, devices: Mapping[str, Device]) -> ContainerGrant:
    """The shares in the order in which the container will count its devices: by PCI bus id, as NVML does."""

    def key(uuid: str) -> tuple[str, str]:
        device = devices.get(uuid)
        return ("" if device is None else device.pci_bus_id, uuid)

    return msgspec.structs.replace(part, shares=tuple(sorted(part.shares, key=lambda share: key(share.uuid))))


def _environment(
    grant: Grant, part: ContainerGrant, container: ContainerFacts, node: AllocationFacts, enforcement: Enforcement
) -> dict[str, str]:
    part = ordered_by_bus_id(part, node.devices)
    variables = {share_variables.ENFORCEMENT: enforcement.value}
    if container.pod is not None:
        variables |= environment(container.pod, grant, part, node.devices)
    if not (part.is_whole or enforcement is Enforcement.MIG or _has_replicas(part, node)):
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


def _has_replicas(part: ContainerGrant, node: AllocationFacts) -> bool:
    """A replica has no amounts, and so no limits for the container."""
    return any(uuid in node.devices and node.devices[uuid].replicas > 1 for uuid in part.uuids)


def _device_mounts(names: tuple[str, ...], listing: DeviceListing) -> tuple[Mount, ...]:
    """A mount of /dev/null per device: NVIDIA's toolkit prefers these to any variable, where it is configured to."""
    if DeviceList.MOUNTS not in listing.ways:
        return ()
    channels = (f"imex/{channel}" for channel in listing.imex_channels)
    return tuple(Mount(f"{_LIST_DIR}/{name}", "/dev/null") for name in (*names, *channels))


def _device_nodes(part: ContainerGrant, node: AllocationFacts) -> tuple[Mount, ...]:
    """Where CDI is not all that names devices: with CDI the runtime adds their nodes."""
    if node.nodes is None or all(way.is_cdi for way in node.listing.ways):
        return ()
    own = (name for uuid in part.uuids for name in node.nodes.of_device.get(uuid, ()))
    channels = (f"{IMEX_CHANNEL}{channel}" for channel in node.listing.imex_channels)
    names = [name for name in (*CONTROL_DEVICES, *sorted(own), *channels) if name in node.nodes.there]
    return tuple(Mount(f"/dev/{name}", f"{node.nodes.root}/dev/{name}", False) for name in dict.fromkeys(names))
