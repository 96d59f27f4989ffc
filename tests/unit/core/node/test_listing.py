"""Devices of which kubelet lists none: the agent that served them is away, whatever it said last."""

import msgspec
import pytest

from purser.core.fleet import DeviceState
from purser.core.ledger import Usage
from purser.core.model import Device
from purser.core.names import AGENT_AWAY
from purser.core.node.listing import with_listing

OPEN = DeviceState(Device("GPU-0", 0, "A100", 40960), Usage(), False, "")


@pytest.mark.parametrize(
    ("amounts", "changes", "reason"),
    [
        pytest.param({"nvidia.com/gpu": "10"}, {}, "", id="listed"),
        pytest.param({}, {}, "", id="no such name: nothing is known"),
        pytest.param({"nvidia.com/gpu": "0"}, {}, AGENT_AWAY, id="none"),
        pytest.param({"nvidia.com/gpu": 0}, {}, AGENT_AWAY, id="none, as a number"),
        pytest.param({"nvidia.com/gpu": "0"}, {"mig_kind": "a100-40gb"}, AGENT_AWAY, id="cut on demand"),
        pytest.param({"nvidia.com/gpu": "0"}, {"resource": "nvidia.com/gpu.shared"}, "", id="another name"),
        pytest.param({"nvidia.com/gpu": "0"}, {"healthy": False, "unhealthy_reason": "Xid 79"}, "Xid 79", id="ill"),
    ],
)
def test_kubelet_keeps_the_name_of_what_it_does_not_have_any_more(amounts, changes, reason):
    device = msgspec.structs.replace(OPEN.device, **changes)
    found = with_listing(msgspec.structs.replace(OPEN, device=device), amounts).device
    assert (found.healthy, found.unhealthy_reason) == (not reason, reason)


@pytest.mark.parametrize("closed", [{"cordoned": True}, {"disputed": "differs"}])
def test_what_keeps_pods_away_already_is_what_is_said(closed):
    state = msgspec.structs.replace(OPEN, **closed)
    assert with_listing(state, {"nvidia.com/gpu": "0"}) is state
