"""Is there any grant with which kubelet would take a pod? All are tried, for what was predicted to be refused."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import msgspec

from purser.core.device.ids import uuid_of
from purser.core.kubelet.pod import KubeletPod
from purser.core.kubelet.state import KubeletState
from purser.core.model import ContainerGrant, ContainerRequest, DeviceShare, Grant, PodRequest
from purser.core.names import GPU_RESOURCE
from purser.core.placement import Placement, place, to_grant
from purser.core.policy.settings import PolicySettings

from .agent import Coming, admitted, taken_in
from .node import LiveNode

Parts = tuple[tuple[str, ...], ...]
"""For each container of the request, so far, the uuids of its cards."""


def keeps_all_promises(live: LiveNode, order: Sequence[Coming], new: Coming) -> bool:
    """Whether kubelet, seeing the pods in this order, takes the new one and refuses nobody because of it."""
    active = live.active
    _, taken = taken_in(live.node, live.truth, order, active)
    if new.uid not in taken:
        return False
    others = [coming for coming in order if coming.uid != new.uid]
    if len(taken) == len(order):
        return True
    return taken_in(live.node, live.truth, others, active)[1] <= taken


def any_grant(live: LiveNode, request: PodRequest, policy: PolicySettings) -> Grant | None:
    """A grant of cards that have room, with which kubelet takes the pod whatever the order; None when there is none.

    Cards are chosen container by container. A beginning with which kubelet does not get past its last container is
    followed no further, and of cards that are alike one stands for all.
    """
    state, taken = taken_in(live.node, live.truth, live.coming, live.active)
    if len(taken) < len(live.coming):
        return None
    return next(
        (grant for parts in _grown(live, request, state, ()) if (grant := _sound(live, request, policy, parts))), None
    )


def _grown(live: LiveNode, request: PodRequest, state: KubeletState, parts: Parts) -> Iterator[Parts]:
    if len(parts) == len(request.containers):
        yield parts
        return
    seen = set()
    for uuids in combinations(
        [device.uuid for device in live.inventory.devices], request.containers[len(parts)].devices.count
    ):
        looks = tuple(sorted(repr(_look(live, state, parts, uuid)) for uuid in uuids))
        if looks not in seen:
            seen.add(looks)
            if _gets_past(live, request, state, (*parts, uuids)):
                yield from _grown(live, request, state, (*parts, uuids))


def _look(live: LiveNode, state: KubeletState, parts: Parts, uuid: str) -> object:
    """Equal for cards that differ in nothing but their names."""
    [known] = [each for each in live.known.devices if each.device.uuid == uuid]
    taken = sum(uuid_of(id_) == uuid for id_ in state.devices.allocated.get(GPU_RESOURCE, ()))
    before = [uuid in part for part in parts]
    return known.device.numa_nodes, known.device.healthy, known.cordoned, known.usage, taken, before


def _gets_past(live: LiveNode, request: PodRequest, state: KubeletState, parts: Parts) -> bool:
    """Whether kubelet gets past the container that was given cards last."""
    coming = Coming(_pod(request), _grant(request, parts))
    outcome = admitted(live.node, state, coming, {*live.active_and_coming(), coming.uid})
    if outcome.refusal is None:
        return True
    names = [container.name for container in coming.pod.containers]
    refused = outcome.refusal.container
    return refused != "" and names.index(refused) > names.index(request.containers[len(parts) - 1].name)


def _grant(request: PodRequest, parts: Parts) -> Grant:
    given = zip(request.containers, parts, strict=False)
    containers = tuple(ContainerGrant(c.name, c.kind, tuple(DeviceShare(u, 1, 0) for u in uuids)) for c, uuids in given)
    return Grant(request.uid, request.namespace, request.name, "n", containers)


def _sound(live: LiveNode, request: PodRequest, policy: PolicySettings, parts: Parts) -> Grant | None:
    """The grant, if the cards have room and the order does not matter."""
    exact = tuple(_exactly(container, uuids) for container, uuids in zip(request.containers, parts, strict=True))
    narrowed = msgspec.structs.replace(request, containers=exact)
    unquestioned = msgspec.structs.replace(live.known, kubelet=None)
    placement = place(unquestioned, narrowed, policy)
    if not isinstance(placement, Placement):
        return None
    grant = to_grant(placement, request, live.inventory)
    new = Coming(_pod(request), grant)
    orders = permutations((*live.coming, new))
    return grant if all(keeps_all_promises(live, order, new) for order in orders) else None


def _exactly(container: ContainerRequest, uuids: tuple[str, ...]) -> ContainerRequest:
    return msgspec.structs.replace(
        container, devices=msgspec.structs.replace(container.devices, uuids_allowed=uuids, uuids_required=uuids)
    )


def _pod(request: PodRequest) -> KubeletPod:
    assert request.kubelet_pod is not None
    return request.kubelet_pod
