"""Small fleets with pods on them, and every plan there is for them."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TypeVar

import msgspec
from hypothesis import strategies as st

from purser.core.fleet import Fleet, FreeResources
from purser.core.model import ContainerKind, ContainerRequest, Device, DeviceRequest, NodeInventory, PodRequest
from purser.core.placement import Evaluator, Placement, place, to_grant
from purser.core.planning import GpuPod, Occupancy, PlanStep, Room, RoomRequest
from purser.core.planning.rehearsal import Rehearsal

T = TypeVar("T")

MEMORY = 1000


def request_of(uid: str, memory: int, gpus: int = 1, model: str = "", cpu: int = 0) -> PodRequest:
    """Memory of MEMORY or more is the GPU alone."""
    asked = DeviceRequest(
        gpus,
        memory_mib=None if memory >= MEMORY else memory,
        memory_percent=100 if memory >= MEMORY else None,
        cores_percent=100 if memory >= MEMORY else 0,
        models_allowed=(model,) if model else (),
    )
    return PodRequest(uid, "ns", uid, (ContainerRequest("c", ContainerKind.APP, asked),), cpu_milli=cpu)


def fleet_of(gpus: Sequence[int], models: Sequence[str] = (), cpu: int = 1 << 30) -> Fleet:
    """A node for each number, with so many GPUs."""
    fleet = Fleet()
    for at, number in enumerate(gpus):
        model = models[at % len(models)] if models else "A100"
        devices = tuple(Device(f"n{at}-g{i}", i, model, MEMORY, slots=4) for i in range(number))
        fleet.set_inventory(NodeInventory(f"n{at}", devices))
        fleet.set_free_resources(f"n{at}", FreeResources(cpu_free_milli=cpu))
    return fleet


def put(fleet: Fleet, pod: GpuPod, node: str) -> bool:
    """Whether it had room."""
    state, asked = fleet.node(node), pod.request
    assert state is not None
    free = fleet.free_resources(node)
    placed = place(state, asked)
    if not isinstance(placed, Placement) or free.cpu_free_milli < asked.cpu_milli:
        return False
    fleet.ledger.reserve(to_grant(placed, asked, state.inventory))
    left = free.cpu_free_milli - (asked.cpu_milli if free.cpu_free_milli < 1 << 30 else 0)
    fleet.set_free_resources(node, msgspec.structs.replace(free, cpu_free_milli=left))
    return True


_cpu = st.sampled_from([0, 0, 1000, 2000])


def _seldom(usual: T, *others: T) -> st.SearchStrategy[T]:
    """One of eight is another."""
    return st.integers(0, 7).flatmap(lambda number: st.just(usual) if number < 7 else st.sampled_from(others))


@st.composite
def occupancies(draw: st.DrawFn) -> Occupancy:
    """Three nodes of at most three GPUs, at most six pods of all sorts; GPUs may be divided or take no pods.

    Most of it is usual, so that most examples have pods to move, and room to move them to.
    """
    gpus = draw(st.sampled_from([(3, 2, 1), (2, 2, 1), (2, 2, 2), (1, 2, 3), (3, 1, 1), (2, 1, 1)]))
    fleet = fleet_of(gpus, draw(st.sampled_from([["A100"], ["A100", "L4"]])), cpu=draw(_seldom(1 << 30, 4000)))
    names = [node.name for node in fleet]
    for name in names:
        _spoil(fleet, name, draw(_seldom("", "divided", "unhealthy", "cordoned")))
    pods: dict[str, GpuPod] = {}
    for number in range(draw(st.integers(3, 6))):
        uid, memory = f"p{number}", draw(st.sampled_from([300, 500, MEMORY, MEMORY]))
        asked = request_of(uid, memory, draw(st.sampled_from([1, 1, 2])), draw(_seldom("", "L4")), draw(_cpu))
        pod = GpuPod(
            asked,
            returns=draw(_seldom(True, False)),
            stay_reason=draw(_seldom("", "is a static pod")),
            nodes=draw(st.sampled_from([None, None, frozenset(names[1:]), frozenset(names[:2])])),
            budget=draw(_seldom("", "one", "none")),
        )
        first = draw(st.integers(0, 2))
        if any(put(fleet, pod, name) for name in (*names[first:], *names[:first])):
            pods[uid] = pod
    closed = draw(_seldom(frozenset[str](), frozenset(names[:1])))
    for name in names:  # pods that are there keep what they have
        _spoil(fleet, name, draw(_seldom("", "cordoned")))
    return Occupancy(fleet, pods, {"one": 1, "none": 0}, closed)


@st.composite
def chains(draw: st.DrawFn) -> Occupancy:
    """Pods of the first node that may go to the second alone, and pods there that have to leave for them first."""
    gpus = draw(st.sampled_from([(2, 1, 1), (2, 2, 1), (1, 1, 1), (2, 2, 2)]))
    fleet, pods = fleet_of(gpus), {}
    for number in range(draw(st.integers(3, 6))):
        uid, place = f"p{number}", number if number < 2 else draw(st.integers(0, 2))
        asked = request_of(uid, MEMORY if number == 0 else draw(st.sampled_from([300, 500, 700])))
        pod = GpuPod(
            asked,
            returns=draw(_seldom(True, False)),
            nodes=frozenset(["n0", "n1"]) if place == 0 else draw(_seldom(None, frozenset(["n1"]))),
            budget=draw(_seldom("", "one")),
        )
        if put(fleet, pod, f"n{place}"):
            pods[uid] = pod
    return Occupancy(fleet, pods, {"one": 1}, frozenset(["n1", "n2"]))


def _spoil(fleet: Fleet, name: str, how: str) -> None:
    """The first of a node's GPUs."""
    node = fleet.node(name)
    assert node is not None
    first, *others = node.inventory.devices
    if how == "cordoned":
        fleet.set_inventory(msgspec.structs.replace(node.inventory, cordoned=(first.uuid,)))
    elif how:
        changed = {"replicas": 2, "slots": 2} if how == "divided" else {"healthy": False}
        devices = (msgspec.structs.replace(first, **changed), *others)
        fleet.set_inventory(msgspec.structs.replace(node.inventory, devices=devices))


def every_room(occupancy: Occupancy, wish: RoomRequest) -> Iterator[tuple[Room, ...]]:
    """Every choice of as many GPUs on as many nodes."""
    each = [
        [Room(node.name, uuids) for uuids in combinations(_whole_gpus(node.inventory), wish.gpus)]
        for node in occupancy.fleet
        if node.name not in occupancy.closed
    ]
    for rooms in combinations([room for node in each for room in node], wish.nodes):
        if len({room.node for room in rooms}) == wish.nodes:
            yield rooms


def _whole_gpus(inventory: NodeInventory) -> list[str]:
    good = (each for each in inventory.devices if each.healthy and each.replicas == 1)
    return [each.uuid for each in good if each.uuid not in inventory.cordoned]


def exhaustive(occupancy: Occupancy, wish: RoomRequest) -> int | None:
    """What the cheapest of all plans costs, by trying each order of each set of pods; None where there is none."""
    rehearsal = Rehearsal(occupancy, Evaluator(occupancy.fleet))
    best: list[int] = []

    def go(rooms: tuple[Room, ...], steps: tuple[PlanStep, ...], cost: int) -> None:
        if best and cost >= best[0]:
            return
        rehearsal.restore_state(rooms, steps)
        if not rehearsal.holders(rooms):
            best[:] = [cost]
            return
        for uid, pod in occupancy.pods.items():
            if pod.stay_reason or uid in {step.uid for step in steps}:
                continue
            rehearsal.restore_state(rooms, steps)
            step = rehearsal.evict(uid)
            if step is not None:
                go(rooms, (*steps, step), cost + step.price)

    for rooms in every_room(occupancy, wish):
        go(rooms, (), 0)
    rehearsal.close()
    return best[0] if best else None
