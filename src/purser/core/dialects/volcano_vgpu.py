"""Volcano's vGPUs (``deviceshare`` with ``VGPUEnable``): a share of the memory and compute of each of some GPUs.

Meanings are those of Volcano 1.14 (``pkg/scheduler/api/devices/nvidia/vgpu``): all memory and no limit of compute
where nothing is said of them, unlike HAMi, whose container would have the GPU alone. Volcano reads a percentage of
memory only where its ConfigMap names the resource, gives nothing to a container that names only compute or a
percentage, and ignores init containers; here all of these get what they name.
"""

from collections.abc import Mapping

import msgspec

from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.hami_codec import ContainerDevice, encode_pod_devices
from purser.core.dialects.nvidia import whole_gpus
from purser.core.dialects.quantities import amount, check_device_count, memory_mib
from purser.core.dialects.selectors import Selectors
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceRequest, Grant, NodeInventory
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.pod.units import unit_mib

VGPU_NUMBER = "volcano.sh/vgpu-number"
VGPU_MEMORY = "volcano.sh/vgpu-memory"
VGPU_MEMORY_PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
VGPU_CORES = "volcano.sh/vgpu-cores"

VGPU_NODE = "volcano.sh/vgpu-node"
VGPU_TIME = "volcano.sh/vgpu-time"
VGPU_IDS = "volcano.sh/vgpu-ids-new"
VGPU_TO_ALLOCATE = "volcano.sh/devices-to-allocate"
VGPU_PHASE = "volcano.sh/bind-phase"

WORDS: Mapping[str, Word] = {
    VGPU_NUMBER: Word(
        "Volcano's resource for a number of shares, each on a different GPU.",
        lambda device: device.slots,
        lambda usage: usage.slots,
    ),
    VGPU_MEMORY: Word(
        "Volcano's resource for memory on each GPU, in MiB or in blocks of the size set in `memoryUnits`.",
        lambda device: device.memory_mib,
        lambda usage: usage.memory_mib,
    ),
    # As of HAMi's: beside an amount it counts for nothing, and percentages are rounded down to MiB.
    VGPU_MEMORY_PERCENTAGE: Word(
        "Volcano's resource for a percentage of each GPU's memory.",
        lambda device: 100 * device.slots,
        lambda usage: 100 * usage.slots,
    ),
    VGPU_CORES: Word(
        "Volcano's resource for a percentage of each GPU's compute.",
        lambda device: device.cores_percent,
        lambda usage: usage.cores_percent,
    ),
}
RECORDS: Mapping[str, str] = {
    VGPU_NODE: "The grant's node.",
    VGPU_TIME: "When the pod was bound, in seconds since 1970.",
    VGPU_IDS: "The grant's GPUs.",
    VGPU_TO_ALLOCATE: "",
    VGPU_PHASE: "`success` or `failed`, as Volcano's device plugin sets it. Only on pods that Volcano's scheduler "
    "placed.",
    "volcano.sh/bind-time": "",
}
MARKS = frozenset[str]()

_VENDOR = "NVIDIA"


def claims(pod: PodManifest, container: ContainerSpec) -> bool:
    """Whether the container asks for anything in Volcano's words for vGPUs."""
    return any(asks_for(container, resource) for resource in WORDS)


def parse_container(
    pod: PodManifest, container: ContainerSpec, selectors: Selectors, problems: Problems
) -> DeviceRequest | None:
    """A share of each of some GPUs; of one where the container does not say how many."""
    noted = Problems()
    count = _count(container, noted)
    memory = (
        memory_mib(container, VGPU_MEMORY, noted, unit_mib(pod, VGPU_MEMORY))
        if asks_for(container, VGPU_MEMORY)
        else None
    )
    percent = _percent(container, noted) if memory is None else None
    cores = amount(container, VGPU_CORES, 0, 100, "a percentage of one GPU", noted) or 0
    check_device_count(container, count, "Volcano", noted)
    problems.extend(noted)
    if noted:
        return None
    return msgspec.structs.replace(
        whole_gpus(count, selectors),
        memory_mib=memory,
        memory_percent=percent,
        cores_percent=cores,
    )


def _count(container: ContainerSpec, problems: Problems) -> int:
    if not asks_for(container, VGPU_NUMBER):
        return 1
    return amount(container, VGPU_NUMBER, 1, MAX_DEVICES_ASKED, "a number of GPUs", problems) or 1


def _percent(container: ContainerSpec, problems: Problems) -> int:
    found = amount(container, VGPU_MEMORY_PERCENTAGE, 1, 100, "a percentage of one GPU's memory", problems)
    return 100 if found is None else found


def limits(pod: PodManifest, container: ContainerSpec) -> dict[str, str]:
    """GPUs as written, else one."""
    count = container.quantity(VGPU_NUMBER) if asks_for(container, VGPU_NUMBER) else None
    return {GPU_RESOURCE: count or "1"}


def grant_annotations(pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int) -> dict[str, str]:
    """Node, time and devices as Volcano's scheduler records them, in the order of the pod's app containers."""
    parts = [grant.of(each.name) for each in pod.containers if each.kind is ContainerKind.APP]
    text = encode_pod_devices([_devices_of(part, unit_mib(pod, VGPU_MEMORY)) if part else () for part in parts])
    return {VGPU_NODE: grant.node, VGPU_TIME: str(at_ns // 10**9), VGPU_IDS: text.removesuffix(";")}


def _devices_of(part: ContainerGrant, unit: int) -> tuple[ContainerDevice, ...]:
    shares = part.shares
    return tuple(ContainerDevice(each.uuid, _VENDOR, each.memory_mib // unit, each.cores_percent) for each in shares)


def environment(pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]) -> dict[str, str]:
    """None but HAMi-core's, which hold shares in everybody's words."""
    return {}
