"""What the event `Granted` says that its pod asked for."""

import msgspec
import pytest

from purser.core.decoding import UnreadableError
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    DeviceRequest,
    DeviceShare,
    Grant,
    PodRequest,
)
from purser.core.names import ASKED_ANNOTATION
from purser.core.placement.asked import asked_annotation, read_asked_shape
from purser.core.placement.shape import PodShape

SHARES = (DeviceShare("g-0", 3000, 20), DeviceShare("g-1", 4000, 30))
GRANT = Grant("u", "ns", "p", "n", (ContainerGrant("a", ContainerKind.APP, SHARES),))


def request(*devices, **more):
    containers = tuple(ContainerRequest(f"c{at}", ContainerKind.APP, each) for at, each in enumerate(devices))
    return PodRequest("u", "ns", "p", containers, **more)


def test_a_pod_that_is_a_size_is_read_as_it_was_written():
    asked = request(DeviceRequest(1, memory_mib=3000, models_allowed=("A100",)), cpu_milli=500, memory_mib=64)
    found = read_asked_shape(asked_annotation(asked, GRANT)[ASKED_ANNOTATION])
    assert found == PodShape(500, 64, 1, 3000, models=("A100",))


def test_a_pod_that_is_more_than_a_size_is_what_it_holds():
    asked = request(DeviceRequest(1, memory_mib=3000), DeviceRequest(1, memory_mib=4000), cpu_milli=500)
    found = read_asked_shape(asked_annotation(asked, GRANT)[ASKED_ANNOTATION])
    assert found == PodShape(500, 0, 2, 4000, gpu_cores_percent=30)


def test_what_is_too_long_is_left_out():
    assert asked_annotation(request(DeviceRequest(1, models_allowed=("A" * 5000,))), GRANT) == {}


@pytest.mark.parametrize(
    "odd",
    [
        {"gpu_count": -1},
        {"gpu_count": 5000},
        {"cpu_milli": -1},
        {"gpu_memory_mib": 1 << 40},
        {"gpu_cores_percent": 101},
        {"gpu_memory_mib": 1, "gpu_memory_percent": 1},
        {"models": ["a"] * 100},
        {"gpu_count": "many"},
    ],
)
def test_what_no_pod_can_ask_for_is_refused(odd):
    with pytest.raises(UnreadableError, match=ASKED_ANNOTATION):
        read_asked_shape(msgspec.json.encode(odd).decode())
