"""A node's GPUs in the words of Volcano's vGPUs, where Volcano's scheduler knows the node of one of Purser's agents.

Facts are those of Volcano 1.14 (``vgpu/device_info.go``, ``vgpu/utils.go``, ``plugins/util/nodelock``). Volcano heeds
no GPU's health: those that take no pods are left out. 1.8 to 1.14.2, and 1.15.0, also ask for a sign of life: their
scheduler writes ``Requesting_<time>`` over the plugin's ``Reported <time>``, and ``Deleted_<time>`` a minute later if
it has not reported again, which it does each half a minute.
"""

from collections.abc import Collection, Mapping

from purser.core.model import DeviceMode, NodeInventory
from purser.core.vendors.family import NodeLock

VGPU_REGISTER_ANNOTATION = "volcano.sh/node-vgpu-register"
"""What Volcano's scheduler reads of a node's GPUs: ``uuid,slots,MiB,model,healthy,mode:`` of each."""

VGPU_HANDSHAKE_ANNOTATION = "volcano.sh/node-vgpu-handshake"
"""Where older releases of Volcano's scheduler ask, and who serves the node answers."""

_REPORTED_PREFIX = "Reported "

VOLCANO_LOCKS = tuple(NodeLock(name, 300, names_pod=False) for name in ("gpu", "hamivgpu"))
"""With ``deviceshare.NodeLockEnable`` Volcano's scheduler locks a node for one pod, until the plugin unlocks it."""

_MODES = frozenset({DeviceMode.WHOLE, DeviceMode.SHARED})
_PREFIX = "NVIDIA-"
_SEPARATORS_TO_SPACES = str.maketrans(",:;", "   ")


def vgpu_registration(inventory: NodeInventory, closed: Collection[str] = ()) -> str:
    """The GPUs of which amounts can be had now. ``closed``: uuids of GPUs that take no pods."""
    listed = [
        gpu
        for gpu in inventory.devices
        if gpu.takes_amounts and gpu.mode in _MODES and gpu.healthy and gpu.uuid not in (*closed, *inventory.cordoned)
    ]
    models = [gpu.model if gpu.model.startswith("NVIDIA") else _PREFIX + gpu.model for gpu in listed]
    return "".join(
        f"{gpu.uuid},{gpu.slots},{gpu.memory_mib},{model.translate(_SEPARATORS_TO_SPACES)},true,hami-core:"
        for gpu, model in zip(listed, models, strict=True)
    )


def awaits_answer(annotations: Mapping[str, str]) -> bool:
    """Whether Volcano's scheduler, or who wants it to know the node, asks for a sign of life."""
    asked = annotations.get(VGPU_HANDSHAKE_ANNOTATION)
    return asked is not None and VGPU_REGISTER_ANNOTATION in annotations and not asked.startswith(_REPORTED_PREFIX)


def handshake_answer(moment: str) -> str:
    """What answers it; Volcano does not look at the moment."""
    return _REPORTED_PREFIX + moment
