"""Volcano's first GPU sharing (``gpushare``): MiB on one GPU, or whole GPUs by number.

Volcano puts all containers of a pod on one GPU; here each container gets its own, so that a pod is not kept waiting
for one GPU with room for all of it. Volcano counts neither sidecars (before August 2026) nor both resources together.
"""

from collections.abc import Mapping

from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.nvidia import whole_gpus
from purser.core.dialects.quantities import NotWholeError, amount, memory_mib, whole_number
from purser.core.dialects.selectors import Selectors
from purser.core.model import DeviceRequest, Grant, NodeInventory
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerSpec, PodManifest

GPU_MEMORY = "volcano.sh/gpu-memory"
GPU_NUMBER = "volcano.sh/gpu-number"

GPU_INDEX = "volcano.sh/gpu-index"

WORDS: Mapping[str, Word] = {
    GPU_MEMORY: Word(
        "Volcano's word for MiB of one GPU.", lambda device: device.memory_mib, lambda usage: usage.memory_mib
    ),
    GPU_NUMBER: Word("Volcano's word for whole GPUs.", lambda device: 1, lambda usage: usage.exclusive),
}
RECORDS: Mapping[str, str] = {
    GPU_INDEX: "The index of the grant's GPU.",
    "volcano.sh/predicate-time": "",
    "volcano.sh/gpu-assigned": "",
}
MARKS: frozenset[str] = frozenset()


def claims(container: ContainerSpec) -> bool:
    """Whether the container asks for memory or GPUs in Volcano's words."""
    return asks_for(container, GPU_MEMORY) or asks_for(container, GPU_NUMBER)


def parse_container(container: ContainerSpec, selectors: Selectors, problems: Problems) -> DeviceRequest | None:
    """Memory on one GPU, or whole GPUs."""
    if asks_for(container, GPU_MEMORY) and asks_for(container, GPU_NUMBER):
        problems.add(
            f'container "{container.name}" asks for both {GPU_MEMORY} and {GPU_NUMBER}: '
            f"write the one for a share of a GPU, or the other for whole GPUs"
        )
        return None
    request = (
        _memory(container, problems) if asks_for(container, GPU_MEMORY) else _number(container, selectors, problems)
    )
    if request is not None:
        _check_device_count(container, request.count, problems)
    return request


def _memory(container: ContainerSpec, problems: Problems) -> DeviceRequest | None:
    memory = memory_mib(container, GPU_MEMORY, problems)
    return None if memory is None else DeviceRequest(count=1, memory_mib=memory)


def _number(container: ContainerSpec, selectors: Selectors, problems: Problems) -> DeviceRequest | None:
    count = amount(container, GPU_NUMBER, 1, MAX_DEVICES_ASKED, "a number of GPUs", problems)
    return None if count is None else whole_gpus(count, selectors)


def _check_device_count(container: ContainerSpec, count: int, problems: Problems) -> None:
    """``nvidia.com/gpu`` is what the webhook adds for kubelet: it may be there, with the same number."""
    text = container.quantity(GPU_RESOURCE)
    try:
        agrees = text is None or whole_number(text) == count
    except NotWholeError:
        agrees = False
    if not agrees:
        problems.add(
            f'container "{container.name}": {GPU_RESOURCE} "{text}" does not go with {count} by Volcano\'s resources: '
            f"leave {GPU_RESOURCE} out, Purser adds it"
        )


def device_count(container: ContainerSpec) -> str | None:
    """One GPU for memory, else the number."""
    return "1" if asks_for(container, GPU_MEMORY) else container.quantity(GPU_NUMBER)


def grant_annotations(pod: PodManifest, grant: Grant, inventory: NodeInventory) -> dict[str, str]:
    """The indices of the pod's GPUs on its node."""
    indices = {device.uuid: device.index for device in inventory.devices}
    held = {indices[uuid] for uuid in grant.uuids if uuid in indices}
    return {GPU_INDEX: ",".join(str(index) for index in sorted(held))}
