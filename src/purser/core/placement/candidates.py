"""What of a node's devices the containers of a pod can get: whole devices, parts of divided ones, GPU instances."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import msgspec

from purser.core.fleet import DeviceState, rule
from purser.core.fleet.arrays import Model
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits
from purser.core.interconnect import Topology, topology
from purser.core.ledger import share_usage
from purser.core.mig.on_demand import instance_share
from purser.core.model import DeviceRequest, DeviceShare, MigPlacement, PodRequest
from purser.core.placement.granted import Positions, granted_share
from purser.core.placement.instances import InstancePlaces, Wants
from purser.core.placement.shape import PodShape, share_of


class Candidates:
    """Those of one pod on one node, with what its containers have of them so far."""

    def __init__(self, devices: tuple[DeviceState, ...], request: PodRequest) -> None:
        self.at = _positions(devices, request)
        """By candidate, the position of its device: of one that is divided each free part is a candidate, of one that
        is cut on demand each instance that the pod could have."""
        self.has_partitioned_gpus = any(state.device.mig_kind for state in devices)
        self.has_parts = any(state.device.replicas > 1 for state in devices)
        self.cut = InstancePlaces(devices if self.has_partitioned_gpus else ())
        self._whole = [devices[place] for place in self.at]
        """By candidate, its device."""
        parts = [state if state.device.replicas == 1 else state.as_replica(state.parts > 0) for state in devices]
        self.states = tuple(parts[place] for place in self.at)
        """Used by other pods over their whole lives, and by the containers of this pod that run beside the next one.
        Equal parts are one object, and are looked at once."""
        self._taken: dict[int, DeviceState] = {}
        """By position of a device that is divided, a part of it that this pod has taken."""
        self.devices = tuple(state.device for state in self.states)

    @cached_property
    def first(self) -> Mapping[int, int]:
        """By position of a device, its first candidate."""
        return {at: place for place, at in reversed(tuple(enumerate(self.at)))}

    @cached_property
    def topology(self) -> Topology:
        """How they are connected."""
        return topology(self.devices)

    def is_partitioned(self, place: int) -> bool:
        """Whether it is an instance of a GPU that is cut on demand."""
        return self.at[place] in self.cut

    def is_part(self, place: int) -> bool:
        """Whether it is a part of a device that is divided."""
        return self._whole[place].device.replicas > 1

    def part_key(self, place: int) -> tuple[int, int]:
        """As NVIDIA's device plugin prefers parts: its file says which, and no word of the pod's."""
        whole = self._whole[place]
        if whole.device.packed:
            return -whole.usage.slots, place
        return whole.usage.slots + place - self.first[self.at[place]], place

    def before(self, place: int) -> int:
        """How many candidates before it are instances of the same GPU."""
        return place - self.first[self.at[place]] if self.is_partitioned(place) else 0

    def of_devices(self, positions: Positions, obstacle: int) -> list[int]:
        """By candidate, an obstacle to all that are of the same devices as these."""
        chosen = {self.at[place] for place in positions}
        return [obstacle * (at in chosen) for at in self.at]

    def places(self, uuids: Collection[str]) -> Positions:
        """Of these devices the first candidates."""
        if not uuids:
            return ()
        places = {device.uuid: place for place, device in reversed(tuple(enumerate(self.devices)))}
        return tuple(sorted(places[uuid] for uuid in set(uuids) & places.keys()))

    def groups(self, asked: DeviceRequest) -> tuple[frozenset[int], ...] | None:
        """What goes together of the devices that are there."""
        if not asked.linked:
            return None
        places = {device.index: at for at, device in enumerate(self.devices) if device.resource == asked.resource}
        linked = asked.linked
        if places and self.devices[next(iter(places.values()))].ring:
            linked = tuple(tuple(range(first, first + asked.count)) for first in places)
        there = (group for group in linked if places.keys() >= {*group})
        return tuple(frozenset(places[index] for index in group) for group in there)

    def judge(
        self, asked: DeviceRequest, wants: Wants, shape: PodShape, left: QuotaLimits, *, idle_only: bool
    ) -> tuple[list[DeviceShare], list[int]]:
        """By candidate, what a container would hold of it, and what stands in the way; see `purser.core.fleet.rule`."""
        of_model, is_limited = self._model_obstacles(shape), left != UNLIMITED
        judged: dict[tuple[int, int], tuple[DeviceShare, int]] = {}
        found = []
        for place, state in enumerate(self.states):
            key = id(state), self.before(place) if self.has_partitioned_gpus else 0
            if (known := judged.get(key)) is None:
                share = self._share_of(place, asked, wants)
                is_over = is_limited and not left.holds(Demand(share.memory_mib, share.cores_percent))
                also = _other_obstacles(asked, state, share) | is_over * rule.OVER_QUOTA
                obstacles = self._obstacles(place, share, asked, wants, of_model[place], also, idle_only)
                known = judged[key] = share, obstacles
            found.append(known)
        return [share for share, _ in found], [obstacles for _, obstacles in found]

    def instances(self, positions: Positions, wants: Wants, *, is_init: bool) -> tuple[MigPlacement | None, ...] | None:
        """What a container gets of the GPUs that are cut on demand; None: there is no place beside what the containers
        before it have. ``is_init``: the next one gets the same."""
        if not self.has_partitioned_gpus:
            return (None,) * len(positions)
        cut = [self.at[place] for place in positions if self.is_partitioned(place)]
        found = self.cut.take(cut, wants, is_init=is_init)
        if found is None:
            return None
        left = iter(found)
        return tuple(next(left) if self.is_partitioned(place) else None for place in positions)

    def run(self, asked: DeviceRequest, positions: Positions, instances: tuple[MigPlacement | None, ...]) -> None:
        """A container runs beside all that follow."""
        states = list(self.states)
        for place, instance in zip(positions, instances, strict=True):
            state = states[place]
            taken = share_usage(granted_share(self.devices[place], asked, instance))
            after = msgspec.structs.replace(state, usage=state.usage + taken)
            states[place] = self._taken.setdefault(self.at[place], after) if self.is_part(place) else after
            if instance is not None:  # all candidates there are one GPU
                states = [after if at == self.at[place] else each for at, each in zip(self.at, states, strict=True)]
        self.states = tuple(states)

    def _share_of(self, place: int, asked: DeviceRequest, wants: Wants) -> DeviceShare:
        device = self._whole[place].device
        profile = (
            self.cut.profile(self.at[place], wants)
            if self.has_partitioned_gpus and self.is_partitioned(place)
            else None
        )
        return share_of(device, asked) if profile is None else instance_share(device, profile)

    def _model_obstacles(self, shape: PodShape) -> list[int]:
        """By candidate, what stands between a container and its model."""
        models = [
            (d.model, d.memory_mib, d.mode, d.resource, whole.device.replicas, d.one_each, d.enforcement, d.mig_kind)
            for d, whole in zip(self.devices, self._whole, strict=True)
        ]
        known = {model: shape.obstacles(Model(*model)) for model in set(models)}
        return [known[model] for model in models]

    def _obstacles(
        self,
        place: int,
        share: DeviceShare,
        asked: DeviceRequest,
        wants: Wants,
        of_model: int,
        also: int,
        idle_only: bool,
    ) -> int:
        state, whole = self.states[place], self._whole[place].device
        device, used = state.device, state.usage
        if device.mig_kind:
            cut: int = rule.partition_obstacles(
                closed=state.closed,
                also=also,
                of_model=of_model,
                slots=device.slots,
                slots_free=device.slots - used.slots,
                idle=idle_only,
                places=min(self.cut.count(self.at[place], wants), device.slots - used.slots) - self.before(place),
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
            idle=idle_only,
        )
        return found & ~rule.NO_COMPUTE if asked.joins else found


def _other_obstacles(asked: DeviceRequest, state: DeviceState, share: DeviceShare) -> int:
    """What stands in the way of a share that is not of the device's model and amounts."""
    found = asked.excludes(state.device.uuid) * rule.OTHER_UUID
    used = state.usage
    others = any(word != asked.alike and word not in asked.joins for word in used.alike)
    if others or (asked.alike and len(used.alike) < used.slots):
        found |= rule.UNLIKE_OTHERS
    if (asked.slices is not None and not share.profile) or (asked.soft_split and not state.device.soft_split):
        found |= rule.OTHER_MODEL
    return found


def _positions(devices: Sequence[DeviceState], request: PodRequest) -> Positions:
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
