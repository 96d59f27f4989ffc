"""One pod on one node: the devices of each of its containers, or why not.

The node is a fleet of one: whether its devices take a container is asked of the same arrays as for many nodes (`view`).
Containers are placed one after another in kubelet's order, each on top of what the ones beside it already take. A row
of init containers is placed together with the container that follows it (see `choice`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Protocol

import msgspec
import numpy as np

from purser.core.fleet import DeviceState, NodeState
from purser.core.fleet.arrays import FleetArrays
from purser.core.fleet.facts import DISPUTED, FleetNodeFacts, gpu_facts
from purser.core.grant.quota import UNLIMITED, Demand, Room, room
from purser.core.interconnect import Topology, topology
from purser.core.ledger import UNUSED, Usage
from purser.core.model import ContainerKind, ContainerRequest, Device, DeviceRequest, DeviceShare, GpuPolicy, PodRequest
from purser.core.outlook import emptied
from purser.core.placement.choice import ContainerStep, Pick, choose, first_come
from purser.core.placement.foresight import Granted
from purser.core.placement.kernels import rule
from purser.core.placement.kubelet import Settled, settle
from purser.core.placement.nearness import nearer
from purser.core.placement.order import Candidate, numa_nodes, order_key
from purser.core.placement.policy import DEFAULT_POLICY, Policy
from purser.core.placement.reasons import Reason, Refusal, dispute_detail
from purser.core.placement.scores import device_score, memory_needed_mib
from purser.core.placement.shape import View, container_shape, view
from purser.core.placement.topology import pick

Positions = tuple[int, ...]


class DeviceAssignment(msgspec.Struct, frozen=True, gc=False):
    """A pod fits: by positions of devices, so that it holds for every node in an equal state."""

    choice: tuple[Positions, ...]
    """For each container of the request the positions of its devices, in the order in which it sees them."""


class ContainerPlacement(msgspec.Struct, frozen=True):
    """What one container would hold."""

    container: str
    kind: ContainerKind
    shares: tuple[DeviceShare, ...]


class Placement(msgspec.Struct, frozen=True):
    """What a pod would hold on a node."""

    node: str
    containers: tuple[ContainerPlacement, ...]


class Preference(Protocol):
    """Which devices are best, where that is not for the words of the chain alone to say."""

    def order(self, found: View, suits: Sequence[bool]) -> Positions:
        """The positions of the devices that suit a container, most preferred first. ``found``: what the container finds
        on the node alone, with what the pod's other containers take beside it."""
        ...


def place(
    node: NodeState,
    request: PodRequest,
    policy: Policy = DEFAULT_POLICY,
    left: Room = UNLIMITED,
    preference: Preference | None = None,
) -> Placement | Refusal:
    """Where a pod would go on a node. ``left`` is what its namespace's quota leaves."""
    verdict = decide(node, request, policy, left, preference)
    return verdict if isinstance(verdict, Refusal) else placement_of(node, request, verdict)


def placement_of(node: NodeState, request: PodRequest, fit: DeviceAssignment) -> Placement:
    """A verdict made concrete for one of the nodes it holds for."""
    containers = tuple(
        ContainerPlacement(
            container.name,
            container.kind,
            tuple(_share(node.devices[place].device, container.devices) for place in positions),
        )
        for container, positions in zip(request.containers, fit.choice, strict=True)
    )
    return Placement(node.name, containers)


def decide(
    node: NodeState, request: PodRequest, policy: Policy, left: Room = UNLIMITED, preference: Preference | None = None
) -> DeviceAssignment | Refusal:
    """The verdict on a node's state; a refusal also tells whether an empty node would have taken the pod."""
    verdict = _decide(node, request, policy, left, preference)
    if isinstance(verdict, Refusal) and _is_used(node):
        resolvable = isinstance(_decide(node.unused, request, policy, left, None), DeviceAssignment)
        return msgspec.structs.replace(verdict, resolvable=resolvable)
    return verdict


def _is_used(node: NodeState) -> bool:
    """Whether anything is taken of the node, or about to be."""
    by_kubelet = node.outlook is not None and node.outlook != emptied(node.outlook)
    return by_kubelet or any(state.usage != UNUSED for state in node.devices)


def _decide(
    node: NodeState, request: PodRequest, policy: Policy, left: Room, preference: Preference | None
) -> DeviceAssignment | Refusal:
    def choose(narrowed: PodRequest) -> DeviceAssignment | Refusal:
        return _choose(node, narrowed, policy, left, preference)

    if node.outlook is None:
        return choose(request)

    def granted(fit: DeviceAssignment) -> Granted:
        return {part.container: _uuids(part) for part in placement_of(node, request, fit).containers}

    settled = settle(node.outlook, request, choose, granted)
    if isinstance(settled, Refusal):
        return settled
    closer = nearer(node, request, granted(settled.choice), settled.after)
    nearest = None if closer is None else settle(node.outlook, closer, choose, granted)
    return nearest.choice if isinstance(nearest, Settled) else settled.choice


def _uuids(part: ContainerPlacement) -> tuple[str, ...]:
    return tuple(share.uuid for share in part.shares)


def _choose(
    node: NodeState, request: PodRequest, policy: Policy, left: Room, preference: Preference | None
) -> DeviceAssignment | Refusal:
    if not node.devices:
        return Refusal(((Reason.NO_DEVICES, 1),), container=request.containers[0].name if request.containers else "")
    pod = _Pod(node.devices, request, policy.gpu_policy(request), left, preference)
    for row in _rows(request.containers):
        refusal = pod.add(row)
        if refusal is not None:
            return refusal
    return DeviceAssignment(tuple(pod.choice))


def _rows(containers: Sequence[ContainerRequest]) -> Iterator[tuple[ContainerRequest, ...]]:
    """Each run of init containers with the app or sidecar after it."""
    row: tuple[ContainerRequest, ...] = ()
    for container in containers:
        row = (*row, container)
        if container.kind is not ContainerKind.INIT:
            yield row
            row = ()
    if row:
        yield row


class _Found(msgspec.Struct, frozen=True):
    """One container of a pod on its node, beside the containers that run when it does."""

    container: ContainerRequest
    view: View
    """Of the node alone."""
    shares: list[DeviceShare]
    """What it would hold of each device."""
    obstacles: list[int]
    """By device, for it and for the containers after it that are handed its devices; see `kernels.rule`."""

    @property
    def suits(self) -> list[bool]:
        """By device, whether nothing stands in the way."""
        return [not obstacle for obstacle in self.obstacles]


class _Pod:
    """A pod half placed: what its containers hold so far."""

    def __init__(
        self,
        devices: tuple[DeviceState, ...],
        request: PodRequest,
        words: tuple[GpuPolicy, ...],
        left: Room,
        preference: Preference | None,
    ) -> None:
        self._states = devices
        """Used by other pods over their whole lives, and by the containers of this pod that run beside the next one."""
        self._devices = tuple(state.device for state in devices)
        self._request = request
        self._words = words
        self._left = left
        self._preference = preference
        self.choice: list[Positions] = []

    def add(self, row: tuple[ContainerRequest, ...]) -> Refusal | None:
        """Place a row of containers, or say why it cannot be."""
        node = FleetArrays()
        node.put_node(FleetNodeFacts("", tuple(map(gpu_facts, self._states))))
        nested: list[_Found] = []
        for container in reversed(row):
            nested.insert(0, self._find(node, container, nested[0].obstacles if nested else None))
        for found in nested:
            if found.obstacles.count(0) < found.container.devices.count:
                return self._refusal(found, found.obstacles, Reason.TOO_FEW_CARDS)
        steps = [self._step(found) for found in nested]
        chosen = choose(steps, self._devices, self._pick())
        if chosen is None:
            bound = any(container.devices.numa_bind for container in row)
            reason = Reason.NUMA_NOT_FIT if bound else Reason.TOO_FEW_CARDS
            return self._refusal(nested[-1], nested[-1].obstacles, reason)
        return self._hold(nested, chosen)

    def _find(self, node: FleetArrays, container: ContainerRequest, later: list[int] | None) -> _Found:
        """``later``: what stands in the way of the container that comes next and is handed this one's devices."""
        asked = container.devices
        shares = [_share(device, asked) for device in self._devices]
        also = [[_also(share, asked, self._left)] for share in shares]
        shape, idle_only = container_shape(asked, self._request), GpuPolicy.MUTEX in self._words
        padding = [[0]] * (len(node.closed) - len(also))
        view_ = view(node, shape, _ONE_ROW, np.array(also + padding, np.int16), idle_only=idle_only)
        obstacles = view_.obstacles[: len(also), 0].tolist()
        if later is not None:
            obstacles = [own or after for own, after in zip(obstacles, later, strict=True)]
        return _Found(container, view_, shares, obstacles)

    def _hold(self, nested: list[_Found], chosen: list[Positions]) -> Refusal | None:
        for found, positions in zip(nested, chosen, strict=True):
            demand = _demand(found.shares[place] for place in positions)
            if not self._left.holds(demand):
                places = range(len(self._devices))
                return self._refusal(found, [int(rule.OVER_QUOTA) * (place in positions) for place in places], None)
            self.choice.append(positions)
            if found.container.kind is not ContainerKind.INIT:
                self._run(found, positions, demand)
        return None

    def _run(self, found: _Found, positions: Positions, demand: Demand) -> None:
        """The container runs beside all that follow."""
        states = list(self._states)
        for place in positions:
            share, state = found.shares[place], states[place]
            taken = Usage(1, share.memory_mib, share.cores_percent, exclusive=int(share.is_whole))
            states[place] = msgspec.structs.replace(state, usage=state.usage + taken)
        self._states = tuple(states)
        self._left = room(self._left, demand)

    def _step(self, found: _Found) -> ContainerStep:
        asked = found.container.devices
        required = tuple(place for place, device in enumerate(self._devices) if device.uuid in asked.uuids_required)
        return ContainerStep(asked.count, self._order(found), asked.numa_bind, required)

    def _order(self, found: _Found) -> Positions:
        if self._preference is not None:
            return self._preference.order(found.view, found.suits)
        asked = found.container.devices
        key = order_key(self._words, asked.numa_bind)
        candidates = [self._candidate(place, asked) for place, suits in enumerate(found.suits) if suits]
        return tuple(candidate.position for candidate in sorted(candidates, key=key))

    def _candidate(self, place: int, asked: DeviceRequest) -> Candidate:
        device, used = self._devices[place], self._states[place].usage
        score = device_score(device, used, (asked,), self._request.weights)
        return Candidate(place, score, numa_nodes(device)[0], used.slots)

    def _pick(self) -> Pick:
        if GpuPolicy.TOPOLOGY_AWARE not in self._words:
            return first_come
        spread = GpuPolicy.SPREAD in self._words
        opened = [] if spread else [place for place, state in enumerate(self._states) if state.usage.slots]
        return partial(pick, topology=self._topology, opened=opened)

    @cached_property
    def _topology(self) -> Topology:
        return topology(self._devices)

    def _refusal(self, found: _Found, obstacles: Sequence[int], for_rest: Reason | None) -> Refusal:
        """``for_rest`` is held against the devices that suit, because they are too few or on too many NUMA nodes."""
        firsts = [rule.first(obstacle) for obstacle in obstacles]
        counted = Counter(rule.REASONS[first] for first in firsts if first)
        if for_rest is not None and (suiting := firsts.count(0)):
            counted[for_rest] += suiting
        devices = list(zip(firsts, self._states, found.shares, strict=True))
        short = [(state, share) for first, state, share in devices if first == rule.SHORT_OF_MEMORY]
        slow = [(state, share) for first, state, share in devices if first == rule.SHORT_OF_CORES]
        disputed = (state for first, state, _ in devices if first == DISPUTED)
        return Refusal(
            counts=tuple(sorted(counted.items())),
            devices=len(devices),
            container=found.container.name,
            memory_needed_mib=max((share.memory_mib for _, share in short), default=0),
            memory_free_mib=max((s.device.memory_mib - s.usage.memory_mib for s, _ in short), default=0),
            cores_needed_percent=max((share.cores_percent for _, share in slow), default=0),
            cores_free_percent=max((s.device.cores_percent - s.usage.cores_percent for s, _ in slow), default=0),
            count_needed=found.container.devices.count,
            detail=next((dispute_detail(state.device.uuid, state.disputed) for state in disputed), ""),
        )


_ONE_ROW = np.zeros(1, np.intp)


def _also(share: DeviceShare, asked: DeviceRequest, left: Room) -> int:
    """What stands in the way beside amounts: the uuids that the container names, and its namespace's quota."""
    is_other = share.uuid in asked.uuids_denied or bool(asked.uuids_allowed and share.uuid not in asked.uuids_allowed)
    is_over = left != UNLIMITED and not left.holds(Demand(share.memory_mib, share.cores_percent))
    return is_other * int(rule.OTHER_UUID) | is_over * int(rule.OVER_QUOTA)


def _demand(shares: Iterable[DeviceShare]) -> Demand:
    total = Demand()
    for share in shares:
        total += Demand(share.memory_mib, share.cores_percent)
    return total


def _share(device: Device, request: DeviceRequest) -> DeviceShare:
    return DeviceShare(device.uuid, memory_needed_mib(request, device), min(request.cores_percent, 100))
