"""One pod on one node: the devices of each of its containers, or why not.

Whether a device takes a container is the rule of `purser.core.fleet.rule`, asked of one device after the other here.
Containers are placed one after another in kubelet's order, each on top of what the ones beside it already take. A row
of init containers is placed together with the container that follows it (see `choice`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Protocol

import msgspec

from purser.core.fleet import DeviceState, NodeState, rule
from purser.core.fleet.arrays import Model
from purser.core.fleet.facts import DISPUTED
from purser.core.fleet.kubelet_snapshot import emptied
from purser.core.grant.enforcement import enforcement_of
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, remaining
from purser.core.interconnect import Topology, topology
from purser.core.ledger import UNUSED, share_usage
from purser.core.mig.on_demand import instance_share, kind_of
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    Enforcement,
    GpuPolicy,
    Grant,
    MigPlacement,
    NodeInventory,
    PodRequest,
    SpecHold,
)
from purser.core.placement.choice import ContainerStep, Pick, choose, connected, first_come
from purser.core.placement.instances import InstancePlaces, Wants, wants_of
from purser.core.placement.kubelet import AdmittedChoice, find_admitted, near_cpus
from purser.core.placement.kubelet_prediction import Granted
from purser.core.placement.order import Candidate, device_score, numa_nodes, order_key
from purser.core.placement.reasons import (
    OF_OBSTACLE,
    OTHER_INSTANCES,
    MostFree,
    Reason,
    Refusal,
    dispute_detail,
    obstructed,
)
from purser.core.placement.shape import PodShape, container_shape, share_of
from purser.core.policy.settings import DEFAULT_POLICIES, PolicySettings

Positions = tuple[int, ...]


class DeviceAssignment(msgspec.Struct, frozen=True, gc=False):
    """A pod fits: by positions of devices, so that it holds for every node in an equal state. The position of a device
    that is divided is there once for each part."""

    choice: tuple[Positions, ...]
    """For each container of the request the positions of its devices, in the order in which it sees them."""
    instances: tuple[tuple[MigPlacement | None, ...], ...]
    """For each of these what it gets of a GPU that is cut on demand; None of others."""


class Placement(msgspec.Struct, frozen=True):
    """What a pod would hold on a node."""

    node: str
    containers: tuple[ContainerGrant, ...]
    """How they are enforced is not decided yet, see `to_grant`."""


class Preference(Protocol):
    """Which devices are best, where that is not for the words of the chain alone to say."""

    def order(self, asked: DeviceRequest, states: Sequence[DeviceState], suits: Sequence[bool]) -> Positions:
        """The positions of the devices that suit a container, most preferred first."""
        ...


def place(
    node: NodeState,
    request: PodRequest,
    policy: PolicySettings = DEFAULT_POLICIES,
    left: QuotaLimits = UNLIMITED,
    preference: Preference | None = None,
) -> Placement | Refusal:
    """Where a pod would go on a node. ``left`` is what its namespace's quota leaves."""
    verdict = decide(node, request, policy, left, preference)
    return verdict if isinstance(verdict, Refusal) else placement_of(node, request, verdict)


def placement_of(node: NodeState, request: PodRequest, fit: DeviceAssignment) -> Placement:
    """A verdict made concrete for one of the nodes it holds for."""
    containers = tuple(
        ContainerGrant(
            container.name,
            container.kind,
            tuple(
                _share(node.devices[place].device, container.devices, instance)
                for place, instance in zip(positions, instances, strict=True)
            ),
        )
        for container, positions, instances in zip(request.containers, fit.choice, fit.instances, strict=True)
    )
    return Placement(node.name, containers)


def _share(device: Device, asked: DeviceRequest, instance: MigPlacement | None) -> DeviceShare:
    kind = None if instance is None else kind_of(device)
    profile = None if instance is None or kind is None else kind.profile(instance.profile)
    if profile is None:
        return share_of(device, asked)
    return msgspec.structs.replace(instance_share(device, profile), mig=instance)


def to_grant(placement: Placement, request: PodRequest, inventory: NodeInventory) -> Grant:
    """The grant of a placed pod; it says what will hold each container, not what one would wish for."""
    holds = {container.name: container.hold for container in request.containers}
    of_devices = {device.uuid: device.enforcement for device in inventory.devices}
    parts = tuple(_part(container, holds[container.container], of_devices) for container in placement.containers)
    required = any(container.devices.held_by for container in request.containers)
    return Grant(request.uid, request.namespace, request.name, placement.node, parts, required)


def _part(part: ContainerGrant, hold: SpecHold, of_devices: Mapping[str, Enforcement]) -> ContainerGrant:
    words = [of_devices[uuid] for uuid in part.uuids]
    return msgspec.structs.replace(part, enforcement=enforcement_of(part, hold, words))


def decide(
    node: NodeState,
    request: PodRequest,
    policy: PolicySettings,
    left: QuotaLimits = UNLIMITED,
    preference: Preference | None = None,
) -> DeviceAssignment | Refusal:
    """The verdict on a node's state; a refusal also says whether the pod would fit the node if it were empty."""
    verdict = _decide(node, request, policy, left, preference)
    if isinstance(verdict, Refusal) and _is_used(node):
        resolvable = isinstance(_decide(node.unused, request, policy, left, None), DeviceAssignment)
        return msgspec.structs.replace(verdict, resolvable=resolvable)
    return verdict


def _is_used(node: NodeState) -> bool:
    """Whether anything is taken of the node, or about to be."""
    by_kubelet = node.kubelet is not None and node.kubelet != emptied(node.kubelet)
    return by_kubelet or any(state.usage != UNUSED for state in node.devices)


def _decide(
    node: NodeState, request: PodRequest, policy: PolicySettings, left: QuotaLimits, preference: Preference | None
) -> DeviceAssignment | Refusal:
    def choose(narrowed: PodRequest) -> DeviceAssignment | Refusal:
        return _choose(node, narrowed, policy, left, preference)

    if node.kubelet is None:
        return choose(request)

    def granted(fit: DeviceAssignment) -> Granted:
        return {part.container: part.uuids for part in placement_of(node, request, fit).containers}

    settled = find_admitted(node.kubelet, request, choose, granted)
    if isinstance(settled, Refusal):
        return settled
    closer = near_cpus(node, request, granted(settled.choice), settled.after)
    nearest = None if closer is None else find_admitted(node.kubelet, closer, choose, granted)
    return nearest.choice if isinstance(nearest, AdmittedChoice) else settled.choice


def _choose(
    node: NodeState, request: PodRequest, policy: PolicySettings, left: QuotaLimits, preference: Preference | None
) -> DeviceAssignment | Refusal:
    if not node.devices:
        return Refusal(((Reason.NO_DEVICES, 1),), container=request.containers[0].name if request.containers else "")
    pod = _Pod(node.devices, request, policy.gpu_policy(request), left, preference)
    for row in _rows(request.containers):
        refusal = pod.add(row)
        if refusal is not None:
            return refusal
    return DeviceAssignment(tuple(pod.choice), tuple(pod.instances))


def _rows(containers: Sequence[ContainerRequest]) -> Iterator[tuple[ContainerRequest, ...]]:
    """Each run of init containers with the app or sidecar after it that asks for the same resource."""
    row: tuple[ContainerRequest, ...] = ()
    for container in containers:
        if row and row[0].devices.resource != container.devices.resource:
            yield row
            row = ()
        row = (*row, container)
        if container.kind is not ContainerKind.INIT:
            yield row
            row = ()
    if row:
        yield row


class _Found(msgspec.Struct, frozen=True):
    """One container of a pod on its node, beside the containers that run when it does."""

    container: ContainerRequest
    wants: Wants
    """What its instances on GPUs that are cut on demand must be large enough for."""
    shares: list[DeviceShare]
    """What it would hold of each candidate."""
    obstacles: list[int]
    """By candidate, for it and for containers after it that are handed its devices; see `purser.core.fleet.rule`."""

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
        left: QuotaLimits,
        preference: Preference | None,
    ) -> None:
        self._at = _candidates(devices, request)
        """By candidate, the position of its device: of one that is divided each free part is a candidate, of one that
        is cut on demand each instance that the pod could have."""
        self._has_cut = any(state.device.mig_kind for state in devices)
        self._has_parts = any(state.device.replicas > 1 for state in devices)
        self._cut = InstancePlaces(devices if self._has_cut else ())
        self._whole = [devices[place] for place in self._at]
        """By candidate, its device."""
        parts = [state if state.device.replicas == 1 else state.as_part(state.parts > 0) for state in devices]
        self._states = tuple(parts[place] for place in self._at)
        """The candidates: used by other pods over their whole lives, and by the containers of this pod that run beside
        the next one. Equal parts are one object, and are looked at once."""
        self._taken: dict[int, DeviceState] = {}
        """By position of a device that is divided, a part of it that this pod has taken."""
        self._devices = tuple(state.device for state in self._states)
        self._request = request
        self._words = words
        self._idle_only = GpuPolicy.MUTEX in words
        self._left = left
        self._preference = preference
        self.choice: list[Positions] = []
        self.instances: list[tuple[MigPlacement | None, ...]] = []

    def add(self, row: tuple[ContainerRequest, ...]) -> Refusal | None:
        """Place a row of containers, or say why it cannot be."""
        nested: list[_Found] = []
        asked = [container.devices for container in row]
        for at, container in reversed(tuple(enumerate(row))):
            wants = wants_of(asked, at)
            nested.insert(0, self._find(container, wants, nested[0].obstacles if nested else None))
        for found in nested:
            if found.obstacles.count(0) < found.container.devices.count:
                return self._refusal(found, found.obstacles, Reason.TOO_FEW_GPUS)
        steps = [self._step(found) for found in nested]
        chosen = choose(steps, self._devices, self._pick())
        if chosen is None:
            bound = any(container.devices.numa_bind for container in row)
            reason = Reason.NUMA_NOT_FIT if bound else Reason.TOO_FEW_GPUS
            return self._refusal(nested[-1], nested[-1].obstacles, reason)
        return self._hold(nested, chosen)

    def _find(self, container: ContainerRequest, wants: Wants, later: list[int] | None) -> _Found:
        """``later``: what stands in the way of the container that comes next and is handed this one's devices."""
        shape = container_shape(container.devices, self._request)
        of_model = self._of_model(shape)
        judged: dict[tuple[int, int], tuple[DeviceShare, int]] = {}
        found = []
        for place, state in enumerate(self._states):
            key = id(state), self._before(place) if self._has_cut else 0
            if (known := judged.get(key)) is None:
                share = self._share_of(place, container.devices, wants)
                known = judged[key] = share, self._obstacles(place, share, container.devices, wants, of_model[place])
            found.append(known)
        shares, own = [share for share, _ in found], [obstacles for _, obstacles in found]
        if later is not None:
            own = [mine or after for mine, after in zip(own, later, strict=True)]
        return _Found(container, wants, shares, own)

    def _share_of(self, place: int, asked: DeviceRequest, wants: Wants) -> DeviceShare:
        """What a container would hold of a candidate."""
        device, at = self._whole[place].device, self._at[place]
        profile = self._cut.profile(at, wants) if self._has_cut and at in self._cut else None
        return share_of(device, asked) if profile is None else instance_share(device, profile)

    def _of_model(self, shape: PodShape) -> list[int]:
        """By candidate, what stands between a container and its model; see `purser.core.fleet.rule`."""
        models = [
            (d.model, d.memory_mib, d.mode, d.resource, whole.device.replicas, d.one_each, d.enforcement, d.mig_kind)
            for d, whole in zip(self._devices, self._whole, strict=True)
        ]
        known = {model: shape.obstacles(Model(*model)) for model in set(models)}
        return [known[model] for model in models]

    def _obstacles(self, place: int, share: DeviceShare, asked: DeviceRequest, wants: Wants, of_model: int) -> int:
        state, whole = self._states[place], self._whole[place].device
        device, used = state.device, state.usage
        is_over = self._left != UNLIMITED and not self._left.holds(Demand(share.memory_mib, share.cores_percent))
        also = asked.excludes(device.uuid) * rule.OTHER_UUID | is_over * rule.OVER_QUOTA
        if device.mig_kind:
            at = self._at[place]
            cut: int = rule.cut_obstacles(
                closed=state.closed,
                also=also,
                of_model=of_model,
                slots=device.slots,
                slots_free=device.slots - used.slots,
                idle=self._idle_only,
                places=min(self._cut.count(at, wants), device.slots - used.slots) - self._before(place),
            )
            return cut
        wanted = share if device is whole else share_of(device, asked)
        found: int = rule.obstacles(
            closed=state.closed,
            also=also,
            of_model=of_model,
            slots=device.slots,
            slots_free=device.slots - used.slots,
            alone=used.exclusive,
            memory_free=device.memory_mib - used.memory_mib,
            memory=wanted.memory_mib,
            cores=device.cores_percent,
            cores_free=device.cores_percent - used.cores_percent,
            cores_asked=wanted.cores_percent,
            whole=wanted.is_whole,
            idle=self._idle_only,
        )
        return found

    def _hold(self, nested: list[_Found], chosen: list[Positions]) -> Refusal | None:
        for found, positions in zip(nested, chosen, strict=True):
            demand = _demand(found.shares[place] for place in positions)
            if not self._left.holds(demand):
                return self._refusal(found, self._at_chosen(positions, rule.OVER_QUOTA), None)
            instances = self._instances(found, positions)
            if instances is None:
                return self._refusal(found, self._at_chosen(positions, rule.NO_PLACE), None)
            self.choice.append(tuple(self._at[place] for place in positions))
            self.instances.append(instances)
            if found.container.kind is not ContainerKind.INIT:
                self._run(found.container.devices, positions, instances, demand)
        return None

    def _at_chosen(self, positions: Positions, obstacle: int) -> list[int]:
        """By candidate, an obstacle to those that are of chosen devices."""
        chosen = {self._at[place] for place in positions}
        return [obstacle * (at in chosen) for at in self._at]

    def _instances(self, placed: _Found, positions: Positions) -> tuple[MigPlacement | None, ...] | None:
        """What a container gets of the GPUs that are cut on demand; None: there is no place beside what the containers
        before it have."""
        if not self._has_cut:
            return (None,) * len(positions)
        cut = [at for place in positions if (at := self._at[place]) in self._cut]
        found = self._cut.take(cut, placed.wants, hands_on=placed.container.kind is ContainerKind.INIT)
        if found is None:
            return None
        left = iter(found)
        return tuple(next(left) if self._at[place] in self._cut else None for place in positions)

    def _run(
        self,
        asked: DeviceRequest,
        positions: Positions,
        instances: tuple[MigPlacement | None, ...],
        demand: Demand,
    ) -> None:
        """The container runs beside all that follow."""
        states = list(self._states)
        for place, instance in zip(positions, instances, strict=True):
            state = states[place]
            taken = share_usage(_share(self._devices[place], asked, instance))
            after = msgspec.structs.replace(state, usage=state.usage + taken)
            states[place] = self._taken.setdefault(self._at[place], after) if self._is_part(place) else after
            if instance is not None:  # all candidates there are one GPU
                states = [after if at == self._at[place] else each for at, each in zip(self._at, states, strict=True)]
        self._states = tuple(states)
        self._left = remaining(self._left, demand)

    def _step(self, found: _Found) -> ContainerStep:
        asked = found.container.devices
        return ContainerStep(asked.count, self._order(found), asked.numa_bind, self._places(asked.uuids_required))

    def _places(self, uuids: Collection[str]) -> Positions:
        """Of these devices the first candidates."""
        if not uuids:
            return ()
        places = {device.uuid: place for place, device in reversed(tuple(enumerate(self._devices)))}
        return tuple(sorted(places[uuid] for uuid in set(uuids) & places.keys()))

    def _order(self, found: _Found) -> Positions:
        if not self._has_cut:
            return self._others(found, found.suits)
        cut = [place for place, suits in enumerate(found.suits) if suits and self._at[place] in self._cut]
        suits = [suits and place not in cut for place, suits in enumerate(found.suits)]
        return (*self._others(found, suits), *self._cut_order(found.wants, cut))

    def _cut_order(self, wants: Wants, cut: Sequence[int]) -> Iterator[int]:
        """The candidates that are instances of GPUs, most preferred first."""
        order = self._cut.order(Counter(self._at[place] for place in cut), wants)
        candidates = {at: iter([place for place in cut if self._at[place] == at]) for at in order}
        return (next(candidates[at]) for at in order)

    def _others(self, found: _Found, suits: Sequence[bool]) -> Positions:
        asked = found.container.devices
        suiting = tuple(place for place, good in enumerate(suits) if good)
        if self._has_parts and any(map(self._is_part, suiting)):
            return tuple(sorted(suiting, key=self._part_key))
        if self._preference is not None and len(suiting) >= max(asked.count, 1):
            return self._preferred(self._preference, asked, suits)
        key = order_key(self._words, asked.numa_bind)
        candidates = [self._candidate(place, found.shares[place]) for place in suiting]
        return tuple(candidate.position for candidate in sorted(candidates, key=key))

    def _preferred(self, preference: Preference, asked: DeviceRequest, suits: Sequence[bool]) -> Positions:
        """A preference knows each device once, whatever stands for it among the candidates."""
        first = [self._first_candidate[at] for at in range(len(self._first_candidate))]
        order = preference.order(asked, [self._states[place] for place in first], [suits[place] for place in first])
        return tuple(first[at] for at in order)

    def _candidate(self, place: int, share: DeviceShare) -> Candidate:
        device, used = self._devices[place], self._states[place].usage
        score = device_score(device, used, (share,), self._request.weights)
        return Candidate(place, score, numa_nodes(device)[0], used.slots)

    def _before(self, place: int) -> int:
        """How many candidates before it are instances of the same GPU."""
        return place - self._first_candidate[self._at[place]] if self._at[place] in self._cut else 0

    def _is_part(self, place: int) -> bool:
        return self._whole[place].device.replicas > 1

    def _part_key(self, place: int) -> tuple[int, int]:
        """As NVIDIA's device plugin prefers them: its file says which, and no word of the pod's."""
        whole = self._whole[place]
        if whole.device.packed:
            return -whole.usage.slots, place
        return whole.usage.slots + place - self._first_candidate[self._at[place]], place

    @cached_property
    def _first_candidate(self) -> dict[int, int]:
        """By position of a device, its first candidate."""
        return {at: place for place, at in reversed(tuple(enumerate(self._at)))}

    def _pick(self) -> Pick:
        if GpuPolicy.TOPOLOGY_AWARE not in self._words or self._has_cut or self._has_parts:
            return first_come
        spread = GpuPolicy.SPREAD in self._words
        opened = [] if spread else [place for place, state in enumerate(self._states) if state.usage.slots]
        return partial(connected, topology=self._topology, opened=opened)

    @cached_property
    def _topology(self) -> Topology:
        return topology(self._devices)

    def _refusal(self, found: _Found, obstacles: Sequence[int], for_rest: Reason | None) -> Refusal:
        by_device: dict[int, tuple[int, DeviceState]] = {}
        for at, obstacle, state in zip(self._at, obstacles, self._states, strict=True):
            if at not in by_device or not obstacle:
                by_device[at] = (rule.first(obstacle), state)
        devices = list(by_device.values())
        counts = Counter(OF_OBSTACLE[first] for first, _ in devices if first)
        short = [state for first, state in devices if first == rule.SHORT_OF_MEMORY]
        slow = [state for first, state in devices if first == rule.SHORT_OF_CORES]
        most = MostFree(
            max((state.device.memory_mib - state.usage.memory_mib for state in short), default=0),
            max((state.device.memory_mib for state in short), default=0),
            max((state.device.cores_percent - state.usage.cores_percent for state in slow), default=0),
        )
        asked = found.container.devices
        disputed = (
            dispute_detail(s.device.uuid, s.disputed)
            for first, s in devices
            if first == DISPUTED and not asked.excludes(s.device.uuid)
        )
        detail = next(disputed, "")
        if Reason.NO_MIG_PLACE not in counts:
            return obstructed(found.container, len(devices), counts, for_rest, most, detail)
        beside = OTHER_INSTANCES if self._cut.has_taken else ""
        return obstructed(self._largest(found), len(devices), counts, for_rest, most, detail or beside)

    def _largest(self, found: _Found) -> ContainerRequest:
        """The container that needs an instance as large as this one gets."""
        asking = (each for each in self._request.containers if each.devices in found.wants)
        for each in asking:
            if any(self._cut.profile(at, (each.devices,)) == self._cut.profile(at, found.wants) for at in self._cut):
                return each
        return found.container


def _demand(shares: Iterable[DeviceShare]) -> Demand:
    total = Demand()
    for share in shares:
        total += Demand(share.memory_mib, share.cores_percent)
    return total


def _candidates(devices: Sequence[DeviceState], request: PodRequest) -> Positions:
    """The position of each device, of one that is divided once for each free part that the pod could want."""
    most = sum(container.devices.count for container in request.containers)
    found: list[int] = []
    for place, state in enumerate(devices):
        device = state.device
        if device.replicas == 1 and not device.mig_kind:
            found.append(place)
        else:
            parts = device.slots if device.mig_kind else state.parts
            found += (place,) * max(1, min(parts, most))
    return tuple(found)
