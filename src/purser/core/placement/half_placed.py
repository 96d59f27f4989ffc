"""A pod half placed on a node: its containers in kubelet's order, each on top of what those beside it already take.

A row of init containers is placed together with the container that follows it (see `choice`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

import msgspec

from purser.core.fleet import DeviceState, rule
from purser.core.fleet.facts import DISPUTED
from purser.core.grant.quota import Demand, QuotaLimits, remaining_quota
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    DeviceRequest,
    DeviceShare,
    GpuPolicy,
    MigPlacement,
    PodRequest,
)
from purser.core.placement.candidates import Candidates
from purser.core.placement.choice import ContainerStep, Pick, pick_connected, pick_first
from purser.core.placement.granted import Positions
from purser.core.placement.instances import Wants, wanted_by_run
from purser.core.placement.nics import PodPools
from purser.core.placement.order import Candidate, device_score, numa_nodes, order_key
from purser.core.placement.reasons import (
    OF_OBSTACLE,
    OTHER_INSTANCES_CLAUSE,
    LargestFree,
    Reason,
    Refusal,
    build_refusal,
    dispute_detail,
)
from purser.core.placement.shape import container_shape
from purser.core.placement.sparing import Sparing
from purser.core.sriov.reserves import PairSeeker, reserves, root_port


class Preference(Protocol):
    """Which devices are best, where that is not for the words of the chain alone to say."""

    def order(self, asked: DeviceRequest, states: Sequence[DeviceState], suits: Sequence[bool]) -> Positions:
        """The positions of the devices that suit a container, most preferred first."""
        ...


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


class HalfPlacedPod:
    """What a pod's containers hold so far."""

    def __init__(
        self,
        devices: tuple[DeviceState, ...],
        request: PodRequest,
        words: tuple[GpuPolicy, ...],
        left: QuotaLimits,
        preference: Preference | None,
        pools: PodPools,
        mig_first: bool | None = None,
    ) -> None:
        """``mig_first``: whether containers that want one device have MIG devices before others, or after them, as far
        as there are any; None: whichever they prefer."""
        self._candidates = Candidates(devices, request)
        self._request = request
        self._words = words
        self._idle_only = GpuPolicy.MUTEX in words
        self._left = left
        self._preference = preference
        self._pools = pools
        self._mig_first = mig_first
        self.choice: list[Positions] = []
        self.instances: list[tuple[MigPlacement | None, ...]] = []

    def add(self, row: tuple[ContainerRequest, ...]) -> Refusal | None:
        """Place a row of containers, or say why it cannot be."""
        nested = self._reserves_by_container(row)
        for found in nested:
            if found.obstacles.count(0) < found.container.devices.count:
                return self._refusal(found, found.obstacles, Reason.TOO_FEW_GPUS)
        steps = [self._step(found) for found in nested]
        names = [container.name for container in row]
        chosen = self._pools.choose(names, steps, self._candidates.devices, self._pick())
        if chosen is None:
            bound = any(container.devices.numa_bind for container in row)
            linked = any(container.devices.linked for container in row)
            others = Reason.NOT_MIXED if self._has_mixed_devices(nested[-1]) else Reason.TOO_FEW_GPUS
            reason = Reason.NUMA_NOT_FIT if bound else Reason.NOT_LINKED if linked else others
            return self._refusal(nested[-1], nested[-1].obstacles, reason)
        return self._hold(nested, chosen)

    def sparing(self, rows: Sequence[tuple[ContainerRequest, ...]]) -> tuple[Sparing, int]:
        """What each row has to leave to those after it, so that they have as many pairs together as there can be; and
        how many these are, as far as can be seen before any is placed."""
        devices = self._candidates.devices
        roots = [root_port(device.pcie) for device in devices]
        found = [self._reserves_by_container(row) for row in rows]
        uses = self._count_uses([each for nested in found for each in nested])
        seekers = []
        for row, nested in zip(rows, found, strict=True):
            own = Counter(root for root, suits in zip(roots, nested[0].suits, strict=True) if suits)
            asked = self._pools.asks_of_last_container([container.name for container in row])
            seekers.append(PairSeeker(row[-1].devices.count, own, asked))
        gpus = Counter[str]()
        for root, most in zip(roots, uses, strict=True):
            gpus[root] += most
        planned = reserves(seekers, gpus)
        return Sparing(planned, roots, uses), sum(sum(each.gpus.values()) for each in planned)

    def _count_uses(self, found: Sequence[_Found]) -> list[int]:
        """By candidate, how many containers can have it, as if each took as much as the one that takes the most."""
        uses = []
        for place, state in enumerate(self._candidates.states):
            shares = [each.shares[place] for each in found if not each.obstacles[place]]
            device, used = state.device, state.usage
            most = bool(shares) * (1 if self._idle_only else device.slots - used.slots)
            if memory_mib := max((share.memory_mib for share in shares), default=0):
                most = min(most, (device.memory_mib - used.memory_mib) // memory_mib)
            if cores_percent := max((share.cores_percent for share in shares), default=0):
                most = min(most, (device.cores_percent - used.cores_percent) // cores_percent)
            uses.append(max(0, most))
        return uses

    def _reserves_by_container(self, row: tuple[ContainerRequest, ...]) -> list[_Found]:
        """What there is for each container of a row."""
        nested: list[_Found] = []
        asked = [container.devices for container in row]
        for at, container in reversed(tuple(enumerate(row))):
            wants = wanted_by_run(asked, at)
            nested.insert(0, self._find(container, wants, nested[0].obstacles if nested else None))
        return nested

    def _find(self, container: ContainerRequest, wants: Wants, later: list[int] | None) -> _Found:
        """``later``: what stands in the way of the container that comes next and is handed this one's devices."""
        asked, shape = container.devices, container_shape(container.devices, self._request)
        shares, own = self._candidates.judge(asked, wants, shape, self._left, idle_only=self._idle_only)
        if later is not None:
            own = [mine or after for mine, after in zip(own, later, strict=True)]
        return _Found(container, wants, shares, own)

    def _hold(self, nested: list[_Found], chosen: list[Positions]) -> Refusal | None:
        candidates = self._candidates
        for found, positions in zip(nested, chosen, strict=True):
            demand = _demand(found.shares[place] for place in positions)
            is_init = found.container.kind is ContainerKind.INIT
            if not self._left.holds(demand):
                return self._refusal(found, candidates.of_devices(positions, rule.OVER_QUOTA), None)
            instances = candidates.instances(positions, found.wants, is_init=is_init)
            if instances is None:
                return self._refusal(found, candidates.of_devices(positions, rule.NO_MIG_PLACEMENT), None)
            self.choice.append(tuple(candidates.at[place] for place in positions))
            self.instances.append(instances)
            if not is_init:
                candidates.run(found.container.devices, positions, instances)
                self._pools.run(positions)
                self._left = remaining_quota(self._left, demand)
        names = (found.container.name for found in nested)
        return self._pools.hold(list(zip(names, chosen, strict=True)), candidates.devices)

    def _has_mixed_devices(self, found: _Found) -> bool:
        """Whether MIG devices and whole GPUs suit a container that wants several."""
        sorts = {device.is_mig for device, suits in zip(self._candidates.devices, found.suits, strict=True) if suits}
        return len(sorts) > 1 and found.container.devices.count > 1

    def _step(self, found: _Found) -> ContainerStep:
        asked = found.container.devices
        required, groups = self._candidates.places(asked.uuids_required), self._candidates.groups(asked)
        order = self._order(found)
        if self._mig_first is not None and asked.count == 1:
            devices = self._candidates.devices
            order = tuple(sorted(order, key=lambda place: devices[place].is_mig is not self._mig_first))
        return ContainerStep(asked.count, order, asked.numa_bind, required, groups)

    def _order(self, found: _Found) -> Positions:
        if not self._candidates.has_partitioned_gpus:
            return self._others(found, found.suits)
        cut = [place for place, suits in enumerate(found.suits) if suits and self._candidates.is_partitioned(place)]
        suits = [suits and place not in cut for place, suits in enumerate(found.suits)]
        return (*self._others(found, suits), *self._partition_order(found.wants, cut))

    def _partition_order(self, wants: Wants, cut: Sequence[int]) -> Iterator[int]:
        """The candidates that are instances of GPUs, most preferred first."""
        of = self._candidates.at
        order = self._candidates.cut.order(Counter(of[place] for place in cut), wants)
        candidates = {at: iter([place for place in cut if of[place] == at]) for at in order}
        return (next(candidates[at]) for at in order)

    def _others(self, found: _Found, suits: Sequence[bool]) -> Positions:
        asked = found.container.devices
        suitable = tuple(place for place, good in enumerate(suits) if good)
        if self._candidates.has_parts and any(map(self._candidates.is_part, suitable)):
            return tuple(sorted(suitable, key=self._candidates.part_key))
        if self._preference is not None and len(suitable) >= max(asked.count, 1):
            return self._preferred(self._preference, asked, suits)
        key = order_key(self._words, asked.numa_bind)
        candidates = [self._candidate(place, found.shares[place]) for place in suitable]
        return tuple(candidate.position for candidate in sorted(candidates, key=key))

    def _preferred(self, preference: Preference, asked: DeviceRequest, suits: Sequence[bool]) -> Positions:
        """A preference knows each device once, whatever stands for it among the candidates."""
        first = [self._candidates.first[at] for at in range(len(self._candidates.first))]
        states = self._candidates.states
        order = preference.order(asked, [states[place] for place in first], [suits[place] for place in first])
        return tuple(first[at] for at in order)

    def _candidate(self, place: int, share: DeviceShare) -> Candidate:
        state = self._candidates.states[place]
        score = device_score(state.device, state.usage, (share,), self._request.weights)
        return Candidate(place, score, numa_nodes(state.device)[0], state.usage.slots)

    def _pick(self) -> Pick:
        if (
            GpuPolicy.TOPOLOGY_AWARE not in self._words
            or self._candidates.has_partitioned_gpus
            or self._candidates.has_parts
        ):
            return pick_first
        spread = GpuPolicy.SPREAD in self._words
        opened = [] if spread else [place for place, state in enumerate(self._candidates.states) if state.usage.slots]
        return partial(pick_connected, topology=self._candidates.topology, opened=opened)

    def _refusal(self, found: _Found, obstacles: Sequence[int], for_rest: Reason | None) -> Refusal:
        by_device: dict[int, tuple[int, DeviceState]] = {}
        for at, obstacle, state in zip(self._candidates.at, obstacles, self._candidates.states, strict=True):
            if at not in by_device or not obstacle:
                by_device[at] = (rule.first(obstacle), state)
        devices = list(by_device.values())
        counts = Counter(OF_OBSTACLE[first] for first, _ in devices if first)
        short = [state for first, state in devices if first == rule.SHORT_OF_MEMORY]
        short_of_compute = [state for first, state in devices if first == rule.SHORT_OF_CORES]
        most = LargestFree(
            max((state.device.memory_mib - state.usage.memory_mib for state in short), default=0),
            max((state.device.memory_mib for state in short), default=0),
            max((state.device.cores_percent - state.usage.cores_percent for state in short_of_compute), default=0),
        )
        asked = found.container.devices
        disputed = (
            dispute_detail(s.device.uuid, s.disputed)
            for first, s in devices
            if first == DISPUTED and not asked.excludes(s.device.uuid)
        )
        dispute = next(disputed, "")
        if Reason.NO_MIG_PLACE not in counts:
            return build_refusal(_with_profile_amounts(found), len(devices), counts, for_rest, most, dispute=dispute)
        beside = OTHER_INSTANCES_CLAUSE if self._candidates.cut.has_taken else ""
        return build_refusal(self._largest(found), len(devices), counts, for_rest, most, beside, dispute=dispute)

    def _largest(self, found: _Found) -> ContainerRequest:
        """The container that needs an instance as large as this one gets."""
        cut = self._candidates.cut
        asking = (each for each in self._request.containers if each.devices in found.wants)
        for each in asking:
            if any(cut.profile(at, (each.devices,)) == cut.profile(at, found.wants) for at in cut):
                return each
        return found.container


def _with_profile_amounts(found: _Found) -> ContainerRequest:
    """The container, with the amounts of its profile where it asks for one."""
    asked = found.container.devices
    if asked.slices is None:
        return found.container
    largest = max(found.shares, key=lambda share: share.memory_mib)
    amounts = {"memory_mib": largest.memory_mib, "cores_percent": largest.cores_percent}
    return msgspec.structs.replace(found.container, devices=msgspec.structs.replace(asked, **amounts))


def _demand(shares: Iterable[DeviceShare]) -> Demand:
    total = Demand()
    for share in shares:
        total += Demand(share.memory_mib, share.cores_percent)
    return total
