"""HAMi's tables of device scores, device order and node scores.

Source: its policy/gpu_policy_test.go and node_policy_test.go. Requests of another device type, which those tables
ignore, have no counterpart here: a container's request is judged by one vocabulary only.
"""

import numpy as np
import pytest

from purser.core.fleet import NodeState, node_state
from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.live import node_facts
from purser.core.ledger import Usage
from purser.core.model import Device, DeviceRequest, DeviceShare, GpuPolicy, NodeInventory, ScoreWeights
from purser.core.placement.order import Candidate, device_score, order_key
from purser.core.placement.policies.binpack import BinpackNodes
from purser.core.placement.shape import PodShape, share_of, view

BINPACK, SPREAD, MUTEX = GpuPolicy.BINPACK, GpuPolicy.SPREAD, GpuPolicy.MUTEX
NUMA, TOPOLOGY = GpuPolicy.NUMA, GpuPolicy.TOPOLOGY_AWARE


def device(slots: int, cores: int, memory: int, uuid: str = "d") -> Device:
    return Device(uuid, 0, "NVIDIA", memory_mib=memory, cores_percent=cores, slots=slots)


D = device(10, 4, 8192)
D_USED = Usage(slots=2, memory_mib=2048, cores_percent=1)
E = device(10, 10, 10000)


@pytest.mark.parametrize(
    ("card", "used", "requests", "score"),
    [
        pytest.param(device(0, 0, 0), Usage(), [], 0, id="a card without anything scores 0"),
        pytest.param(device(0, 4, 8192), Usage(), [], 0, id="a card without slots scores 0"),
        pytest.param(D, D_USED, [], 7.0, id="usage alone"),
        pytest.param(
            D, D_USED, [DeviceRequest(4, memory_mib=1024, cores_percent=1)], 11.75, id="the request counts, once"
        ),
        pytest.param(E, Usage(), [DeviceRequest(1, memory_percent=50, cores_percent=2)], 8.0, id="half the memory"),
        pytest.param(
            E,
            Usage(),
            [
                DeviceRequest(1, memory_percent=10, cores_percent=1),
                DeviceRequest(1, memory_percent=20, cores_percent=2),
            ],
            8.0,
            id="two requests add up",
        ),
    ],
)
def test_device_score_with_even_weights(card: Device, used: Usage, requests: list[DeviceRequest], score: float) -> None:
    """HAMi's production code never counts the request (trap 4); Purser does what HAMi's own table says."""
    assert device_score(card, used, [share_of(card, request) for request in requests]) == pytest.approx(score)


CARD = device(10, 100, 100)
FORTY_PERCENT = DeviceShare(CARD.uuid, 40, 0)
A_USED, B_USED = Usage(slots=1, cores_percent=90, memory_mib=10), Usage(slots=7, cores_percent=10, memory_mib=20)


@pytest.mark.parametrize(
    ("weights", "a", "b"),
    [
        pytest.param(ScoreWeights(1, 1, 1), 16, 15, id="even"),
        pytest.param(ScoreWeights(1, 1, 3), 26, 27, id="memory three times"),
        pytest.param(ScoreWeights(1, 3, 1), 34, 17, id="compute three times"),
    ],
)
def test_weights_decide_which_gpu_is_fuller(weights: ScoreWeights, a: float, b: float) -> None:
    assert device_score(CARD, A_USED, [FORTY_PERCENT], weights) == pytest.approx(a)
    assert device_score(CARD, B_USED, [FORTY_PERCENT], weights) == pytest.approx(b)


@pytest.mark.parametrize(
    ("policy", "numa_bind", "weights", "numas", "picked"),
    [
        pytest.param(BINPACK, False, ScoreWeights(1, 1, 3), (0, 0), "b", id="binpack takes the card fuller in memory"),
        pytest.param(SPREAD, False, ScoreWeights(1, 1, 3), (0, 0), "a", id="spread takes the other"),
        pytest.param(BINPACK, False, ScoreWeights(1, 3, 1), (0, 0), "a", id="binpack takes the card fuller in compute"),
        pytest.param(BINPACK, True, ScoreWeights(1, 1, 3), (0, 1), "a", id="binding prefers the lower NUMA node"),
    ],
)
def test_weights_decide_which_gpu_is_taken(
    policy: GpuPolicy, numa_bind: bool, weights: ScoreWeights, numas: tuple[int, int], picked: str
) -> None:
    a = Candidate(0, device_score(CARD, A_USED, [FORTY_PERCENT], weights), numas[0], A_USED.slots)
    b = Candidate(1, device_score(CARD, B_USED, [FORTY_PERCENT], weights), numas[1], B_USED.slots)
    first = min((a, b), key=order_key((policy,), numa_bind))
    assert first is {"a": a, "b": b}[picked]


def card(numa: int = 0, score: float = 0, used: int = 0, index: int = 0) -> Candidate:
    return Candidate(index, score, numa, used)


@pytest.mark.parametrize(
    ("policy", "numa_bind", "first", "second", "less"),
    [
        pytest.param((BINPACK,), False, card(1, 10), card(0, 20), True, id="binpack: fuller is later"),
        pytest.param((BINPACK,), False, card(1, 20), card(0, 10), False, id="binpack: emptier is earlier"),
        pytest.param((BINPACK,), False, card(0, 15), card(1, 15), True, id="binpack: NUMA breaks the tie"),
        pytest.param((SPREAD,), False, card(0, 10), card(0, 20), False, id="spread: fuller is earlier"),
        pytest.param((SPREAD,), False, card(1, 20), card(0, 10), True, id="spread: emptier is later"),
        pytest.param((SPREAD,), False, card(0, 15), card(1, 15), True, id="spread: NUMA breaks the tie"),
        pytest.param((BINPACK,), True, card(1, 5), card(0, 99), True, id="bound binpack: lower NUMA is later"),
        pytest.param((SPREAD,), True, card(0, 5), card(1, 99), True, id="bound spread: higher NUMA is later"),
        pytest.param((MUTEX,), False, card(used=2), card(used=0), True, id="mutex: idle is later"),
        pytest.param((MUTEX,), False, card(used=0), card(used=1), False, id="mutex: busy is earlier"),
        pytest.param((NUMA,), False, card(0, 99), card(1, 5), True, id="numa: the NUMA node alone"),
        pytest.param((NUMA,), False, card(index=3), card(index=1), False, id="numa: then the index"),
        pytest.param((NUMA, SPREAD), False, card(1, 5), card(0, 99), False, id="chain: numa before spread"),
        pytest.param((MUTEX, SPREAD), False, card(0, 10), card(0, 20), False, id="chain: mutex does not order"),
        pytest.param((MUTEX, TOPOLOGY), False, card(0, 10), card(0, 20), False, id="chain without keys is spread"),
        pytest.param((BINPACK, NUMA), False, card(index=5), card(index=2), False, id="chain: the index breaks ties"),
        pytest.param((BINPACK, SPREAD), True, card(0, 99), card(1, 5), True, id="bound chain: NUMA first"),
    ],
)
def test_order_of_two_gpus(
    policy: tuple[GpuPolicy, ...], numa_bind: bool, first: Candidate, second: Candidate, less: bool
) -> None:
    """HAMi's ``Less(first, second)``: what is less comes earlier in its list, and is taken later."""
    key = order_key(policy, numa_bind)
    assert (key(first) > key(second)) is less


def node(*cards: tuple[Device, Usage]) -> NodeState:
    inventory = NodeInventory("n", tuple(device for device, _ in cards))
    return node_state(inventory, {device.uuid: usage for device, usage in cards})


@pytest.mark.parametrize(
    ("state", "score"),
    [
        pytest.param(
            node(
                (device(100, 100, 100, "dev1"), Usage(50, 100, 100)),
                (device(150, 200, 200, "dev2"), Usage(75, 200, 200)),
            ),
            25,
            id="half the slots, all memory, all compute",
        ),
        pytest.param(
            node((device(10, 100, 8000), Usage(5, 4000, 50))), 15, id="one half-full card, before the request"
        ),
        pytest.param(node((device(10, 100, 8000), Usage())), 0, id="an idle card"),
        pytest.param(node(), 0, id="no cards"),
        pytest.param(node((device(0, 0, 0), Usage())), 0, id="a card without anything"),
    ],
)
def test_node_score(state: NodeState, score: float) -> None:
    arrays = FleetArrays()
    row = arrays.put_node(node_facts(state))
    found = BinpackNodes().score(view(arrays, PodShape(), np.array([row], np.intp)))
    assert 0.3 * found[0] == pytest.approx(score)  # HAMi's scale ends at 30
