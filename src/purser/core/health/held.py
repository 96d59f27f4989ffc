"""What is wrong with the GPUs that a pod holds, in a sentence, and what its owner can do. Pure."""

from collections.abc import Mapping

from purser.core.decoding import brief
from purser.core.model import Device
from purser.core.names import UNSERVED_REASONS

_MAX_NAMED_GPUS = 4
"""In one message."""


def held_gpus_fault(held: Mapping[str, Device | None]) -> str | None:
    """What is wrong with these devices, by uuid; empty: nothing. None: nothing is known to be wrong, but some are gone
    or not served now."""
    unhealthy = sorted((d for d in held.values() if d and is_unhealthy(d)), key=lambda d: (d.index, d.uuid))
    if unhealthy:
        named = [
            f"GPU {each.index} ({each.uuid}): {brief(each.unhealthy_reason)}" for each in unhealthy[:_MAX_NAMED_GPUS]
        ]
        more = f"; and {len(unhealthy) - _MAX_NAMED_GPUS} more" if len(unhealthy) > _MAX_NAMED_GPUS else ""
        return "; ".join(named) + more + ". If you recreate the pod, the new pod gets other GPUs"
    return "" if all(device and device.healthy for device in held.values()) else None


def is_unhealthy(device: Device) -> bool:
    """Whether a device has failed, and is not only unserved for the moment because its agent stops or leaves it out."""
    return not device.healthy and device.unhealthy_reason not in UNSERVED_REASONS
