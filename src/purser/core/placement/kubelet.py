"""Would the node's kubelet take the pod, and with the devices that it is to be granted?

kubelet decides by rules of its own, and what it refuses is lost: it never tries again. So its admission is run ahead
(`foresight`). Where kubelet would go for other devices than the grant's, the choice is made anew among those, and where
that leaves nothing, with other devices for the containers before: what these take decides where kubelet goes next.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import permutations
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from purser.core.device import ids as device_ids
from purser.core.kubelet.asks import Rejection as KubeletRefusal
from purser.core.kubelet.config import TopologyPolicy
from purser.core.kubelet.cpumanager.requests import guaranteed_cpus
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.state import KubeletState
from purser.core.model import DeviceRequest, PodRequest
from purser.core.names import GPU_RESOURCE
from purser.core.outlook import Arrival, Outlook
from purser.core.placement.foresight import Diverted, Granted, PredictedRejection, foresee
from purser.core.placement.reasons import Reason, Refusal

MAX_ARRIVALS = 2
"""Pods to be aligned that are on their way to one kubelet, among which another one may go: it must fit whichever
kubelet takes first, and the orders grow fast."""

MAX_TRIES = 32
"""Choices that are made for one kubelet. A pod with one container needs two or three; this bounds the search among the
choices for several containers, of which there may be millions."""

Choice = TypeVar("Choice")


class Settled(msgspec.Struct, Generic[Choice], frozen=True):
    """A choice with which the node's kubelet takes the pod."""

    choice: Choice
    after: KubeletState | None
    """What kubelet holds then, if it takes the pods in the order in which they were bound; None: it was not asked."""


class _BadEnd(msgspec.Struct, frozen=True):
    """Why a choice will not do."""

    why: Diverted | PredictedRejection
    is_own: bool
    """The pod's own, and not only if kubelet takes the pods in another order than that in which they were bound."""


def settle(
    outlook: Outlook,
    request: PodRequest,
    choose: Callable[[PodRequest], Choice | Refusal],
    granted: Callable[[Choice], Granted],
) -> Settled[Choice] | Refusal:
    """A choice of devices with which the node's kubelet takes the pod, or why there is none.

    ``choose`` chooses for the request as it is narrowed here: fewer devices allowed, some of them required. ``granted``
    says what a choice means.
    """
    first, pod = choose(request), request.kubelet_pod
    if isinstance(first, Refusal):
        return first
    if pod is None:
        return Settled(first, None)
    if _is_aligned(outlook, pod) and len(_aligned(outlook)) > MAX_ARRIVALS:
        return _busy(outlook)
    return _search(outlook, request, first, choose, lambda choice: Arrival(pod, granted(choice)))


def _search(
    outlook: Outlook,
    request: PodRequest,
    first: Choice,
    choose: Callable[[PodRequest], Choice | Refusal],
    arrival_of: Callable[[Choice], Arrival],
) -> Settled[Choice] | Refusal:
    """The first choice that comes to a good end: kubelet is followed before anything else is tried."""
    ends: list[_BadEnd] = []
    waiting, known = deque([request]), {request.containers}
    for _ in range(MAX_TRIES):
        if not waiting:
            break
        variant = waiting.popleft()
        choice = first if variant is request else choose(variant)
        if isinstance(choice, Refusal):
            continue
        arrival = arrival_of(choice)
        end = _end(outlook, arrival)
        if isinstance(end, KubeletState):
            return Settled(choice, end)
        ends.append(end)
        followed, elsewhere = _variants(variant, arrival, end.why)
        waiting.extendleft(each for each in followed if each.containers not in known)
        waiting.extend(each for each in elsewhere if each.containers not in known)
        known.update(each.containers for each in (*followed, *elsewhere))
    return _refusal_of(outlook, ends)


def _end(outlook: Outlook, arrival: Arrival) -> KubeletState | _BadEnd:
    """What kubelet holds in the end, if it takes the pods as they were bound. Pods that come to it together it takes by
    their age: none of them must end badly in any order."""
    after = foresee(outlook.node, outlook.state, (*outlook.arrivals, arrival))
    if not isinstance(after, KubeletState):
        # One before it ends badly only where the node has changed since: that is not for this pod to find out.
        return _BadEnd(after, is_own=after.uid == arrival.pod.uid)
    for order in _other_orders(outlook, arrival):
        foreseen = foresee(outlook.node, outlook.state, order)
        if not isinstance(foreseen, KubeletState):
            return _BadEnd(foreseen, is_own=False)
    return after


def _other_orders(outlook: Outlook, arrival: Arrival) -> Iterator[Sequence[Arrival]]:
    """The orders that could make a difference, beside that in which the pods were bound."""
    if not _is_aligned(outlook, arrival.pod):
        return
    aligned = _aligned(outlook)
    rest = [each for each in outlook.arrivals if each not in aligned]
    orders = permutations((*aligned, arrival))
    next(orders)  # as they were bound
    yield from ((*rest, *order) for order in orders)


def _aligned(outlook: Outlook) -> list[Arrival]:
    return [each for each in outlook.arrivals if _is_aligned(outlook, each.pod)]


def _is_aligned(outlook: Outlook, pod: KubeletPod) -> bool:
    """Whether it matters to a pod, or to those after it, what kubelet took before: NUMA nodes are chosen for it. Of
    other pods only the amounts count, and these add up to the same in any order."""
    state = outlook.state
    if state.memory is not None and pod.qos is QosClass.GUARANTEED:
        return True
    if outlook.node.config.topology_policy is TopologyPolicy.NONE:
        return False
    return any(_is_aligned_container(state, pod, container) for container in pod.containers)


def _is_aligned_container(state: KubeletState, pod: KubeletPod, container: KubeletContainer) -> bool:
    if state.cpus is not None and guaranteed_cpus(pod, container):
        return True
    asked = (
        state.devices.resources[name] for name, n in container.limits.items() if n and name in state.devices.resources
    )
    return any(device.numa_nodes for resource in asked for device in resource.devices.values())


def _variants(
    request: PodRequest, arrival: Arrival, why: Diverted | PredictedRejection
) -> tuple[list[PodRequest], list[PodRequest]]:
    """What may be chosen for instead: what kubelet goes for, and other devices for the containers before."""
    if why.uid != request.uid:
        return [], []
    followed = [_narrowed(request, why)] if isinstance(why, Diverted) else []
    elsewhere = [_denied(request, name, uuid) for name, uuid in _held_before(arrival, why.container)]
    return followed, elsewhere


def _held_before(arrival: Arrival, container: str) -> Iterator[tuple[str, str]]:
    """The devices of the containers before one, and those that hold them; none before a pod as a whole."""
    names = [each.name for each in arrival.pod.containers]
    for name in names[: names.index(container)] if container else ():
        for uuid in arrival.granted.get(name, ()):
            yield name, uuid


def _denied(request: PodRequest, container: str, uuid: str) -> PodRequest:
    return _with_devices(
        request, container, lambda devices: replace(devices, uuids_denied=(*devices.uuids_denied, uuid))
    )


def _narrowed(request: PodRequest, diverted: Diverted) -> PodRequest:
    return _with_devices(request, diverted.container, lambda devices: _narrowed_devices(devices, diverted))


def _narrowed_devices(devices: DeviceRequest, diverted: Diverted) -> DeviceRequest:
    allowed = diverted.available.intersection(devices.uuids_allowed or diverted.available)
    return replace(
        devices,
        # No device at all must not read as any device.
        uuids_allowed=tuple(sorted(allowed)) or ("none",),
        uuids_required=tuple(sorted(diverted.required)),
    )


def _with_devices(request: PodRequest, container: str, change: Callable[[DeviceRequest], DeviceRequest]) -> PodRequest:
    containers = tuple(
        replace(each, devices=change(each.devices)) if each.name == container else each for each in request.containers
    )
    return replace(request, containers=containers)


def _refusal_of(outlook: Outlook, ends: Sequence[_BadEnd]) -> Refusal:
    """Where a choice comes to a good end but for the order, or another pod to a bad one, they are waited for."""
    if not all(end.is_own for end in ends):
        return _busy(outlook)
    why = ends[0].why
    return _refused(outlook, why.refusal) if isinstance(why, PredictedRejection) else _diverted(outlook, why)


def _refusal(detail: str, container: str = "") -> Refusal:
    return Refusal(((Reason.KUBELET_REFUSES, 1),), container=container, detail=detail)


def _refused(outlook: Outlook, refusal: KubeletRefusal) -> Refusal:
    policy = outlook.node.config.topology_policy
    return _refusal(f"{refusal.manager}, policy {policy}: {refusal.reason}: {refusal.message}", refusal.container)


def _diverted(outlook: Outlook, diverted: Diverted) -> Refusal:
    policy = outlook.node.config.topology_policy
    return _refusal(
        f"topology manager, policy {policy}: it would take other devices, of {_numa_words(outlook, diverted)}, "
        "than have room for the container",
        diverted.container,
    )


def _numa_words(outlook: Outlook, diverted: Diverted) -> str:
    nodes = sorted(set(_numa_nodes(outlook.state, diverted.available)))
    return f"NUMA node {', '.join(map(str, nodes))}" if nodes else "no NUMA node"


def _numa_nodes(state: KubeletState, uuids: Collection[str]) -> Iterator[int]:
    resource = state.devices.resources.get(GPU_RESOURCE)
    for device in resource.devices.values() if resource else ():
        if device_ids.uuid_of(device.id) in uuids:
            yield from device.numa_nodes or ()


def _busy(outlook: Outlook) -> Refusal:
    """For a second or so: until the node's agent tells that kubelet took them."""
    count = len(_aligned(outlook)) or len(outlook.arrivals)
    pods = "a pod is" if count == 1 else f"{count} pods are"
    detail = f"{pods} on the way to it, and which it takes first would decide whether this one can run"
    return Refusal(((Reason.KUBELET_BUSY, 1),), detail=detail)
