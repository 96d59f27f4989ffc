"""Plans for whole GPUs: as cheap as any, between bound and promise, and each step as the scheduler decides it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.core.planning.worlds import MEMORY, chains, exhaustive, fleet_of, occupancies, put, request_of

from purser.core.fleet import Fleet
from purser.core.model import PodRequest
from purser.core.placement import Placement, place, to_grant
from purser.core.planning import (
    LOST_POD_PRICE,
    MOVED_POD_PRICE,
    WAITING_POD_PRICE,
    GpuPod,
    Occupancy,
    Room,
    RoomPlan,
    RoomRequest,
    least_cost,
    plan,
    rehearse,
)


def whole(uid: str, gpus: int) -> PodRequest:
    return request_of(uid, MEMORY, gpus)


def snapshot(fleet: Fleet) -> object:
    grants = sorted((g.pod_uid, g.node, str(fleet.ledger.state(g.pod_uid)), g) for g in fleet.ledger.grants())
    return [(n.name, n.inventory, n.devices, fleet.free_resources(n.name)) for n in fleet], [g[:3] for g in grants]


def carry_out(occupancy: Occupancy, made: RoomPlan) -> None:
    """Release and place each pod anew on the fleet itself; none is let into the rooms."""
    fleet, down = occupancy.fleet, 0
    rooms = {uuid for room in made.rooms for uuid in room.uuids}
    for step in made.steps:
        pod = occupancy.pods[step.uid]
        assert not pod.stay_reason and (not pod.budget or occupancy.allowed[pod.budget] > down)
        grant = fleet.ledger.release(step.uid)
        assert grant is not None and grant.node == step.node
        if not step.to:
            down += bool(pod.budget)
            assert step.price == (WAITING_POD_PRICE if pod.returns else LOST_POD_PRICE)
            continue
        assert pod.nodes is None or step.to in pod.nodes
        assert step.price == MOVED_POD_PRICE and pod.returns and rooms.isdisjoint(step.to_gpus)
        state = fleet.node(step.to)
        assert state is not None
        chosen = tuple(s for s in state.devices if s.device.uuid in step.to_gpus)
        gpus = type(state)(state.name, state.inventory, chosen, state.hardware)
        placed = place(gpus, pod.request)
        assert isinstance(placed, Placement), f"{step.pod} does not fit where it is to go"
        fleet.ledger.reserve(to_grant(placed, pod.request, state.inventory))


def has_room(fleet: Fleet, node: str, gpus: int) -> bool:
    state = fleet.node(node)
    return state is not None and isinstance(place(state, whole("new", gpus)), Placement)


@examples(150)
@given(occupancies() | chains(), st.integers(1, 2), st.integers(1, 2))
def test_a_plan_is_as_cheap_as_any_and_ends_with_its_room(occupancy: Occupancy, gpus: int, nodes: int) -> None:
    wish = RoomRequest(gpus, nodes)
    before = snapshot(occupancy.fleet)
    cheapest = exhaustive(occupancy, wish)
    assert snapshot(occupancy.fleet) == before
    made = plan(occupancy, wish)
    assert snapshot(occupancy.fleet) == before
    if made is None:
        assert cheapest is None
        return
    assert (made.cost, made.is_cheapest) == (cheapest, True)
    assert 0 <= least_cost(occupancy, wish, made.cost) <= made.cost
    assert least_cost(occupancy, wish, made.cost + LOST_POD_PRICE) <= made.cost
    assert not least_cost(occupancy, wish, made.cost) or made.steps
    carry_out(occupancy, made)
    assert all(has_room(occupancy.fleet, room.node, gpus) for room in made.rooms)


def occupancy_of(fleet: Fleet, *pods: tuple[GpuPod, str], **allowed: int) -> Occupancy:
    assert all(put(fleet, pod, node) for pod, node in pods)
    return Occupancy(fleet, {pod.request.uid: pod for pod, _ in pods}, allowed)


def test_who_is_in_the_way_of_a_replacement_leaves_first() -> None:
    """x fits n1 alone, once the share there has gone to n2: dearer than one step, cheaper than x waiting."""
    pods = (GpuPod(whole("x", 2)), "n0"), (GpuPod(request_of("share", 300)), "n1")
    occupancy = occupancy_of(fleet_of([3, 2, 1]), *pods)
    made = plan(occupancy, RoomRequest(3))
    assert made is not None
    assert [(s.uid, s.to, s.price) for s in made.steps] == [
        ("share", "n2", MOVED_POD_PRICE),
        ("x", "n1", MOVED_POD_PRICE),
    ]
    assert (made.is_cheapest, least_cost(occupancy, RoomRequest(3), WAITING_POD_PRICE)) == (True, 2 * MOVED_POD_PRICE)


def test_a_search_that_ends_at_its_limit_says_so() -> None:
    pods = (GpuPod(whole("x", 2)), "n0"), (GpuPod(request_of("share", 300)), "n1")
    made = plan(occupancy_of(fleet_of([3, 2, 1]), *pods), RoomRequest(3), max_decisions=1)
    assert made is not None and (made.cost, made.is_cheapest) == (WAITING_POD_PRICE, False)


def test_a_bare_pod_is_the_last_to_go() -> None:
    bare, kept = GpuPod(whole("bare", 1), returns=False), GpuPod(whole("kept", 1))
    occupancy = occupancy_of(fleet_of([1, 1]), (bare, "n0"), (kept, "n1"))
    made = plan(occupancy, RoomRequest(1))
    assert made is not None and [(s.uid, s.price, s.to) for s in made.steps] == [("kept", WAITING_POD_PRICE, "")]
    assert least_cost(occupancy, RoomRequest(1), LOST_POD_PRICE) == WAITING_POD_PRICE
    only = occupancy_of(fleet_of([1]), (bare, "n0"))
    lost = plan(only, RoomRequest(1))
    assert lost is not None and lost.cost == LOST_POD_PRICE


def test_the_bound_knows_that_a_bare_pod_elsewhere_may_make_place_for_many() -> None:
    """Sixteen shares wait for 160; where a bare pod goes first, for 100, twelve of them have a place."""
    shares = [(GpuPod(request_of(f"s{number}", 250)), "n0") for number in range(16)]
    occupancy = occupancy_of(fleet_of([4, 3]), (GpuPod(whole("bare", 3), returns=False), "n1"), *shares)
    room = Room("n0", tuple(f"n0-g{number}" for number in range(4)))
    steps = rehearse(occupancy, [room], ["bare", *(f"s{number}" for number in range(16))])
    assert sum(step.price for step in steps) == LOST_POD_PRICE + 12 * MOVED_POD_PRICE + 4 * WAITING_POD_PRICE
    assert (
        least_cost(occupancy, RoomRequest(4), 16 * WAITING_POD_PRICE)
        <= LOST_POD_PRICE + 12 * MOVED_POD_PRICE + 4 * WAITING_POD_PRICE
    )


def test_a_rehearsal_ends_where_a_replacement_without_a_place_uses_up_its_budget() -> None:
    """The step that waits is told, so that it is not the budget that is named."""
    pods = [(GpuPod(whole(f"p{i}", 1), budget="b"), "n0") for i in range(2)]
    occupancy = occupancy_of(fleet_of([2, 0]), *pods, b=1)
    room = Room("n0", ("n0-g0", "n0-g1"))
    assert [(s.uid, s.price) for s in rehearse(occupancy, [room], ["p0", "p1"])] == [("p0", WAITING_POD_PRICE)]


@pytest.mark.parametrize(("gpus", "nodes", "cost"), [(2, 2, 100), (2, 3, 200), (3, 2, 200)])
def test_the_bound_knows_that_a_pod_on_several_gpus_leaves_all_of_them(gpus: int, nodes: int, cost: int) -> None:
    pods = [(GpuPod(whole(f"big{n}", 3), returns=False), f"n{n}") for n in range(2)]
    occupancy, wish = occupancy_of(fleet_of([4, 4, 2]), *pods), RoomRequest(gpus, nodes)
    made = plan(occupancy, wish)
    assert made is not None
    assert (made.cost, least_cost(occupancy, wish, cost + LOST_POD_PRICE)) == (cost, cost)


def test_the_bound_knows_that_idle_gpus_of_several_nodes_are_no_place_for_a_pod_that_wants_more() -> None:
    """Six GPUs are idle, in pairs: x, of four, has no place. One that wants two has."""
    shares = [(GpuPod(request_of(f"s{at}", 600, 2), stay_reason="stays"), f"n{at}") for at in range(1, 4)]
    for gpus, least in ((4, WAITING_POD_PRICE), (2, MOVED_POD_PRICE)):
        occupancy = occupancy_of(fleet_of([4, 4, 4, 4]), (GpuPod(whole("x", gpus)), "n0"), *shares)
        made = plan(occupancy, RoomRequest(4))
        assert made is not None and made.cost == least_cost(occupancy, RoomRequest(4), LOST_POD_PRICE) == least


def test_the_bound_knows_that_a_part_of_a_divided_gpu_is_smaller() -> None:
    fleet = fleet_of([1, 1])
    node = fleet.node("n1")
    assert node is not None
    divided = msgspec.structs.replace(node.inventory.devices[0], replicas=2, slots=2)
    fleet.set_inventory(msgspec.structs.replace(node.inventory, devices=(divided,)))
    occupancy = occupancy_of(fleet, (GpuPod(whole("x", 1)), "n0"), (GpuPod(whole("y", 1)), "n1"))
    made = plan(occupancy, RoomRequest(1))
    assert made is not None and [(step.uid, step.to) for step in made.steps] == [("x", "n1")]
    assert least_cost(occupancy, RoomRequest(1), LOST_POD_PRICE) == made.cost == MOVED_POD_PRICE


def test_a_budget_counts_who_waits_and_not_who_has_landed() -> None:
    pods = [(GpuPod(whole(f"p{i}", 1), budget="b"), "n0") for i in range(2)]
    assert plan(occupancy_of(fleet_of([2]), *pods, b=1), RoomRequest(2)) is None
    moved = plan(occupancy_of(fleet_of([2, 1, 1]), *pods, b=1), RoomRequest(2))
    assert moved is not None and (moved.cost, len(moved.steps)) == (2 * MOVED_POD_PRICE, 2)


@pytest.mark.parametrize("closed", ["unhealthy", "cordoned"])
def test_a_gpu_that_takes_no_pods_is_no_room(closed: str) -> None:
    fleet = fleet_of([2])
    node = fleet.node("n0")
    assert node is not None
    inventory = node.inventory
    first = msgspec.structs.replace(inventory.devices[0], healthy=closed != "unhealthy")
    cordoned = (first.uuid,) if closed == "cordoned" else ()
    fleet.set_inventory(msgspec.structs.replace(inventory, devices=(first, inventory.devices[1]), cordoned=cordoned))
    assert plan(Occupancy(fleet, {}), RoomRequest(2)) is None
    free = plan(Occupancy(fleet, {}), RoomRequest(1))
    assert free is not None and (free.steps, free.rooms[0].uuids) == ((), ("n0-g1",))
