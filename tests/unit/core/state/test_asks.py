"""What the state document says of what a waiting pod asks for."""

import pytest

from purser.core.model import ContainerKind, ContainerRequest, DeviceRequest, PodRequest
from purser.core.state import StateAsk, state_ask

GPU = "nvidia.com/gpu"
WHOLE = DeviceRequest(1, memory_percent=100, cores_percent=100)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([DeviceRequest(2, memory_mib=1000, cores_percent=30)], StateAsk(GPU, False, 1000)),
        ([DeviceRequest(1, memory_percent=40)], StateAsk(GPU, False, 0, 40)),
        ([WHOLE], StateAsk(GPU, True)),
        ([DeviceRequest(1, memory_mib=10, cores_percent=100)], StateAsk(GPU, True)),
        ([DeviceRequest(1, memory_mib=10), DeviceRequest(1, memory_mib=30)], StateAsk(GPU, False, 30)),
        ([DeviceRequest(1, memory_mib=10), DeviceRequest(1, memory_percent=30)], None),
        ([DeviceRequest(1, memory_mib=10), WHOLE], None),
        ([DeviceRequest(1, memory_mib=10), DeviceRequest(1, memory_mib=10, resource="hygon.com/dcunum")], None),
        ([DeviceRequest(1, memory_mib=10, mig_profiles=("1g.5gb",))], None),
        ([], None),
    ],
    ids=["MiB", "percent", "whole", "alone", "the most", "in two ways", "both", "two families", "a profile", "nothing"],
)
def test_what_a_pod_asks_for_of_each_gpu(asked, expected):
    parts = tuple(ContainerRequest(f"c-{number}", ContainerKind.APP, each) for number, each in enumerate(asked))
    assert state_ask(PodRequest("uid", "ns", "p", parts)) == expected
