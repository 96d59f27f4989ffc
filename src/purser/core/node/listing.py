"""Which devices kubelet lists: what a node's agent published may be older than its death."""

from collections.abc import Mapping

import msgspec

from purser.core.fleet import DeviceState
from purser.core.kubernetes.quantities import QuantityLike
from purser.core.names import NOT_LISTED


def with_listing(state: DeviceState, allocatable: Mapping[str, QuantityLike]) -> DeviceState:
    """The device, unhealthy where nothing else keeps pods from it but that kubelet lists none of its resource.

    kubelet keeps the name, with 0, when a device plugin goes away (``setters.MachineInfo``, 1.20 to 1.37): also when it
    is killed, and could say nothing. A device that is cut on demand has a resource for each profile,
    and stays as it is.
    """
    device = state.device
    is_open = device.healthy and not (state.cordoned or state.disputed or device.mig_kind)
    if not is_open or str(allocatable.get(device.resource, "")) != "0":
        return state
    replace = msgspec.structs.replace
    return replace(state, device=replace(device, healthy=False, unhealthy_reason=NOT_LISTED))
