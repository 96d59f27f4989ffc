"""The list of devices that Volcano's scheduler writes of a pod's vGPUs, read as Volcano reads it.

The encoding is HAMi's (`hami_codec`), whose readers refuse a list with a part that makes no sense. Volcano leaves out
the device that is malformed, or whose amounts are not numbers from 0 on, and keeps the others (``vgpu/utils.go``).
"""

import re

from purser.core.dialects.hami_codec import MAX_HAMI_ANNOTATION_BYTES, ContainerDevice

_NUMBER = re.compile(r"[0-9]{1,32}", re.ASCII)
_MAX_NUMBER = 2**32 - 1


def decode_vgpu_devices(text: str) -> tuple[tuple[ContainerDevice, ...], ...]:
    """The devices by container, none of a text that is longer than an annotation may be."""
    if not text or len(text) > MAX_HAMI_ANNOTATION_BYTES:
        return ()
    return tuple(_devices_of(part) for part in text.split(";"))


def _devices_of(text: str) -> tuple[ContainerDevice, ...]:
    found = (_device(part.split(",")) for part in text.split(":"))
    return tuple(each for each in found if each is not None)


def _device(fields: list[str]) -> ContainerDevice | None:
    if len(fields) < 4:
        return None
    uuid, word, *amounts = fields[:4]
    if not all(_NUMBER.fullmatch(each) and int(each) <= _MAX_NUMBER for each in amounts):
        return None
    memory, cores = map(int, amounts)
    return ContainerDevice(uuid, word, memory, cores)
