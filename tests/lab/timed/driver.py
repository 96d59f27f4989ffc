"""A sample's events, one after the other: done by the schedulers, and by the simulator."""

import heapq

from purser.adapters.pods import pod_spec
from purser.core.dialects import parse
from purser.core.grant.signing import read
from purser.core.model import GpuPolicy
from purser.core.placement.shape import shape_of
from purser.kube.client import Client
from purser.kube.objects import Pod
from purser.simulator import departures
from purser.simulator.workload import Order, SimWorkload
from tests.lab.timed.objects import add_node, add_pod, device_uuid, end_pod
from tests.lab.timed.world import World, cluster

Placement = tuple[str, str, tuple[int, ...]]
"""(pod, node, places of its GPUs there)."""


def simulated(workload: SimWorkload, order: Order, policy: str) -> list[Placement]:
    """Who was placed where, in the order in which they were placed, by the simulator."""
    found: list[Placement] = []

    def note(event: int, node: str, gpus: tuple[int, ...]) -> None:
        found.append((_name(event), node, tuple(sorted(gpus))))

    departures.run(workload, order, policy, learns=True, placed=note)
    return found


async def scheduled(workload: SimWorkload, order: Order, policy: str) -> list[Placement]:
    """The same by kube-scheduler and Purser."""

    async def prepare(client: Client) -> None:
        for node in workload.nodes:
            await add_node(client, node)

    async with cluster(policy, (GpuPolicy(policy),), prepare) as world:
        await _Run(workload, order, world).run()
        return [_placement(pod, workload) for pod in world.bound]


def end_of(workload: SimWorkload, order: Order) -> float:
    """The last time of the list."""
    return max(float(at) + (pod.lasts_s or 0.0) for at, pod in zip(order.arrives_s, workload.pods, strict=True))


class _Run:
    def __init__(self, workload: SimWorkload, order: Order, world: World) -> None:
        self._workload = workload
        self._order = order
        self._world = world
        self._created = 0
        self._known = 0
        """Of those that are bound: how many have an end."""
        self._leaving: list[tuple[float, int, str]] = []
        """(when, event, uid)."""

    async def run(self) -> None:
        for event, now in enumerate(self._order.arrives_s.tolist()):
            await self._leave_until(now)
            await self._create(event)
            await self._settle(now)
        await self._leave_until(end_of(self._workload, self._order))

    async def _create(self, event: int) -> None:
        shape = self._workload.pods[event].shape
        pod = await add_pod(self._world.client, _name(event), shape)
        request = parse(pod_spec(pod))
        assert request is not None and shape_of(request) == shape, f"{_name(event)} asks for something else"
        self._created += 1

    async def _leave_until(self, time_s: float) -> None:
        while self._leaving and self._leaving[0][0] <= time_s:
            now, ended = self._leaving[0][0], []
            while self._leaving and self._leaving[0][0] == now:
                _, event, uid = heapq.heappop(self._leaving)
                await end_pod(self._world.client, _name(event))
                ended.append(uid)
            await self._world.heard_of_the_end(ended)
            self._world.pass_time()
            await self._settle(now)

    async def _settle(self, now: float) -> None:
        """Until nobody is left who was not tried; who was placed leaves in time."""
        await self._world.tried(lambda: self._created - len(self._world.bound))
        for pod in self._world.bound[self._known :]:
            event = _event(pod.metadata.name)
            lasts_s = self._workload.pods[event].lasts_s or 0.0
            heapq.heappush(self._leaving, (now + lasts_s, event, pod.metadata.uid))
        self._known = len(self._world.bound)


def _placement(pod: Pod, workload: SimWorkload) -> Placement:
    grant = read(pod.metadata.annotations)
    assert grant is not None, f"{pod.metadata.name} was bound without a grant"
    node = next(node for node in workload.nodes if node.name == grant.node)
    place_of = {device_uuid(node.name, place): place for place in range(len(node.gpus))}
    held = sorted(place_of[share.uuid] for part in grant.containers for share in part.shares)
    return pod.metadata.name, pod.spec.node_name, tuple(held)


def _name(event: int) -> str:
    return f"p{event:04d}"


def _event(name: str) -> int:
    return int(name[1:])
