"""Which devices kubelet lists: what a node's agent published may be older than its death."""

from collections.abc import Mapping

import msgspec

from purser.core.fleet import DeviceState
from purser.core.kubernetes.quantities import QuantityLike
from purser.core.names import AGENT_AWAY


def lists_zero(allocatable: Mapping[str, QuantityLike], resource: str) -> bool:
    """Whether kubelet knows a resource and has none of it: it keeps the name, with 0, when a device plugin goes away
    (``setters.MachineInfo``, 1.20 to 1.37), also when that is killed and could say nothing."""
    return str(allocatable.get(resource, "")) == "0"


def with_listing(state: DeviceState, allocatable: Mapping[str, QuantityLike]) -> DeviceState:
    """The device, unhealthy where nothing else keeps pods from it but that kubelet has none of its resource. Devices of
    other vendors' plugins and of HAMi's are not healthy then in the first place (`purser.core.vendors`)."""
    device = state.device
    is_open = device.healthy and not (state.cordoned or state.disputed)
    if not is_open or not lists_zero(allocatable, device.resource):
        return state
    replace = msgspec.structs.replace
    return replace(state, device=replace(device, healthy=False, unhealthy_reason=AGENT_AWAY))
