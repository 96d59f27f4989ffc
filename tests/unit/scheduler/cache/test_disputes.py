"""Which GPUs take no new pods once kubelet has rejected one."""

import pytest
from tests.unit.kube.servers import StandingClock

from purser.core.fleet import Fleet
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.scheduler.cache.disputes import INITIAL_GPU_CLOSURE_S, DisputeBook
from purser.scheduler.metrics import SchedulerMetrics


@pytest.mark.parametrize(
    ("message", "closed"),
    [
        ("Allocate failed due to endpoint /plugins/purser.sock has been stopped, nvidia.com/gpu", "abc"),
        ("Allocate failed due to can't allocate unregistered device nvidia.com/gpu, which is unexpected", "abc"),
        ("no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu", "abc"),
        ("nvidia.com/mig-1g.5gb: rpc error: code = Unavailable desc = connection refused", "abc"),
        ("requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0", "a"),
        ("rpc error: code = FailedPrecondition desc = device a is unhealthy", "a"),
        ("endpoint /plugins/other.sock has been stopped: example.com/fpga", ""),
        ("device b is in the way", ""),
    ],
)
def test_where_kubelet_reached_no_agent_the_whole_node_rests(message: str, closed: str) -> None:
    fleet, clock = Fleet(), StandingClock()
    fleet.set_inventory(NodeInventory("n", tuple(Device(uuid, 0, "NVIDIA", 1000) for uuid in "abc")))
    book = DisputeBook(fleet, lambda uid: True, SchedulerMetrics(), clock)
    part = ContainerGrant("main", ContainerKind.APP, (DeviceShare("a", 1000, 100),))
    book.rejected("ns/p", Grant("uid", "ns", "p", "n", (part,)), message)
    assert set(book.closed("n")) == set(closed)
    clock.ahead_s += INITIAL_GPU_CLOSURE_S
    book.tick()
    assert not book.closed("n")
