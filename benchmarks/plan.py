"""What `purser plan free` costs beside a drain: on a published trace, at a load at which whole nodes are rare.

    python benchmarks/plan.py --traces DIR [--load 95] [--seed 1] [--policy purser]

The trace's pods are placed by the scheduler's own decision until they ask for so much of all GPUs. Then room is wanted:
so many whole GPUs on so many nodes, beyond what is idle. For each wish the plan, what any plan costs at least (HiGHS),
and two drains of whole nodes: of those with the fewest pods, and of the first of the list. Each evicts all pods of the
nodes, the largest first, and their replacements go where the scheduler puts them, as in the plan. A GPU that was idle
before is not counted as freed.

DIR has openb_node_list_gpu_node.csv and openb_pod_list_default.csv of clusterdata's GPU trace of 2023.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from purser.core.fleet import Fleet, FreeResources
from purser.core.model import (
    WHOLE_MILLI,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    GpuPolicy,
    NodeInventory,
    NodePolicy,
    PodRequest,
)
from purser.core.placement import Evaluator, Refusal, to_grant
from purser.core.planning import (
    WAITING_POD_PRICE,
    GpuPod,
    Occupancy,
    PlanStep,
    Room,
    RoomRequest,
    least_cost,
    plan,
    rehearse,
)
from purser.core.pod.requests import EffectiveRequests
from purser.core.policy.settings import PolicySettings
from purser.simulator.deciding import known_mix
from purser.simulator.openb import read_lists
from purser.simulator.orders import draw_order
from purser.simulator.workload import PODS_PER_NODE, SLOTS, SimPod, SimWorkload

WISHES = ((8, 1), (8, 4), (4, 1))
"""GPUs, on so many nodes more than there are with so many idle ones."""


def fleet_of(workload: SimWorkload) -> Fleet:
    """The trace's nodes."""
    fleet = Fleet()
    for node in workload.nodes:
        each = enumerate(node.gpus)
        devices = tuple(Device(f"{node.name}-{i}", i, gpu.model, WHOLE_MILLI, slots=SLOTS) for i, gpu in each)
        fleet.set_inventory(NodeInventory(node.name, devices))
        free = FreeResources(node.cpu_free_milli, node.memory_free_mib, PODS_PER_NODE)
        fleet.set_free_resources(node.name, free)
    return fleet


def request_of(uid: str, pod: SimPod) -> PodRequest:
    """A pod of the trace; whole GPUs are exclusive."""
    shape = pod.shape
    is_whole = shape.gpu_memory_mib >= WHOLE_MILLI
    asked = DeviceRequest(
        shape.gpu_count,
        memory_mib=None if is_whole else shape.gpu_memory_mib,
        memory_percent=100 if is_whole else None,
        cores_percent=100 if is_whole else 0,
        models_allowed=shape.models,
    )
    parts = (ContainerRequest("c", ContainerKind.APP, asked),) if shape.gpu_count else ()
    return PodRequest(uid, "trace", uid, parts, cpu_milli=shape.cpu_milli, memory_mib=shape.memory_mib)


def fill(fleet: Fleet, workload: SimWorkload, pods: Sequence[int], policy: PolicySettings) -> dict[str, GpuPod]:
    """Place them one after the other, those without GPUs where the most CPU is left; who finds no place is left out."""
    evaluator, names = Evaluator(fleet, policy, known_mix(workload)), fleet.names()
    there: dict[str, GpuPod] = {}
    for serial, number in enumerate(pods):
        uid, pod = f"pod-{serial}", workload.pods[number]
        request = request_of(uid, pod)
        if request.containers:
            found = evaluator.evaluate(request, names)
            order = found.scores.argsort(kind="stable")[::-1]
            name = next((found.fits[at] for at in order.tolist() if has_room(fleet, found.fits[at], request)), None)
            placed = None if name is None else evaluator.place(name, request)
            if name is None or placed is None or isinstance(placed, Refusal):
                continue
            node = fleet.node(name)
            assert node is not None
            fleet.ledger.adopt(to_grant(placed, request, node.inventory))
            there[uid] = GpuPod(request)
        else:
            name = max(names, key=lambda each: fleet.free_resources(each).cpu_free_milli)
            if not has_room(fleet, name, request):
                continue
        taken = EffectiveRequests(request.cpu_milli, request.memory_mib)
        fleet.set_free_resources(name, fleet.free_resources(name).less(taken, 1))
    return there


def has_room(fleet: Fleet, name: str, request: PodRequest) -> bool:
    """Of CPU, memory and pods."""
    free = fleet.free_resources(name)
    fits = free.cpu_free_milli >= request.cpu_milli and free.memory_free_mib >= request.memory_mib
    return fits and free.pods_free >= 1


def held_on(fleet: Fleet, name: str) -> dict[str, set[str]]:
    """The pods on each GPU of a node that has any."""
    found: dict[str, set[str]] = {}
    for grant in fleet.ledger.grants(name):
        for uuid in fleet.ledger.held(grant.pod_uid):
            found.setdefault(uuid, set()).add(grant.pod_uid)
    return found


def drain(occupancy: Occupancy, nodes: Sequence[str], policy: PolicySettings) -> tuple[PlanStep, ...]:
    """Everybody leaves these nodes, and nobody comes there."""
    fleet, rooms, uids = occupancy.fleet, [], []
    for name in nodes:
        node = fleet.node(name)
        assert node is not None
        rooms.append(Room(name, tuple(state.device.uuid for state in node.devices)))
        uids += [grant.pod_uid for grant in fleet.ledger.grants(name)]
    uids.sort(key=lambda uid: sum(use.memory_mib for use in fleet.ledger.held(uid).values()), reverse=True)
    steps = rehearse(occupancy, rooms, uids, policy)
    assert steps is not None, "all may go"
    return steps


def drained(occupancy: Occupancy, wish: RoomRequest, by_pods: bool) -> list[str]:
    """The nodes to drain: of those with as many GPUs, none of which has the room already, as many as are missing."""
    fleet, idle, others = occupancy.fleet, 0, []
    for node in fleet:
        if len(node.devices) >= wish.gpus:
            is_idle = len(node.devices) - len(held_on(fleet, node.name)) >= wish.gpus
            idle += is_idle
            if not is_idle:
                others.append(node.name)
    if by_pods:
        others.sort(key=lambda name: len(list(fleet.ledger.grants(name))))
    return others[: wish.nodes - idle]


def row(what: str, steps: Sequence[PlanStep], freed: int, seconds: float, least: int | None = None) -> str:
    """Evictions and cost, for each GPU that was held before as well."""
    waits = sum(step.price == WAITING_POD_PRICE for step in steps)
    cost = sum(step.price for step in steps)
    bound = "" if least is None else f"   at least {least}"
    each = f"{len(steps) / freed:6.2f} {cost / freed:6.2f}"
    return f"  {what:22} {len(steps):5} {waits:5} {cost:6} {freed:5} {each} {seconds:7.1f} s{bound}"


def main() -> None:
    """Fill, and print a block for each wish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--load", type=float, default=95.0, help="percent of all GPUs that pods ask for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", default=NodePolicy.PURSER.value, help="of the scheduler")
    options = parser.parse_args()
    lists = (options.traces / f"openb_{name}.csv" for name in ("node_list_gpu_node", "pod_list_default"))
    workload = read_lists(*lists)
    policy = PolicySettings(node=options.policy, gpu=(GpuPolicy(options.policy),))
    begun = time.perf_counter()
    fleet = fleet_of(workload)
    order = draw_order(workload, options.seed, options.load)
    occupancy = Occupancy(fleet, fill(fleet, workload, order.pods.tolist(), policy))
    taken = sum(state.usage.memory_mib for node in fleet for state in node.devices)
    print(
        f"{len(fleet.names())} nodes, {workload.gpus} GPUs, {len(occupancy.pods)} of {len(order.pods)} pods;"
        f" {100 * taken / workload.capacity_milli:.1f}% of the GPUs is taken; policy {options.policy};"
        f" {time.perf_counter() - begun:.0f} s"
    )
    print("                      steps waits   cost freed  steps   cost, for each freed GPU")
    for gpus, more in WISHES:
        idle = sum(len(node.devices) - len(held_on(fleet, node.name)) >= gpus for node in fleet)
        wish = RoomRequest(gpus, idle + more)
        print(f"{gpus} GPUs on {more} more nodes; {idle} have them")
        begun = time.perf_counter()
        made = plan(occupancy, wish, policy)
        seconds = time.perf_counter() - begun
        if made is None:
            print("  no plan was found")
            continue
        held = {name: held_on(fleet, name) for name in fleet.names()}
        freed = sum(uuid in held[room.node] for room in made.rooms for uuid in room.uuids)
        begun = time.perf_counter()
        least = least_cost(occupancy, wish, made.cost)
        bound_s = time.perf_counter() - begun
        print(row("plan", made.steps, freed, seconds, least) + f" ({bound_s:.1f} s), is_cheapest {made.is_cheapest}")
        for what, by_pods in (("drain of fewest pods", True), ("drain of the first", False)):
            begun = time.perf_counter()
            nodes = drained(occupancy, wish, by_pods)
            steps = drain(occupancy, nodes, policy)
            cards = sum(len(held[name]) for name in nodes)
            print(row(what, steps, cards, time.perf_counter() - begun))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
