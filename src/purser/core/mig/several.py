"""Several MIG devices for one container: NVIDIA's device plugin gives them to whoever asks for several, and so does
Purser. What a program sees of them is for its author to know.

With drivers before R570 CUDA shows a process the first MIG device alone; from R570 on, one compute instance of each GPU
instance (NVIDIA's MIG user guide, "CUDA Device Enumeration"). With none of them can they read one another's memory.
"""

import re
from collections.abc import Iterator, Mapping

from purser.core.decoding import brief
from purser.core.device.resources import MIG_PREFIX, SHARED_SUFFIX
from purser.core.model import Device, DeviceMode, Grant, PodRequest

FIRST_RELEASE = 570
"""Release of NVIDIA's driver."""

_RELEASE_PATTERN = re.compile(r"[0-9]{1,5}", re.ASCII)


def asked_warnings(request: PodRequest) -> Iterator[str]:
    """What the author of a container that asks for several should know."""
    for part in request.containers:
        asked = part.devices
        by_name = asked.resource.startswith(MIG_PREFIX) and not asked.resource.endswith(SHARED_SUFFIX)
        if asked.count > 1 and (by_name or set(asked.modes_allowed) == {DeviceMode.MIG}):
            yield (
                f'container "{brief(part.name, 63)}" asks for {asked.count} MIG devices: with drivers before '
                f"R{FIRST_RELEASE}, CUDA exposes only the first one to a process, and MIG devices never share memory. "
                f"Ask for one larger MIG device, or run one process per MIG device"
            )


def granted_note(grant: Grant, devices: Mapping[str, Device], driver_version: str) -> str:
    """Which containers hold several on a node whose driver shows a process one; empty: none. A driver whose release is
    not known is taken for a new one."""
    release = _RELEASE_PATTERN.match(driver_version)
    if release is None or int(release[0]) >= FIRST_RELEASE:
        return ""
    several = [
        part.container
        for part in grant.containers
        if len({(s.uuid, s.mig) for s in part.shares if s.uuid in devices and devices[s.uuid].is_mig}) > 1
    ]
    if not several:
        return ""
    where = f"container{'s' * (len(several) > 1)} {', '.join(several)}"
    return (
        f"with driver {brief(driver_version, 32)}, CUDA shows each process in {where} only one MIG device: the "
        f"first one, unless CUDA_VISIBLE_DEVICES names another"
    )
