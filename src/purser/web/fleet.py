"""The fleet as tiles: one for each GPU, with the pods that hold parts of it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from purser.core.state import ClusterState, StateGpu, StateNode
from purser.top.holding import held_by_gpu
from purser.web.cards import Health, cards_of, has_parts, health_of, health_on, mig_profile

OTHER = ("", "")
"""Namespace and name of pods that the viewer may not see."""

TilePart = tuple[str, str, int, int]
"""Namespace and name of a pod, and the memory (MiB) and compute (percent) that it holds of a GPU."""


class TileState(msgspec.Struct, frozen=True, gc=False):
    """What changes of a GPU while pods come and go. Amounts are what is held."""

    health: Health
    reason: str
    memory_mib: int
    cores_percent: int
    slots: int
    pods: tuple[TilePart, ...]


class TileGpu(msgspec.Struct, frozen=True):
    """A GPU. Amounts are what there is in all."""

    uuid: str
    index: int
    model: str
    mode: str
    parent: str
    memory_mib: int
    cores_percent: int
    slots: int
    state: TileState
    profile: str = ""
    """Of a MIG device."""

    def is_same_device(self, other: "TileGpu") -> bool:
        """Whether nothing but the state differs."""
        return self.uuid == other.uuid and msgspec.structs.replace(self, state=other.state) == other


class TileNode(msgspec.Struct, frozen=True):
    """A node with its GPUs."""

    name: str
    cordoned: bool
    gpus: tuple[TileGpu, ...]
    topology: Mapping[str, str] = {}
    """Labels by which people may group."""
    maintenance: str = ""
    """What the operator does to it, in words; empty: nothing."""

    def has_same_marks(self, other: "TileNode") -> bool:
        """Whether nothing but the GPUs differs."""
        marks = (self.cordoned, self.topology, self.maintenance)
        return marks == (other.cordoned, other.topology, other.maintenance)


class Summary(msgspec.Struct, frozen=True):
    """The cluster in numbers, GPUs as `purser.web.cards` counts them. ``unhealthy`` counts disputed GPUs as well,
    ``cordoned`` those of cordoned nodes."""

    nodes: int
    gpus: int
    unhealthy: int
    cordoned: int
    paused: int
    degraded: int
    memory_mib: int
    memory_held_mib: int
    cores_percent: int
    cores_held_percent: int
    pods: int
    waiting: int


@dataclass(frozen=True)
class FleetChange:
    """What differs between two fleets."""

    nodes: Sequence[TileNode]
    """Those that are new, or of which more than the state of GPUs has changed."""
    gone: Sequence[str]
    gpus: Sequence[tuple[str, int, TileState]]
    """By node and position: GPUs of other nodes."""


Fleet = Mapping[str, TileNode]
"""By name of the node, in the order of the state document."""


def fleet_of(state: ClusterState) -> Fleet:
    """The tiles of a state document."""
    parts: dict[str, list[TilePart]] = defaultdict(list)
    for grant in state.grants:
        for uuid, (memory, cores) in held_by_gpu(grant).items():
            parts[uuid].append((grant.namespace, grant.pod, memory, cores))
    return {node.name: _node(node, parts) for node in state.nodes}


def summary_of(state: ClusterState) -> Summary:
    """The numbers of a state document."""
    gpus = [gpu for node in state.nodes for gpu in node.gpus]
    health: list[Health] = []
    cores: list[tuple[int, int]] = []
    for node in state.nodes:
        if has_parts(node):
            cards = cards_of(node)
            health += [card.health for card in cards]
            cores += (card.cores for card in cards)
        else:
            health += [health_on(node, health_of(gpu)) for gpu in node.gpus]
            cores += [(gpu.cores_held_percent, gpu.cores_percent) for gpu in node.gpus]
    return Summary(
        nodes=len(state.nodes),
        gpus=len(health),
        unhealthy=health.count(Health.UNHEALTHY) + health.count(Health.DISPUTED),
        cordoned=health.count(Health.CORDONED),
        paused=health.count(Health.PAUSED),
        degraded=health.count(Health.DEGRADED),
        memory_mib=sum(gpu.memory_mib for gpu in gpus),
        memory_held_mib=sum(gpu.memory_held_mib for gpu in gpus),
        cores_percent=sum(total for _, total in cores),
        cores_held_percent=sum(held for held, _ in cores),
        pods=len(state.grants),
        waiting=len(state.waiting),
    )


def difference(before: Fleet, now: Fleet) -> FleetChange:
    """What turns one fleet into the other."""
    nodes: list[TileNode] = []
    gpus: list[tuple[str, int, TileState]] = []
    for name, node in now.items():
        old = before.get(name)
        if old is None or not _has_same_devices(old, node):
            nodes.append(node)
            continue
        changed = (
            (name, place, new.state)
            for place, (previous, new) in enumerate(zip(old.gpus, node.gpus, strict=True))
            if previous.state != new.state
        )
        gpus.extend(changed)
    return FleetChange(nodes, [name for name in before if name not in now], gpus)


def _has_same_devices(old: TileNode, new: TileNode) -> bool:
    return (
        old.has_same_marks(new)
        and len(old.gpus) == len(new.gpus)
        and all(was.is_same_device(gpu) for was, gpu in zip(old.gpus, new.gpus, strict=True))
    )


def _node(node: StateNode, parts: Mapping[str, Sequence[TilePart]]) -> TileNode:
    gpus = tuple(_gpu(gpu, parts.get(gpu.uuid, ())) for gpu in node.gpus)
    return TileNode(node.name, node.cordoned, gpus, node.topology, node.maintenance)


def _gpu(gpu: StateGpu, parts: Sequence[TilePart]) -> TileGpu:
    state = TileState(
        health=health_of(gpu),
        reason=gpu.reason or gpu.degraded_reason,
        memory_mib=gpu.memory_held_mib,
        cores_percent=gpu.cores_held_percent,
        slots=gpu.slots_held,
        pods=(*parts, *_others(gpu, parts)),
    )
    return TileGpu(
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model,
        mode=gpu.mode,
        parent=gpu.parent,
        memory_mib=gpu.memory_mib,
        cores_percent=gpu.cores_percent,
        slots=gpu.slots,
        state=state,
        profile=mig_profile(gpu),
    )


def _others(gpu: StateGpu, parts: Sequence[TilePart]) -> tuple[TilePart, ...]:
    """In a document of one namespace: what pods of others hold, as one part."""
    if gpu.pods <= len(parts):
        return ()
    memory = max(gpu.memory_held_mib - sum(part[2] for part in parts), 0)
    cores = max(gpu.cores_held_percent - sum(part[3] for part in parts), 0)
    return ((*OTHER, memory, cores),)
