"""Random pods: as their authors write them, then read as the scheduler reads them."""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from purser.core.dialects import DialectError, parse
from purser.core.kubelet.pod import KubeletPod, kubelet_pod
from purser.core.model import PodRequest
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerKind, ContainerSpec, PodManifest

from .hardware import NIC_RESOURCE

_APPS = (("main",), ("main",), ("main", "second"))
_INITS = ((), (), (), (("init", ContainerKind.INIT),), (("proxy", ContainerKind.SIDECAR),))


class Wishes(NamedTuple):
    """What pods may ask of a node without being sent elsewhere by kube-scheduler."""

    cards: int
    are_shared: bool
    nics: int
    """Free ones: of other plugins' devices Purser does not count how many there are."""
    sidecars: bool
    """Kubelets before 1.28 know none."""


def requesting_pod(rng: Random, uid: str, wishes: Wishes) -> PodRequest:
    """A pod that asks for cards, or for shares of them."""
    while True:
        shares = wishes.are_shared and rng.random() < 0.8
        spec = _spec(rng, uid, wishes, lambda shares=shares: _gpus(rng, wishes.cards, shares=shares))
        try:
            request = parse(spec)
        except DialectError:  # an init container with more cards than the container after it
            continue
        if request is not None:
            return request


def other_pod(rng: Random, uid: str, wishes: Wishes) -> KubeletPod:
    """A pod without GPUs, which others may bind."""
    return kubelet_pod(_spec(rng, uid, wishes, dict))


def _spec(rng: Random, uid: str, wishes: Wishes, gpus: Callable[[], dict[str, str]]) -> PodManifest:
    whole_cpus = rng.random() < 0.85
    is_guaranteed = rng.random() < 0.7
    kinds = (
        *rng.choice(_INITS if wishes.sidecars else _INITS[:-1]),
        *((name, ContainerKind.APP) for name in rng.choice(_APPS)),
    )
    containers = tuple(
        ContainerSpec(name, kind, {**gpus(), **_nics(rng, wishes.nics // len(kinds)), **_computes(rng, whole_cpus)})
        for name, kind in kinds
    )
    if not is_guaranteed:
        containers = tuple(ContainerSpec(c.name, c.kind, _without_memory(c.limits)) for c in containers)
    annotations = {"nvidia.com/numa-bind": "true"} if rng.random() < 0.05 else {}
    return PodManifest(uid, "default", uid, annotations, containers)


def _gpus(rng: Random, cards: int, *, shares: bool) -> dict[str, str]:
    count = min(cards, rng.choice((0, 1, 1, 1, 1, 2, 2, 2, 3, 4, 8)))
    if count == 0:
        return {}
    asked = {GPU_RESOURCE: str(count)}
    if shares:
        asked["nvidia.com/gpumem"] = str(rng.choice((8000, 10000, 20000, 40000)))
        if rng.random() < 0.3:
            asked["nvidia.com/gpucores"] = str(rng.choice((20, 50)))
    return asked


def _nics(rng: Random, most: int) -> dict[str, str]:
    return {NIC_RESOURCE: str(rng.randint(1, most))} if most and rng.random() < 0.4 else {}


def _computes(rng: Random, whole_cpus: bool) -> dict[str, str]:
    hugepages = {"hugepages-2Mi": "1Gi"} if rng.random() < 0.03 else {}
    cpus = str(rng.choice((1, 1, 2, 2, 3, 4, 6, 8, 16))) if whole_cpus else "500m"
    return {"cpu": cpus, "memory": f"{rng.choice((1, 2, 4, 8, 20))}Gi", **hugepages}


def _without_memory(limits: Mapping[str, str]) -> dict[str, str]:
    return {name: amount for name, amount in limits.items() if name != "memory"}
