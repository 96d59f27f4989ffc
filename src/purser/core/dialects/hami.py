"""HAMi's vocabulary for NVIDIA GPUs: distinct GPUs, and a share of the memory and compute of each.

Meanings are those of HAMi v2.10 (``pkg/device/nvidia/device.go``). Where HAMi lets a pod run without any GPU, or clamps
a number without a word, the pod is refused with a sentence instead.
"""

from collections.abc import Mapping, Sequence

import msgspec

from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.hami_codec import (
    CodecError,
    ContainerDevice,
    MigAllocation,
    MigAllocationPlacement,
    decode_pod_devices,
    encode_mig_allocations,
    encode_pod_devices,
)
from purser.core.dialects.nvidia import whole_gpus
from purser.core.dialects.quantities import amount, memory_mib, ranged_number
from purser.core.dialects.selectors import MIG_PREFERENCE, VGPU_MODE, Selectors
from purser.core.mig.profiles import MIG_KINDS
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceRequest,
    DeviceShare,
    Enforcement,
    Grant,
    NodeInventory,
)
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.wording import counted

GPUMEM = "nvidia.com/gpumem"
GPUMEM_PERCENTAGE = "nvidia.com/gpumem-percentage"
GPUCORES = "nvidia.com/gpucores"
PRIORITY = "nvidia.com/priority"

VGPU_NODE = "hami.io/vgpu-node"
VGPU_TIME = "hami.io/vgpu-time"
DEVICES_ALLOCATED = "hami.io/vgpu-devices-allocated"
DEVICES_TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
BIND_PHASE = "hami.io/bind-phase"
BIND_TIME = "hami.io/bind-time"
MIG_ALLOCATIONS = "hami.io/vgpu-mig-allocations"

WORDS: Mapping[str, Word] = {
    GPUMEM: Word("MiB of memory on each GPU.", lambda device: device.memory_mib, lambda usage: usage.memory_mib),
    # Beside gpumem a percentage counts for nothing, and percentages are rounded down to MiB: a GPU's may come to more
    # than 100. No container asks for more than 100, and each takes a slot.
    GPUMEM_PERCENTAGE: Word(
        "Percentage of each GPU's memory.", lambda device: 100 * device.slots, lambda usage: 100 * usage.slots
    ),
    GPUCORES: Word(
        "Percentage of each GPU's compute. With 100, the container has the GPU to itself.",
        lambda device: device.cores_percent,
        lambda usage: usage.cores_percent,
    ),
    # A rank, 0 or 1, and no amount at all: one for each container that can be there does not bind.
    PRIORITY: Word(
        "Priority of the container's kernels for HAMi-core; 0 is the highest.",
        lambda device: device.slots,
        lambda usage: usage.slots,
    ),
}
RECORDS: Mapping[str, str] = {
    VGPU_NODE: "The grant's node.",
    VGPU_TIME: "When the pod was assigned its GPUs, in seconds since 1970. Only on nodes that HAMi's scheduler "
    "manages.",
    DEVICES_ALLOCATED: "The grant's GPUs.",
    DEVICES_TO_ALLOCATE: "The grant's GPUs for HAMi's device plugin, which clears the value. Only on nodes that "
    "the plugin serves.",
    MIG_ALLOCATIONS: "The grant's GPU instances.",
    BIND_PHASE: "On nodes that HAMi's device plugin serves, `allocating`, which the plugin changes to `success` "
    "or `failed`. On other nodes, `success` or `failed` for pods that HAMi's scheduler placed.",
    BIND_TIME: "When the pod was bound, in seconds since 1970. Only on nodes that HAMi's device plugin serves.",
}
"""HAMi issue 3041: its own plugin trusts these from any writer."""

MARKS = frozenset({VGPU_MODE, MIG_PREFERENCE})

VENDOR = "NVIDIA"
"""The word that HAMi writes where a device list names the kind of device."""

ALLOCATING = "allocating"
"""Of `BIND_PHASE`: bound, and without devices yet."""
SUCCESS, FAILED = "success", "failed"
"""Of the same, by whoever serves the node."""

_MEMORY = (GPUMEM, GPUMEM_PERCENTAGE)
_SHARES = (*_MEMORY, GPUCORES)
_NANOSECONDS = 1_000_000_000


def claims(pod: PodManifest, container: ContainerSpec) -> bool:
    """Whether the container names a share, and not zero of everything. A zero of memory is not a share; one of compute
    says that others may compute beside it."""
    named = container.quantity(GPUCORES) is not None or any(asks_for(container, each) for each in _MEMORY)
    return named and any(asks_for(container, resource) for resource in (GPU_RESOURCE, *_SHARES))


def allocated_uuids(annotations: Mapping[str, str]) -> frozenset[str]:
    """The GPUs that HAMi gave a pod, as its annotation names them; that of a MIG instance is the GPU's own.

    Raises `CodecError`.
    """
    text = annotations.get(DEVICES_ALLOCATED, "")
    devices = (device for of_container in decode_pod_devices(text) for device in of_container)
    return frozenset(device.uuid.partition("[")[0] for device in devices)


def parse_container(
    pod: PodManifest, container: ContainerSpec, selectors: Selectors, problems: Problems
) -> DeviceRequest | None:
    """A share of each of some GPUs; one GPU where the container does not say how many."""
    noted = Problems()
    count = _count(container, noted)
    memory = memory_mib(container, GPUMEM, noted)
    percent = _percent(container, noted)
    cores = amount(container, GPUCORES, 0, 100, "a percentage of one GPU", noted)
    _priority(container, noted)
    problems.extend(noted)
    if noted:
        return None
    return msgspec.structs.replace(
        whole_gpus(count, selectors),
        memory_mib=memory,
        memory_percent=_effective_percent(memory, percent),
        cores_percent=_effective_cores(cores, memory, percent),
    )


def _count(container: ContainerSpec, problems: Problems) -> int:
    return amount(container, GPU_RESOURCE, 1, MAX_DEVICES_ASKED, "a number of GPUs", problems) or 1


def _percent(container: ContainerSpec, problems: Problems) -> int | None:
    return amount(container, GPUMEM_PERCENTAGE, 1, 100, "a percentage of one GPU's memory", problems)


def _effective_percent(memory: int | None, percent: int | None) -> int | None:
    if memory is not None:
        return None
    return 100 if percent is None else percent


def _effective_cores(cores: int | None, memory: int | None, percent: int | None) -> int:
    """HAMi's exclusive-core default: a request for all of the memory without cores is for the GPU alone."""
    if cores is not None:
        return cores
    return 100 if percent == 100 or (memory is None and percent is None) else 0


def task_priority(container: ContainerSpec) -> int | None:
    """What HAMi-core must find in ``CUDA_TASK_PRIORITY``: 0 high, 1 low; None where the container does not say."""
    return _priority(container, Problems())


def _priority(container: ContainerSpec, problems: Problems) -> int | None:
    return ranged_number(container, PRIORITY, 0, 1, "0 (high) or 1 (low)", problems)


def limits(pod: PodManifest, container: ContainerSpec) -> dict[str, str]:
    """GPUs as written, else one (HAMi's ``defaultGPUNum``)."""
    count = container.quantity(GPU_RESOURCE) if asks_for(container, GPU_RESOURCE) else None
    return {GPU_RESOURCE: count or "1"}


def grant_annotations(pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int) -> dict[str, str]:
    """Node, devices and GPU instances as HAMi's scheduler records them, in the order of all of the pod's containers."""
    containers = [_shares_of(container, grant) for container in pod.containers]
    record = {VGPU_NODE: grant.node, DEVICES_ALLOCATED: _encode_shares(containers)}
    if instances := _instances(containers, inventory):
        record[MIG_ALLOCATIONS] = encode_mig_allocations(instances)
    return record


def hami_node_annotations(pod: PodManifest, grant: Grant, at_ns: int, *, is_served_by_plugin: bool) -> dict[str, str]:
    """What a pod must carry on a node that HAMi's scheduler knows, whatever words it uses: HAMi's scheduler counts its
    GPUs by that. ``is_served_by_plugin``: HAMi's device plugin serves the node, and finds there what to give to the
    pod."""
    seconds, held = (
        str(at_ns // _NANOSECONDS),
        _encode_shares([_shares_of(container, grant) for container in pod.containers]),
    )
    record = {VGPU_NODE: grant.node, VGPU_TIME: seconds, DEVICES_ALLOCATED: held}
    if is_served_by_plugin:
        record |= {DEVICES_TO_ALLOCATE: held, BIND_PHASE: ALLOCATING, BIND_TIME: seconds}
    return record


def no_devices(containers: int) -> str:
    """`DEVICES_TO_ALLOCATE` of a pod whose containers, so many, have all been served."""
    return encode_pod_devices([()] * containers)


def record_texts(pod: PodManifest) -> tuple[str, ...]:
    """What `recorded_grant` reads, and when it was written: another text is another decision of HAMi's scheduler."""
    return tuple(pod.annotations.get(name, "") for name in (VGPU_NODE, VGPU_TIME, DEVICES_ALLOCATED))


def recorded_grant(pod: PodManifest) -> Grant | None:
    """What HAMi's scheduler recorded on a pod, bound or not; None where it recorded nothing. Raises `CodecError`."""
    node, text = pod.annotations.get(VGPU_NODE, ""), pod.annotations.get(DEVICES_ALLOCATED, "")
    if not node or not text:
        return None
    listed = decode_pod_devices(text)
    parts = [
        ContainerGrant(container.name, container.kind, tuple(map(_share, held)), Enforcement.HAMI_CORE)
        for container, held in zip(_listed(pod, listed), listed, strict=False)
        if held
    ]
    return Grant(pod.uid, pod.namespace, pod.name, node, tuple(parts)) if parts else None


def _listed(pod: PodManifest, listed: Sequence[Sequence[ContainerDevice]]) -> Sequence[ContainerSpec]:
    """The containers that a record lists, in its order: those for initialisation first; schedulers before v2.9 leave
    them out. HAMi counts on a list that is longer or shorter than the pod's as well, so those who hold a device have to
    ask for GPUs before the number of containers decides. Raises `CodecError` where neither does."""
    apps = tuple(container for container in pod.containers if container.kind is ContainerKind.APP)
    ended = len(listed) - (not listed[-1])
    last = max((place for place, held in enumerate(listed, 1) if held), default=0)
    fitting = [each for each in (pod.containers, apps) if last <= len(each)]
    fitting.sort(key=lambda each: len(each) != ended)
    for each in fitting:
        if all(_asks_for_gpus(container) for container, held in zip(each, listed, strict=False) if held):
            return each
    if fitting and len(fitting[0]) == ended:
        return fitting[0]
    raise CodecError(f"{DEVICES_ALLOCATED} lists {counted(ended, 'container')}, but the pod has {len(pod.containers)}")


def _asks_for_gpus(container: ContainerSpec) -> bool:
    return any(asks_for(container, each) for each in (GPU_RESOURCE, *_SHARES))


def _share(device: ContainerDevice) -> DeviceShare:
    return DeviceShare(device.uuid.partition("[")[0], max(device.memory_mib, 0), max(device.cores_percent, 0))


def _encode_shares(containers: Sequence[Sequence[DeviceShare]]) -> str:
    return encode_pod_devices(
        [
            [ContainerDevice(share.uuid, VENDOR, share.memory_mib, share.cores_percent) for share in shares]
            for shares in containers
        ]
    )


def environment(pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]) -> dict[str, str]:
    """None but HAMi-core's, which hold shares in everybody's words."""
    return {}


def _shares_of(container: ContainerSpec, grant: Grant) -> tuple[DeviceShare, ...]:
    part = grant.of(container.name)
    return part.shares if part is not None else ()


def _instances(containers: Sequence[Sequence[DeviceShare]], inventory: NodeInventory) -> list[MigAllocation]:
    """What its driver calls the instances is not known yet, and HAMi reads a record without that, too."""
    kinds = {device.uuid: MIG_KINDS.get(device.mig_kind) for device in inventory.devices}
    found = []
    for at, shares in enumerate(containers):
        for place, share in enumerate(shares):
            kind = kinds.get(share.uuid)
            if share.mig is None or kind is None or (profile := kind.profile(share.mig.profile)) is None:
                continue
            placement = MigAllocationPlacement(share.mig.start, profile.memory_slices)
            found.append(MigAllocation(at, place, share.uuid, profile.name, placement))
    return found
