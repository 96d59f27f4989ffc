"""Which cores of a device a container gets, where cores have numbers (`purser.core.model.Device.cores`).

How many are free is known before (`purser.core.fleet.rule`, by compute in percent), so there is always a number for
each: the lowest ones are taken, as in HAMi's ``addCoreUsage`` for AWS Neuron. An init container's cores are free again
for the containers after it, which are handed its devices.
"""

from collections.abc import Sequence

import msgspec

from purser.core.fleet import DeviceState
from purser.core.model import WHOLE_PERCENT, ContainerGrant, ContainerKind, DeviceShare


def with_core_numbers(states: Sequence[DeviceState], parts: Sequence[ContainerGrant]) -> tuple[ContainerGrant, ...]:
    """What a pod's containers would hold of a node, in kubelet's order, with the numbers of their cores."""
    taken = {state.device.uuid: {*state.usage.core_numbers} for state in states}
    cores = {state.device.uuid: state.device.cores for state in states}
    found = []
    for part in parts:
        shares = tuple(_numbered(share, cores[share.uuid], taken[share.uuid]) for share in part.shares)
        if part.kind is not ContainerKind.INIT:
            for share in shares:
                taken[share.uuid].update(share.core_numbers)
        found.append(msgspec.structs.replace(part, shares=shares))
    return tuple(found)


def _numbered(share: DeviceShare, cores: int, taken: set[int]) -> DeviceShare:
    count = -(-share.cores_percent * cores // WHOLE_PERCENT)
    free = [number for number in range(cores) if number not in taken]
    return msgspec.structs.replace(share, core_numbers=tuple(free[:count]))
