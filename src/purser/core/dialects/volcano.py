"""Volcano's first GPU sharing (``gpushare``): MiB on one GPU, or whole GPUs by number.

Volcano puts all containers of a pod on one GPU; here each container gets its own, so that a pod is not kept waiting
for one GPU with room for all of it. Volcano counts neither sidecars (before August 2026) nor both resources together.
"""

from collections.abc import Mapping

from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.nvidia import whole_gpus
from purser.core.dialects.quantities import amount, check_device_count, memory_mib
from purser.core.dialects.records import indices_of
from purser.core.dialects.selectors import Selectors
from purser.core.model import ContainerGrant, Device, DeviceRequest, Grant, NodeInventory
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.pod.units import unit_mib

GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_NUMBER = "volcano.sh/gpu-number"

GPU_INDEX = "volcano.sh/gpu-index"
PREDICATE_TIME = "volcano.sh/predicate-time"
GPU_ASSIGNED = "volcano.sh/gpu-assigned"

WORDS: Mapping[str, Word] = {
    GPU_MEMORY: Word(
        "Volcano's resource for memory on one GPU, in MiB or in blocks of the size set in `memoryUnits`.",
        lambda device: device.memory_mib,
        lambda usage: usage.memory_mib,
    ),
    GPU_NUMBER: Word("Volcano's resource for whole GPUs.", lambda device: 1, lambda usage: usage.exclusive),
}
RECORDS: Mapping[str, str] = {
    GPU_INDEX: "Indexes of the granted GPUs, separated by commas.",
    PREDICATE_TIME: "When the pod was bound, in nanoseconds since 1970.",
    GPU_ASSIGNED: "`true`, the value that Volcano's device plugin sets.",
}
MARKS: frozenset[str] = frozenset()


def claims(pod: PodManifest, container: ContainerSpec) -> bool:
    """Whether the container asks for memory or GPUs in Volcano's words."""
    return asks_for(container, GPU_MEMORY) or asks_for(container, GPU_NUMBER)


def parse_container(
    pod: PodManifest, container: ContainerSpec, selectors: Selectors, problems: Problems
) -> DeviceRequest | None:
    """Memory on one GPU, or whole GPUs."""
    if asks_for(container, GPU_MEMORY) and asks_for(container, GPU_NUMBER):
        problems.add(
            f'container "{container.name}" asks for both {GPU_MEMORY} and {GPU_NUMBER}: use '
            f"either {GPU_MEMORY} for a share of a GPU, or {GPU_NUMBER} for whole GPUs"
        )
        return None
    request = (
        _memory(pod, container, problems)
        if asks_for(container, GPU_MEMORY)
        else _number(container, selectors, problems)
    )
    if request is not None:
        check_device_count(container, request.count, "Volcano", problems)
    return request


def _memory(pod: PodManifest, container: ContainerSpec, problems: Problems) -> DeviceRequest | None:
    memory = memory_mib(container, GPU_MEMORY, problems, unit_mib(pod, GPU_MEMORY))
    return None if memory is None else DeviceRequest(count=1, memory_mib=memory)


def _number(container: ContainerSpec, selectors: Selectors, problems: Problems) -> DeviceRequest | None:
    count = amount(container, GPU_NUMBER, 1, MAX_DEVICES_ASKED, "a number of GPUs", problems)
    return None if count is None else whole_gpus(count, selectors)


def limits(pod: PodManifest, container: ContainerSpec) -> dict[str, str]:
    """One GPU for memory, else the number."""
    count = "1" if asks_for(container, GPU_MEMORY) else container.quantity(GPU_NUMBER)
    return {} if count is None else {GPU_RESOURCE: count}


def grant_annotations(pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int) -> dict[str, str]:
    """The indices of the pod's GPUs on its node, and when it got them."""
    devices = {device.uuid: device for device in inventory.devices}
    return {GPU_INDEX: indices_of(grant.uuids, devices), PREDICATE_TIME: str(at_ns), GPU_ASSIGNED: "true"}


def environment(pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]) -> dict[str, str]:
    """What Volcano's plugin says of a share of memory; of whole GPUs it says nothing.

    Its releases differ in the name of the total. All are in MiB, as its plugin has them whatever the pod counts in:
    factor 1.
    """
    if part.is_whole or not part.shares:
        return {}
    share = part.shares[0]
    total = str(devices[share.uuid].memory_mib) if share.uuid in devices else ""
    return {
        "VOLCANO_GPU_ALLOCATED": str(share.memory_mib),
        "VOLCANO_GPU_TOTAL": total,
        "VOLCANO_GPU_MEMORY_TOTAL": total,
        "VOLCANO_GPU_FACTOR": "1",
    }
