"""How other systems' records name GPUs."""

from collections.abc import Iterable, Mapping

from purser.core.model import Device


def indices_of(uuids: Iterable[str], devices: Mapping[str, Device]) -> str:
    """The indices of these devices on their node, ascending, with commas; a device that is gone has none."""
    return ",".join(map(str, sorted({devices[uuid].index for uuid in uuids if uuid in devices})))
