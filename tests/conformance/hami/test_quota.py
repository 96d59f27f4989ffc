"""HAMi's namespace quota: what a pod may still take, its own other containers counted.

Source: its device/nvidia/device_test.go (TestFitQuota) and device/quota_test.go. The memory factor of its tables
scales requests before they reach the kernel, so it has no counterpart here.
"""

import pytest

from purser.core.fleet import node_state
from purser.core.grant.quota import Demand, QuotaLimits, grant_demand, remaining_quota, strictest_limits
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    Grant,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Placement, place

APP, INIT = ContainerKind.APP, ContainerKind.INIT
CARDS = tuple(Device(f"dev-{i}", i, "NVIDIA", 8192, slots=10) for i in range(3))
LIMIT = QuotaLimits(memory_mib=2048)


def fits(*containers: tuple[ContainerKind, int, int], left: QuotaLimits = LIMIT) -> bool:
    """Containers as (kind, how many cards, memory of each)."""
    parts = tuple(
        ContainerRequest(f"c{i}", kind, DeviceRequest(count, memory_mib=memory))
        for i, (kind, count, memory) in enumerate(containers)
    )
    state = node_state(NodeInventory("n", CARDS), {})
    return isinstance(place(state, PodRequest("u", "ns", "p", parts), left=left), Placement)


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([(APP, 1, 100)], True, id="within the limit"),
        pytest.param([(APP, 1, 3000)], False, id="beyond it"),
        pytest.param([(APP, 1, 1024), (APP, 1, 100)], True, id="two containers within it"),
        pytest.param([(APP, 1, 1024), (APP, 1, 2000)], False, id="two containers beyond it"),
        pytest.param([(APP, 1, 1024), (APP, 1, 1024), (APP, 1, 100)], False, id="the third is too much"),
        pytest.param([(APP, 1, 100)] * 3, True, id="three small ones"),
        pytest.param([(INIT, 1, 1500), (INIT, 1, 1500)], True, id="init containers: the peak counts"),
        pytest.param([(INIT, 1, 1024), (INIT, 1, 1024), (INIT, 1, 500)], True, id="three init containers"),
        pytest.param([(INIT, 1, 2100), (APP, 1, 100)], False, id="an init container alone is too much"),
        pytest.param([(APP, 2, 1024)], True, id="two cards, exactly the limit"),
        pytest.param([(APP, 2, 1025)], False, id="per-card memory counts for every card (HAMi#1393)"),
    ],
)
def test_a_pod_against_its_namespace_limit(containers: list[tuple[ContainerKind, int, int]], expected: bool) -> None:
    assert fits(*containers) is expected


@pytest.mark.parametrize(
    ("hard", "used", "asked", "expected"),
    [
        (QuotaLimits(2000, 400), Demand(1000, 200), Demand(500, 100), True),
        (QuotaLimits(2000, 400), Demand(1000, 200), Demand(1500, 0), False),
        (QuotaLimits(2000, 400), Demand(1000, 200), Demand(0, 300), False),
        (QuotaLimits(), Demand(1000, 200), Demand(99999, 99999), True),
        (QuotaLimits(memory_mib=0), Demand(), Demand(500), False),
    ],
    ids=["within both", "too much memory", "too much compute", "a namespace without quota", "an explicit 0 blocks"],
)
def test_what_a_quota_leaves(hard: QuotaLimits, used: Demand, asked: Demand, expected: bool) -> None:
    assert remaining_quota(hard, used).holds(asked) is expected


def test_several_quotas_of_a_namespace_all_hold() -> None:
    """Better than HAMi, where the quota that was written last wins."""
    assert strictest_limits([QuotaLimits(2000, None), QuotaLimits(1000, 300)]) == QuotaLimits(1000, 300)


def test_a_grant_uses_its_peak() -> None:
    parts = (
        ContainerGrant("i", INIT, (DeviceShare("a", 1500, 50),)),
        ContainerGrant("c", APP, (DeviceShare("a", 1000, 10), DeviceShare("b", 1000, 10))),
    )
    assert grant_demand(Grant("u", "ns", "p", "n", parts)) == Demand(2000, 50)
