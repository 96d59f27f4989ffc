"""One pod on one node: the devices of each of its containers, or why not.

Containers are placed one after another in kubelet's order, each on top of what the ones beside it already take. A row
of init containers is placed together with the container that follows it (see `choice`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Protocol

import msgspec

from purser.core.fleet import DeviceState, NodeState
from purser.core.interconnect import Topology, topology
from purser.core.ledger import UNUSED, Usage
from purser.core.model import ContainerKind, ContainerRequest, DeviceRequest, DeviceShare, GpuPolicy, PodRequest
from purser.core.outlook import emptied
from purser.core.placement.choice import Level, Pick, choose, first_come
from purser.core.placement.feasibility import Offer, refuses
from purser.core.placement.foresight import Granted
from purser.core.placement.kubelet import Settled, settle
from purser.core.placement.nearness import nearer
from purser.core.placement.order import Candidate, numa_nodes, order_key
from purser.core.placement.policy import DEFAULT_POLICY, Policy
from purser.core.placement.reasons import Reason, Refusal, dispute_detail
from purser.core.placement.scores import device_score, memory_needed_mib
from purser.core.placement.topology import pick
from purser.core.quota import UNLIMITED, Demand, Room, room

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

    def order(self, devices: DeviceRequest, states: Sequence[DeviceState], suits: Sequence[bool]) -> Positions:
        """The positions of the devices that suit a container, most preferred first."""
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
            tuple(_share(node.devices[place], container.devices) for place in positions),
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
        self._devices = tuple(state.device for state in devices)
        self._used = [state.usage for state in devices]
        self._weights = request.weights
        self._words = words
        self._left = left
        self._preference = preference
        self.choice: list[Positions] = []

    def add(self, row: tuple[ContainerRequest, ...]) -> Refusal | None:
        """Place a row of containers, or say why it cannot be."""
        offers = [self._offers(container.devices) for container in row]
        reasons = _nested_reasons(offers)
        for container, row_offers, found in zip(row, offers, reasons, strict=True):
            if found.count(None) < container.devices.count:
                return _refusal(container, row_offers, found, Reason.TOO_FEW_CARDS)
        levels = [
            Level(c.devices.count, self._order(c.devices, found), c.devices.numa_bind, self._required(c.devices))
            for c, found in zip(row, reasons, strict=True)
        ]
        chosen = choose(levels, self._devices, self._pick())
        if chosen is None:
            bound = any(container.devices.numa_bind for container in row)
            return _refusal(row[-1], offers[-1], reasons[-1], Reason.NUMA_NOT_FIT if bound else Reason.TOO_FEW_CARDS)
        return self._hold(row, offers, chosen)

    def _hold(
        self, row: tuple[ContainerRequest, ...], offers: list[list[Offer]], chosen: list[Positions]
    ) -> Refusal | None:
        for container, row_offers, positions in zip(row, offers, chosen, strict=True):
            demand = _demand(row_offers[place] for place in positions)
            if not self._left.holds(demand):
                quota = [Reason.QUOTA_NOT_FIT if place in positions else None for place in range(len(row_offers))]
                return _refusal(container, row_offers, quota, None)
            self.choice.append(positions)
            if container.kind is not ContainerKind.INIT:
                self._run(row_offers, positions, demand)
        return None

    def _run(self, offers: list[Offer], positions: Positions, demand: Demand) -> None:
        """The container runs beside all that follow."""
        for place in positions:
            offer = offers[place]
            alone = int(offer.request.is_whole)
            self._used[place] += Usage(1, offer.memory_mib, offer.cores_percent, exclusive=alone)
        self._left = room(self._left, demand)

    def _offers(self, request: DeviceRequest) -> list[Offer]:
        idle_only = GpuPolicy.MUTEX in self._words
        return [
            Offer(
                state.device,
                state.cordoned,
                state.disputed,
                used,
                request,
                memory_needed_mib(request, state.device),
                idle_only,
                self._left,
            )
            for state, used in zip(self._states, self._used, strict=True)
        ]

    def _order(self, request: DeviceRequest, reasons: Sequence[Reason | None]) -> Positions:
        if self._preference is not None:
            states = [msgspec.structs.replace(s, usage=used) for s, used in zip(self._states, self._used, strict=True)]
            return self._preference.order(request, states, [reason is None for reason in reasons])
        key = order_key(self._words, request.numa_bind)
        candidates = [self._candidate(place, request) for place, reason in enumerate(reasons) if reason is None]
        return tuple(candidate.position for candidate in sorted(candidates, key=key))

    def _required(self, request: DeviceRequest) -> Positions:
        return tuple(place for place, device in enumerate(self._devices) if device.uuid in request.uuids_required)

    def _candidate(self, place: int, request: DeviceRequest) -> Candidate:
        device, used = self._devices[place], self._used[place]
        return Candidate(
            place, device_score(device, used, (request,), self._weights), numa_nodes(device)[0], used.slots
        )

    def _pick(self) -> Pick:
        if GpuPolicy.TOPOLOGY_AWARE not in self._words:
            return first_come
        spread = GpuPolicy.SPREAD in self._words
        opened = [] if spread else [place for place, used in enumerate(self._used) if used.slots]
        return partial(pick, topology=self._topology, opened=opened)

    @cached_property
    def _topology(self) -> Topology:
        return topology(self._devices)


def _nested_reasons(offers: Sequence[Sequence[Offer]]) -> list[list[Reason | None]]:
    """For each container of a row and each device: why it, or one after it in the row, cannot have the device."""
    nested: list[list[Reason | None]] = []
    for row_offers in reversed(offers):
        own = [refuses(offer) for offer in row_offers]
        later = nested[-1] if nested else [None] * len(own)
        nested.append([mine or after for mine, after in zip(own, later, strict=True)])
    return nested[::-1]


def _refusal(
    container: ContainerRequest, offers: Sequence[Offer], reasons: Sequence[Reason | None], for_rest: Reason | None
) -> Refusal:
    """``for_rest`` is held against the devices that suit, because they are too few or on too many NUMA nodes."""
    counted = Counter(found for found in reasons if found is not None)
    suiting = reasons.count(None)
    if for_rest is not None and suiting:
        counted[for_rest] += suiting
    short = [offer for offer, found in zip(offers, reasons, strict=True) if found is Reason.INSUFFICIENT_MEMORY]
    busy = [offer for offer, found in zip(offers, reasons, strict=True) if found is Reason.INSUFFICIENT_CORES]
    disputed = (offer for offer, found in zip(offers, reasons, strict=True) if found is Reason.DISPUTED)
    return Refusal(
        counts=tuple(sorted(counted.items())),
        devices=len(offers),
        container=container.name,
        memory_needed_mib=max((offer.memory_mib for offer in short), default=0),
        memory_free_mib=max((offer.memory_free_mib for offer in short), default=0),
        cores_needed_percent=max((offer.cores_percent for offer in busy), default=0),
        cores_free_percent=max((offer.cores_free_percent for offer in busy), default=0),
        count_needed=container.devices.count,
        detail=next((dispute_detail(offer.device.uuid, offer.disputed) for offer in disputed), ""),
    )


def _demand(offers: Iterable[Offer]) -> Demand:
    total = Demand()
    for offer in offers:
        total += Demand(offer.memory_mib, offer.cores_percent)
    return total


def _share(state: DeviceState, request: DeviceRequest) -> DeviceShare:
    return DeviceShare(state.device.uuid, memory_needed_mib(request, state.device), min(request.cores_percent, 100))
