"""NVIDIA's GPUs in HAMi's own words on nodes: read where HAMi's device plugin serves the node, written where Purser's
agent does.

Annotations and meanings are those of HAMi v2.10 (``pkg/device/nvidia/device.go``, ``pkg/device/devices.go``). Both
sides find out by the register annotation who serves a node: HAMi's plugin writes its own when it starts, and the agent
replaces it with one that has its mark.

``hami.io/node-handshake`` is left alone. HAMi's scheduler writes ``Requesting_`` and a time there and reads nothing but
that; no plugin has answered since v2.8. 60 seconds later the answer is what kubelet lists of ``nvidia.com/gpu``, which
is so on nodes of either side.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from purser.core.decoding import JsonReader
from purser.core.device.ids import MAX_NODE_DEVICES
from purser.core.kubelet.masks import MAX_NUMA_NODE
from purser.core.kubernetes.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.core.model import Device, DeviceMode, Enforcement, NodeInventory
from purser.core.names import GPU_RESOURCE, NOT_LISTED
from purser.core.vendors.family import NodeLock
from purser.core.vendors.register_texts import (
    MAX_REGISTER_BYTES,
    RegisteredDevice,
    RegisterError,
    check_id_and_model,
    read_devices,
    slots_of,
)
from purser.core.wording import counted

REGISTER_ANNOTATION = "hami.io/node-nvidia-register"
"""What HAMi's scheduler reads of a node's GPUs."""

PLUGIN_LOCK = NodeLock("hami.io/mutex.lock", 300)
"""By which HAMi's plugin finds the pod whose devices kubelet asks for."""

_HAMI_MAX_INT32 = (1 << 31) - 1
"""HAMi's integers have 32 bits."""

_AGENT_MARK = {"purser.dev": "agent"}
_MIG = "mig"
_MODES = {"": DeviceMode.SHARED, "hami-core": DeviceMode.SHARED, "mps": DeviceMode.MPS}
_PREFIX = "NVIDIA-"


class RegisteredGpu(RegisteredDevice, frozen=True, omit_defaults=True):
    """A GPU as HAMi's plugin writes it."""

    mode: str = ""
    """``hami-core``, ``mps`` or ``mig``."""
    custominfo: dict[str, Any] = msgspec.field(default_factory=dict)
    """Free for anybody; Purser's mark is in it."""


_gpu_reader: JsonReader[list[RegisteredGpu]] = JsonReader(
    list[RegisteredGpu], f"annotation {REGISTER_ANNOTATION}", max_bytes=MAX_REGISTER_BYTES
)


def read_gpus(text: str, problems: list[str] | None = None) -> list[RegisteredGpu]:
    """The GPUs in a register annotation. One that cannot be read is left out, and ``problems`` takes a sentence for it.
    Raises `UnreadableError` and `RegisterError`."""
    odd = [] if problems is None else problems
    gpus = read_devices(text, "the registration", _gpu_reader, RegisteredGpu, odd)
    if len(gpus) > MAX_NODE_DEVICES:
        raise RegisterError(f"{len(gpus)} GPUs are registered: the maximum is {MAX_NODE_DEVICES}")
    return gpus


def is_served_by_plugin(gpus: list[RegisteredGpu]) -> bool:
    """Whether HAMi's plugin registered these GPUs, and not Purser's agent."""
    return not any(gpu.custominfo.items() >= _AGENT_MARK.items() for gpu in gpus)


def devices(
    gpus: list[RegisteredGpu], allocatable: Mapping[str, QuantityLike], problems: list[str] | None = None
) -> tuple[Device, ...]:
    """The GPUs of a node that HAMi's plugin serves. Those in its MIG mode are left out: HAMi cuts them itself.

    Memory and compute are those that HAMi's settings make of them (``deviceMemoryScaling``). A GPU that makes no sense
    is left out, and ``problems`` takes a sentence for each. Raises `RegisterError` where that is so of all together.
    """
    problems = [] if problems is None else problems
    is_listed = _lists_gpus(allocatable)
    if gpus and not is_listed and (renamed := renamed_resource(allocatable)):
        problems.append(
            f"HAMi's device plugin lists {renamed} instead of {GPU_RESOURCE}, so pods that Purser schedules cannot "
            f"use the node's GPUs: set resourceName in HAMi's chart to {GPU_RESOURCE}, and use that name in pods"
        )
    found = []
    for gpu in gpus:
        try:
            if gpu.mode != _MIG:
                found.append(_device(gpu, is_listed, problems))
        except RegisterError as error:
            problems.append(f"{error}. The GPU is ignored")
    if len({device.uuid for device in found}) < len(found):
        raise RegisterError("a GPU is registered twice")
    return tuple(found)


def _device(gpu: RegisteredGpu, is_listed: bool, problems: list[str]) -> Device:
    check_id_and_model(gpu)
    mode = _MODES.get(gpu.mode)
    if mode is None:
        raise RegisterError(f"GPU {gpu.id[:64]!r} has unknown mode {gpu.mode[:20]!r}")
    if gpu.count < 0 or not 0 <= gpu.devmem <= _HAMI_MAX_INT32 or not 0 <= gpu.devcore <= _HAMI_MAX_INT32:
        raise RegisterError(
            f"invalid GPU {gpu.id[:64]!r}: {counted(gpu.count, 'slot')}, {gpu.devmem} MiB and {gpu.devcore}% of "
            "compute: each must be 0 or greater, and fit in a 32-bit integer"
        )
    if not 0 <= gpu.numa <= MAX_NUMA_NODE or not 0 <= gpu.index <= _HAMI_MAX_INT32:
        raise RegisterError(f"GPU {gpu.id[:64]!r} has an invalid index ({gpu.index}) or NUMA node ({gpu.numa})")
    healthy = gpu.health and is_listed
    return Device(
        uuid=gpu.id,
        index=gpu.index,
        model=gpu.type.removeprefix(_PREFIX),
        memory_mib=gpu.devmem,
        cores_percent=gpu.devcore,
        slots=slots_of(gpu, problems),
        numa_nodes=(gpu.numa,),
        mode=mode,
        healthy=healthy,
        unhealthy_reason=""
        if healthy
        else NOT_LISTED
        if gpu.health
        else "HAMi's device plugin reports it as unhealthy",
        enforcement=Enforcement.MPS if mode is DeviceMode.MPS else Enforcement.HAMI_CORE,
    )


_OTHER_RESOURCES = ("nvidia.com/mig-", "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/priority")


def renamed_resource(allocatable: Mapping[str, QuantityLike]) -> str:
    """What HAMi's chart may have renamed ``nvidia.com/gpu`` to (``resourceName`` of its values); empty: nothing is
    listed that looks so."""
    names = (name for name in allocatable if name.startswith("nvidia.com/") and not name.startswith(_OTHER_RESOURCES))
    return next((name[:80] for name in sorted(names) if name != GPU_RESOURCE), "")


def _lists_gpus(allocatable: Mapping[str, QuantityLike]) -> bool:
    try:
        return quantity_ceil(allocatable.get(GPU_RESOURCE, 0)) > 0
    except QuantityError as error:
        raise RegisterError(
            f"{GPU_RESOURCE} in the node's allocatable resources is {str(allocatable[GPU_RESOURCE])[:64]!r}, "
            "which is not a valid quantity"
        ) from error


def registration(inventory: NodeInventory, closed: Collection[str] = ()) -> str:
    """What HAMi's scheduler is to read of a node that Purser's agent serves: the GPUs of which amounts can be had.

    GPUs that are divided otherwise (MIG, time-slicing) are not HAMi's to place. ``closed``: uuids of GPUs that take no
    pods, as those of pods that HAMi's plugin served: HAMi knows no other word for that than illness.
    """
    listed = [gpu for gpu in inventory.devices if gpu.takes_amounts and gpu.mode in _WORDS]
    return msgspec.json.encode(
        [_registered_gpu(gpu, gpu.healthy and gpu.uuid not in closed) for gpu in listed]
    ).decode()


_WORDS = {DeviceMode.WHOLE: "hami-core", DeviceMode.SHARED: "hami-core", DeviceMode.MPS: "mps"}


def _registered_gpu(gpu: Device, is_healthy: bool) -> RegisteredGpu:
    return RegisteredGpu(
        id=gpu.uuid,
        index=gpu.index,
        count=gpu.slots,
        devmem=min(gpu.memory_mib, _HAMI_MAX_INT32),
        devcore=min(gpu.cores_percent, _HAMI_MAX_INT32),
        type=gpu.model if gpu.model.startswith("NVIDIA") else _PREFIX + gpu.model,
        numa=gpu.numa_nodes[0] if gpu.numa_nodes else 0,
        health=is_healthy,
        mode=_WORDS[gpu.mode],
        custominfo=_AGENT_MARK,
    )
