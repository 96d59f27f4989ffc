"""Aliyun's gpushare: GiB, or MiB, of one GPU, or of several in equal parts.

Meanings are those of gpushare-scheduler-extender (``pkg/utils``) and gpushare-device-plugin (``pkg/gpu/nvidia``), in
the unit that its plugin's ``--memory-unit`` says, GiB by default (`purser.core.pod.units`). gpushare takes the first
GPU's memory for that of all, and puts all containers of a pod on one GPU, where its plugin then finds no pod for two
containers that ask; here each GPU has its own memory, and each container gets its own GPU. Several GPUs by label are
the way of Alibaba Cloud's managed clusters.
"""

from collections.abc import Mapping

import msgspec

from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.nvidia import whole_gpus
from purser.core.dialects.quantities import (
    MAX_DEVICE_MEMORY_MIB,
    NotWholeError,
    amount,
    check_device_count,
    whole_number,
)
from purser.core.dialects.records import indices_of
from purser.core.dialects.selectors import Selectors
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceRequest, Grant, NodeInventory
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.pod.units import DEFAULT_UNITS_MIB, unit_mib

GPU_MEM = "aliyun.com/gpu-mem"
GPU_COUNT = "aliyun.com/gpu-count"
"""What nodes list; of a pod, the label with the number of GPUs among which a container's memory is divided."""

_IDX = "ALIYUN_COM_GPU_MEM_IDX"
_POD = "ALIYUN_COM_GPU_MEM_POD"
_DEV = "ALIYUN_COM_GPU_MEM_DEV"
_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"
_ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
_ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
_ALLOCATION = "scheduler.framework.gpushare.allocation"

WORDS: Mapping[str, Word] = {
    GPU_MEM: Word(
        "gpushare's resource for GPU memory, in GiB or in blocks of the size set in `memoryUnits`.",
        lambda device: device.memory_mib,
        lambda usage: usage.memory_mib,
        DEFAULT_UNITS_MIB[GPU_MEM],
    ),
    # Nodes list it for gpushare's tools, and no container may ask for it.
    GPU_COUNT: Word("The node's number of GPUs. Containers cannot ask for it.", lambda device: 1, lambda usage: 0),
}
RECORDS: Mapping[str, str] = {
    _IDX: "Indexes of the granted GPUs, separated by commas.",
    _POD: f"GPU memory of all of the pod's containers, in the unit of `{GPU_MEM}`.",
    _DEV: f"Total memory of the first granted GPU, in the unit of `{GPU_MEM}`.",
    _ASSIGNED: "`true`, the value that gpushare's device plugin sets.",
    _ASSUME_TIME: "When the pod was bound, in nanoseconds since 1970.",
    _ALLOCATION: f"GPU memory for each container index and GPU index, in the unit of `{GPU_MEM}`, as JSON.",
}
MARKS: frozenset[str] = frozenset()


def claims(pod: PodManifest, container: ContainerSpec) -> bool:
    """Whether the container asks for anything in gpushare's words."""
    return any(asks_for(container, resource) for resource in WORDS)


def parse_container(
    pod: PodManifest, container: ContainerSpec, selectors: Selectors, problems: Problems
) -> DeviceRequest | None:
    """Memory of one GPU, or an equal part of it on each of as many as the pod's label says."""
    if asks_for(container, GPU_COUNT):
        problems.add(
            f'container "{container.name}" requests {GPU_COUNT}, which containers cannot request: request {GPU_MEM} '
            f"instead, and set the number of GPUs with the pod label {GPU_COUNT}"
        )
        return None
    noted = Problems()
    # Not 0: `claims` found it to be more, or nonsense.
    unit = unit_mib(pod, GPU_MEM)
    unit_name = {1: "a number of MiB", 1024: "a number of GiB"}.get(unit, f"a number of {unit} MiB units")
    units = amount(container, GPU_MEM, 1, MAX_DEVICE_MEMORY_MIB // unit - 1, f"{unit_name} of GPU memory", noted) or 0
    count = _count(pod)
    if count is None:
        label = f'label {GPU_COUNT} "{pod.labels[GPU_COUNT][:64]}"'
        noted.add(f"{label} is not a number of GPUs: must be an integer from 1 to {MAX_DEVICES_ASKED}")
    elif units % count:
        noted.add(
            f'container "{container.name}": {GPU_MEM} "{units}" cannot be divided evenly among the {count} GPUs in '
            f"label {GPU_COUNT}: must be a multiple of {count}"
        )
    else:
        check_device_count(container, count, "gpushare", noted)
    problems.extend(noted)
    if noted or count is None:
        return None
    return msgspec.structs.replace(
        whole_gpus(count, selectors), memory_mib=units // count * unit, memory_percent=None, cores_percent=0
    )


def _count(pod: PodManifest) -> int | None:
    """GPUs per container; None where the label makes no sense."""
    try:
        count = whole_number(pod.labels.get(GPU_COUNT, "1"))
    except NotWholeError:
        return None
    return count if 1 <= count <= MAX_DEVICES_ASKED else None


def limits(pod: PodManifest, container: ContainerSpec) -> dict[str, str]:
    """As many GPUs as the pod's label says, else one."""
    return {GPU_RESOURCE: str(_count(pod) or 1)}


def grant_annotations(pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int) -> dict[str, str]:
    """What its scheduler, its plugin and the tool ``kubectl inspect gpushare`` write and read."""
    devices, unit = {device.uuid: device for device in inventory.devices}, unit_mib(pod, GPU_MEM)
    parts = _parts(pod, grant)
    uuids = [uuid for part in parts.values() for uuid in part.uuids]
    by_container = {
        str(place): {
            str(devices[share.uuid].index): share.memory_mib // unit for share in part.shares if share.uuid in devices
        }
        for place, part in parts.items()
    }
    return {
        _IDX: indices_of(uuids, devices),
        _POD: str(_pod_units(pod, grant)),
        _DEV: _device_units(uuids, devices, unit),
        _ASSIGNED: "true",
        _ASSUME_TIME: str(at_ns),
        _ALLOCATION: msgspec.json.encode(by_container).decode(),
    }


def environment(pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]) -> dict[str, str]:
    """What its plugin says of the container's GPU and share."""
    unit = unit_mib(pod, GPU_MEM)
    return {
        _IDX: indices_of(part.uuids, devices),
        _POD: str(_pod_units(pod, grant)),
        _CONTAINER: str(sum(share.memory_mib for share in part.shares) // unit),
        _DEV: _device_units(part.uuids, devices, unit),
    }


def _parts(pod: PodManifest, grant: Grant) -> dict[int, ContainerGrant]:
    """What app containers that ask in gpushare's words hold, by their place in the pod."""
    apps = [each for each in pod.containers if each.kind is ContainerKind.APP]
    found = {place: grant.of(each.name) for place, each in enumerate(apps) if claims(pod, each)}
    return {place: part for place, part in found.items() if part is not None}


def _pod_units(pod: PodManifest, grant: Grant) -> int:
    held = sum(share.memory_mib for part in _parts(pod, grant).values() for share in part.shares)
    return held // unit_mib(pod, GPU_MEM)


def _device_units(uuids: list[str] | tuple[str, ...], devices: Mapping[str, Device], unit: int) -> str:
    """Of the first: gpushare knows one size of all."""
    return next((str(devices[uuid].memory_mib // unit) for uuid in uuids if uuid in devices), "0")
