"""What pods hold of GPUs: as the ledger counts it, by what runs at the same time, so that an init container and an app
of the same pod count once."""

from collections import Counter
from collections.abc import Callable, Iterator
from operator import add, or_
from typing import TypeVar

from purser.core.pod.manifest import ContainerKind
from purser.core.pod.phases import largest
from purser.core.state import ClusterState, StateGrant, StateShare
from purser.top.lines import clean

Key = TypeVar("Key")


def memory_mib(grant: StateGrant) -> int:
    """Of all its GPUs."""
    return _peaks(grant, _gpu, _memory).total()


def cores_percent(grant: StateGrant) -> int:
    """Of all its GPUs, 100 for each whole one; 0: compute is not limited."""
    return _peaks(grant, _gpu, _cores).total()


def held_by_gpu(grant: StateGrant) -> dict[str, tuple[int, int]]:
    """By uuid: memory in MiB and compute in percent that the pod holds of each GPU."""
    memory, cores = _peaks(grant, _gpu, _memory), _peaks(grant, _gpu, _cores)
    return {uuid: (memory[uuid], cores[uuid]) for uuid in dict.fromkeys(map(_gpu, _shares(grant)))}


def gpu_indices(grant: StateGrant) -> str:
    """Its GPUs by the driver's index."""
    return ",".join(dict.fromkeys(map(_named, _shares(grant))))


def gpu_uuids(grant: StateGrant) -> str:
    """Its GPUs by uuid."""
    return ",".join(dict.fromkeys(map(_gpu, _shares(grant))))


def holder_lines(state: ClusterState, node: str, uuid: str = "") -> list[str]:
    """The pods that hold GPUs of a node, or one of them, and what of each."""
    lines = []
    for grant in state.grants:
        if grant.node != node:
            continue
        memory, cores = _peaks(grant, _part, _memory), _peaks(grant, _part, _cores)
        parts = {_part(share): _named(share) for share in _shares(grant) if uuid in ("", share.gpu)}
        held = [_held(name, memory[part], cores[part]) for part, name in parts.items()]
        if held:
            lines.append(clean(f"{grant.namespace}/{grant.pod}  {'; '.join(held)}"))
    return lines or ["No pod holds any part of the GPU." if uuid else "No pod holds any GPU of the node."]


def _shares(grant: StateGrant) -> Iterator[StateShare]:
    return (share for part in grant.containers for share in part.shares)


def _peaks(grant: StateGrant, of: Callable[[StateShare], Key], amount: Callable[[StateShare], int]) -> Counter[Key]:
    """The most that its containers hold together of each GPU, or part of one: a GPU stays the pod's to its end."""
    held: list[tuple[ContainerKind, Counter[Key]]] = []
    for part in grant.containers:
        amounts: Counter[Key] = Counter()
        for share in part.shares:
            amounts[of(share)] += amount(share)
        held.append((part.kind, amounts))
    if len(held) == 1:
        # As most pods are. Sums of Counters would take most of the time that a large fleet takes.
        return held[0][1]
    return largest(held, Counter(), add, or_)


def _gpu(share: StateShare) -> str:
    return share.gpu


def _part(share: StateShare) -> tuple[str, str]:
    return share.gpu, share.mig


def _memory(share: StateShare) -> int:
    return share.memory_mib


def _cores(share: StateShare) -> int:
    return share.cores_percent


def _named(share: StateShare) -> str:
    index = "gone" if share.index < 0 else str(share.index)
    return f"{index} ({share.mig})" if share.mig else index


def _held(gpu: str, memory: int, cores: int) -> str:
    return f"GPU {gpu}: {memory} MiB" + (f", {cores}% of compute" if cores else "")
