"""HAMi's ``Fit`` for NVIDIA as a table: which device is taken, or the counted reasons why none is.

Source: its device/nvidia/device_test.go. A device type other than NVIDIA becomes a model that is not allowed here.
"""

import msgspec
import pytest

from purser.core.fleet import NodeState, node_state
from purser.core.ledger import Usage
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    GpuPolicy,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Placement, PolicySettings, Refusal, place

SPREAD = PolicySettings(gpu=(GpuPolicy.SPREAD,))
"""HAMi's default, which its tables assume; Purser's own is binpack."""


def card(index: int, memory: int = 128, **facts: object) -> Device:
    device = Device(f"dev-{index}", index, "NVIDIA", memory_mib=memory, slots=100)
    return msgspec.structs.replace(device, **facts)


def node(*cards: Device, used: dict[str, Usage] | None = None, cordoned: tuple[str, ...] = ()) -> NodeState:
    return node_state(NodeInventory("n", cards, cordoned=cordoned), used or {})


def pod(request: DeviceRequest, *policy: GpuPolicy) -> PodRequest:
    return PodRequest("u", "default", "p", (ContainerRequest("c", ContainerKind.APP, request),), gpu_policy=policy)


def outcome(state: NodeState, request: DeviceRequest, *policy: GpuPolicy) -> list[str] | str:
    verdict = place(state, pod(request, *policy), SPREAD)
    if isinstance(verdict, Refusal):
        return verdict.message
    assert isinstance(verdict, Placement)
    return [share.uuid for share in verdict.containers[0].shares]


def ask(count: int = 1, memory: int = 64, cores: int = 50, **more: object) -> DeviceRequest:
    return msgspec.structs.replace(DeviceRequest(count, memory_mib=memory, cores_percent=cores), **more)


@pytest.mark.parametrize(
    ("state", "request_", "expected"),
    [
        pytest.param(node(card(0), card(1)), ask(), ["dev-1"], id="the last of equal cards"),
        pytest.param(node(card(0)), ask(memory=512), "1/1 CardInsufficientMemory", id="too little memory"),
        pytest.param(
            node(card(0), used={"dev-0": Usage(cores_percent=100)}),
            ask(cores=50),
            "1/1 CardInsufficientCore",
            id="too little compute",
        ),
        pytest.param(node(card(0)), ask(models_allowed=("OtherType",)), "1/1 CardTypeMismatch", id="another type"),
        pytest.param(
            node(card(1)), ask(2, uuids_allowed=("dev-0",)), "1/1 CardUuidMismatch", id="another uuid than wanted"
        ),
        pytest.param(
            node(card(0)), ask(2, uuids_denied=("dev-0",)), "1/1 CardUuidMismatch", id="the uuid that is not wanted"
        ),
        pytest.param(
            node(card(0), used={"dev-0": Usage(slots=100)}), ask(), "1/1 CardTimeSlicingExhausted", id="no slot left"
        ),
        pytest.param(node(card(0, 1280)), ask(memory=512, cores=120), ["dev-0"], id="more than all cores is all cores"),
        pytest.param(
            node(card(0), used={"dev-0": Usage(slots=20)}),
            ask(cores=100),
            "1/1 ExclusiveDeviceAllocateConflict",
            id="alone on a card in use",
        ),
        pytest.param(
            node(card(0), used={"dev-0": Usage(slots=20, cores_percent=100)}),
            ask(cores=0),
            "1/1 CardComputeUnitsExhausted",
            id="all compute is taken",
        ),
        pytest.param(node(card(0)), ask(2), "1/1 AllocatedCardsInsufficientRequest", id="two of one card"),
        pytest.param(node(card(0), card(1)), ask(3), "2/2 AllocatedCardsInsufficientRequest", id="three of two cards"),
        pytest.param(
            node(card(0), used={"dev-0": Usage(cores_percent=10)}),
            DeviceRequest(1, memory_percent=10, cores_percent=20),
            ["dev-0"],
            id="memory in percent",
        ),
        pytest.param(node(card(0, healthy=False)), ask(), "1/1 CardNotHealth", id="an unhealthy card"),
        pytest.param(node(card(0), card(1), cordoned=("dev-1",)), ask(), ["dev-0"], id="one of two cordoned"),
        pytest.param(node(card(0), card(1), cordoned=("dev-1", "dev-0")), ask(), "2/2 GpuCordoned", id="both cordoned"),
    ],
)
def test_fit(state: NodeState, request_: DeviceRequest, expected: list[str] | str) -> None:
    assert outcome(state, request_) == expected


def test_numa_binding_takes_both_gpus_of_one_numa_node() -> None:
    state = node(card(0, numa_nodes=(1,)), card(1, numa_nodes=(1,)), card(2, numa_nodes=(0,)))
    assert outcome(state, ask(2, numa_bind=True)) == ["dev-1", "dev-0"]


def test_numa_binding_finds_a_set_that_hami_throws_away() -> None:
    """Better than HAMi: its walk discards what it collected at each change of the NUMA node, so cards of one node that
    are not neighbours in its order are never taken together; here a set that exists is found."""
    state = node(card(0, numa_nodes=(0,)), card(1, numa_nodes=(1,)), card(2, numa_nodes=(0,)))
    assert outcome(state, ask(2, numa_bind=True), GpuPolicy.SPREAD) == ["dev-2", "dev-0"]


def test_numa_binding_without_such_a_set_says_so() -> None:
    state = node(card(0, numa_nodes=(0,)), card(1, numa_nodes=(1,)))
    assert outcome(state, ask(2, numa_bind=True)) == "2/2 NumaNotFit"


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(1, ["dev-1"], id="one: the idle card"),
        pytest.param(
            2, "1/2 AllocatedCardsInsufficientRequest, 1/2 ExclusiveDeviceAllocateConflict", id="two: only one is idle"
        ),
    ],
)
def test_mutex_takes_idle_gpus_only(count: int, expected: list[str] | str) -> None:
    state = node(card(0), card(1), used={"dev-0": Usage(slots=1)})
    assert outcome(state, ask(count), GpuPolicy.MUTEX) == expected
