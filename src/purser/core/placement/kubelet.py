"""Whether the node's kubelet would admit the pod with the devices that it is to be granted.

kubelet decides by rules of its own, and never retries a pod that it rejected. So its admission is predicted
(`kubelet_prediction`). Where kubelet would choose other devices than the grant's, the choice is repeated among those,
and where that leaves nothing, with other devices for the previous containers, since these decide what kubelet chooses
next.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import permutations
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from purser.core.device import ids as device_ids
from purser.core.device.resources import is_gpu_resource
from purser.core.fleet import NodeState
from purser.core.fleet.kubelet_snapshot import Arrival, KubeletSnapshot
from purser.core.kubelet.asks import Rejection as KubeletRefusal
from purser.core.kubelet.config import TopologyPolicy
from purser.core.kubelet.cpumanager.requests import guaranteed_cpus
from purser.core.kubelet.masks import mask_of
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.state import KubeletState, PluginDevice
from purser.core.model import ContainerRequest, DeviceRequest, PodRequest
from purser.core.placement.kubelet_prediction import (
    DeviceMismatch,
    GrantedDevices,
    Mismatch,
    PoolMismatch,
    PredictedRejection,
    predict,
)
from purser.core.placement.reasons import Reason, Refusal

MAX_ARRIVALS = 2
"""Pods to be aligned that are on their way to one kubelet, among which another one may go: it must fit whichever
kubelet takes first, and the orders grow fast."""

MAX_TRIES = 32
"""Choices that are made for one kubelet. A pod with one container needs two or three; this bounds the search among the
choices for several containers, of which there may be millions."""

Choice = TypeVar("Choice")


class AdmittedChoice(msgspec.Struct, Generic[Choice], frozen=True):
    """A choice with which the node's kubelet takes the pod."""

    choice: Choice
    after: KubeletState | None
    """What kubelet holds then, if it takes the pods in the order in which they were bound; None: it was not asked."""


class _RejectedChoice(msgspec.Struct, frozen=True):
    """Why a choice will not do."""

    why: Mismatch | PredictedRejection
    is_own: bool
    """The pod's own, and not only if kubelet takes the pods in another order than that in which they were bound."""


def find_admitted(
    kubelet: KubeletSnapshot,
    request: PodRequest,
    choose: Callable[[PodRequest], Choice | Refusal],
    arrival_of: Callable[[KubeletPod, Choice], Arrival],
) -> AdmittedChoice[Choice] | Refusal:
    """A choice of devices with which the node's kubelet takes the pod, or why there is none.

    ``choose`` chooses for the request as it is narrowed here: fewer devices allowed, some of them required.
    ``arrival_of`` says what a choice means.
    """
    first, pod = choose(request), request.kubelet_pod
    if isinstance(first, Refusal):
        return first
    if pod is None:
        return AdmittedChoice(first, None)
    if _is_aligned(kubelet, pod) and len(_aligned(kubelet)) > MAX_ARRIVALS:
        return _admission_pending(kubelet)
    return _search(kubelet, request, first, choose, lambda choice: arrival_of(pod, choice))


def _search(
    kubelet: KubeletSnapshot,
    request: PodRequest,
    first: Choice,
    choose: Callable[[PodRequest], Choice | Refusal],
    arrival_of: Callable[[Choice], Arrival],
) -> AdmittedChoice[Choice] | Refusal:
    """The first choice that comes to a good end: kubelet is followed before anything else is tried."""
    ends: list[_RejectedChoice] = []
    waiting, known = deque([request]), {request.containers}
    for _ in range(MAX_TRIES):
        if not waiting:
            break
        variant = waiting.popleft()
        choice = first if variant is request else choose(variant)
        if isinstance(choice, Refusal):
            continue
        arrival = arrival_of(choice)
        end = _end(kubelet, arrival)
        if isinstance(end, KubeletState):
            return AdmittedChoice(choice, end)
        ends.append(end)
        kubelet_choices, elsewhere = _variants(variant, arrival, end.why)
        waiting.extendleft(each for each in kubelet_choices if each.containers not in known)
        waiting.extend(each for each in elsewhere if each.containers not in known)
        known.update(each.containers for each in (*kubelet_choices, *elsewhere))
    return _refusal_of(kubelet, ends)


def _end(kubelet: KubeletSnapshot, arrival: Arrival) -> KubeletState | _RejectedChoice:
    """What kubelet holds in the end, if it takes the pods as they were bound. Pods that come to it together it takes by
    their age: none of them must end badly in any order."""
    after = predict(kubelet.node, kubelet.state, (*kubelet.arrivals, arrival))
    if not isinstance(after, KubeletState):
        # One before it ends badly only where the node has changed since: that is not for this pod to find out.
        return _RejectedChoice(after, is_own=after.uid == arrival.pod.uid)
    for order in _other_orders(kubelet, arrival):
        predicted = predict(kubelet.node, kubelet.state, order)
        if not isinstance(predicted, KubeletState):
            return _RejectedChoice(predicted, is_own=False)
    return after


def _other_orders(kubelet: KubeletSnapshot, arrival: Arrival) -> Iterator[Sequence[Arrival]]:
    """The orders that could make a difference, beside that in which the pods were bound."""
    if not _is_aligned(kubelet, arrival.pod):
        return
    aligned = _aligned(kubelet)
    rest = [each for each in kubelet.arrivals if each not in aligned]
    orders = permutations((*aligned, arrival))
    next(orders)  # as they were bound
    yield from ((*rest, *order) for order in orders)


def _aligned(kubelet: KubeletSnapshot) -> list[Arrival]:
    return [each for each in kubelet.arrivals if _is_aligned(kubelet, each.pod)]


def _is_aligned(kubelet: KubeletSnapshot, pod: KubeletPod) -> bool:
    """Whether it matters to a pod, or to those after it, what kubelet took before: NUMA nodes are chosen for it. Of
    other pods only the amounts count, and these add up to the same in any order."""
    state = kubelet.state
    if state.memory is not None and pod.qos is QosClass.GUARANTEED:
        return True
    if kubelet.node.config.topology_policy is TopologyPolicy.NONE:
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
    request: PodRequest, arrival: Arrival, why: Mismatch | PredictedRejection
) -> tuple[list[PodRequest], list[PodRequest]]:
    """What may be chosen for instead: what kubelet goes for, and other devices for the containers before."""
    if why.uid != request.uid:
        return [], []
    kubelet_choices = []
    if isinstance(why, DeviceMismatch):
        kubelet_choices = [_narrow_request(request, why)]
    elif isinstance(why, PoolMismatch):
        kubelet_choices = [_narrow_pool(request, why)]
    elsewhere = [_deny_device(request, name, uuid) for name, uuid in _held_before(arrival, why.container)]
    return kubelet_choices, elsewhere


def _held_before(arrival: Arrival, container: str) -> Iterator[tuple[str, str]]:
    """The devices of the containers before one, and those that hold them; none before a pod as a whole."""
    names = [each.name for each in arrival.pod.containers]
    for name in names[: names.index(container)] if container else ():
        for uuid in arrival.granted.get(name, ()):
            yield name, uuid


def _deny_device(request: PodRequest, container: str, uuid: str) -> PodRequest:
    return _with_devices(
        request, container, lambda devices: replace(devices, uuids_denied=(*devices.uuids_denied, uuid))
    )


def _narrow_request(request: PodRequest, mismatch: DeviceMismatch) -> PodRequest:
    return _with_devices(request, mismatch.container, lambda devices: _narrow_devices(devices, mismatch))


def _narrow_devices(devices: DeviceRequest, mismatch: DeviceMismatch) -> DeviceRequest:
    allowed = mismatch.available.intersection(devices.uuids_allowed or mismatch.available)
    return replace(
        devices,
        # No device at all must not read as any device.
        uuids_allowed=tuple(sorted(allowed)) or ("none",),
        uuids_required=tuple(sorted(mismatch.required)),
    )


def _narrow_pool(request: PodRequest, mismatch: PoolMismatch) -> PodRequest:
    found = (mismatch.resource, mismatch.numa_nodes)
    containers = tuple(
        replace(each, pool_numa_nodes=(*(old for old in each.pool_numa_nodes if old[0] != found[0]), found))
        if each.name == mismatch.container
        else each
        for each in request.containers
    )
    return replace(request, containers=containers)


def _with_devices(request: PodRequest, container: str, change: Callable[[DeviceRequest], DeviceRequest]) -> PodRequest:
    containers = tuple(
        replace(each, devices=change(each.devices)) if each.name == container else each for each in request.containers
    )
    return replace(request, containers=containers)


def _refusal_of(kubelet: KubeletSnapshot, ends: Sequence[_RejectedChoice]) -> Refusal:
    """Where a choice comes to a good end but for the order, or another pod to a bad one, they are waited for."""
    if not all(end.is_own for end in ends):
        return _admission_pending(kubelet)
    why = ends[0].why
    if isinstance(why, PoolMismatch):
        return _pool_mismatch(kubelet, why)
    return _refused(kubelet, why.refusal) if isinstance(why, PredictedRejection) else _mismatch(kubelet, why)


def _refusal(detail: str, container: str = "") -> Refusal:
    return Refusal(((Reason.KUBELET_WOULD_REJECT, 1),), container=container, detail=detail)


def _refused(kubelet: KubeletSnapshot, refusal: KubeletRefusal) -> Refusal:
    policy = kubelet.node.config.topology_policy
    return _refusal(f"{refusal.manager}, policy {policy}: {refusal.reason}: {refusal.message}", refusal.container)


def _mismatch(kubelet: KubeletSnapshot, mismatch: DeviceMismatch) -> Refusal:
    policy = kubelet.node.config.topology_policy
    return _refusal(
        f"topology manager, policy {policy}: kubelet would use devices {_numa_words(kubelet, mismatch)}, but only "
        "other devices have room for the container",
        mismatch.container,
    )


def _pool_mismatch(kubelet: KubeletSnapshot, mismatch: PoolMismatch) -> Refusal:
    policy, where = kubelet.node.config.topology_policy, _on_numa_nodes(mismatch.numa_nodes)
    return _refusal(
        f"topology manager, policy {policy}: kubelet would use devices of {mismatch.resource} {where}, but none of "
        "those are near a GPU for the container",
        mismatch.container,
    )


def _numa_words(kubelet: KubeletSnapshot, mismatch: DeviceMismatch) -> str:
    return _on_numa_nodes(sorted(set(_numa_nodes(kubelet.state, mismatch.available))))


def _on_numa_nodes(nodes: Sequence[int]) -> str:
    if not nodes:
        return "without a NUMA node"
    return f"on NUMA node{'s' * (len(nodes) > 1)} {', '.join(map(str, nodes))}"


def _numa_nodes(state: KubeletState, uuids: Collection[str]) -> Iterator[int]:
    for device in _own_devices(state):
        if device_ids.uuid_of(device.id) in uuids:
            yield from device.numa_nodes or ()


def _own_devices(state: KubeletState) -> Iterator[PluginDevice]:
    """Those of Purser's agent."""
    for name, resource in state.devices.resources.items():
        if is_gpu_resource(name):
            yield from resource.devices.values()


def _admission_pending(kubelet: KubeletSnapshot) -> Refusal:
    """For about a second: until the node's agent reports that kubelet allocated them."""
    count = len(_aligned(kubelet)) or len(kubelet.arrivals)
    pods = "a pod is" if count == 1 else f"{count} pods are"
    detail = f"{pods} awaiting kubelet's admission, and the order of admission decides whether this pod can run"
    return Refusal(((Reason.KUBELET_ADMISSION_PENDING, 1),), detail=detail)


def restrict_to_cpu_nodes(
    node: NodeState, request: PodRequest, granted: GrantedDevices, after: KubeletState | None
) -> PodRequest | None:
    """The request restricted to devices on the NUMA nodes where kubelet will put the pod; None where these devices are
    there.

    kubelet gets no NUMA node of shared GPUs (`purser.core.device.ids.reported_numa_nodes`), so it aligns only CPUs and
    memory. Their NUMA nodes are predicted, and a share is chosen there if there is one. ``after`` is kubelet's state
    once it has admitted the pod with these; None: not known.
    """
    if after is None or _kubelet_aligns_gpus(after):
        return None
    containers = tuple(_restrict_container(node, request.uid, each, after, granted) for each in request.containers)
    return None if containers == request.containers else replace(request, containers=containers)


def _kubelet_aligns_gpus(state: KubeletState) -> bool:
    return any(device.numa_nodes for device in _own_devices(state))


def _restrict_container(
    node: NodeState, uid: str, container: ContainerRequest, after: KubeletState, granted: GrantedDevices
) -> ContainerRequest:
    hint = after.hints.get((uid, container.name))
    if hint is None or hint.mask is None:
        return container
    gpus = (state.device for state in node.devices)
    near = {gpu.uuid for gpu in gpus if not gpu.numa_nodes or mask_of(gpu.numa_nodes) & hint.mask}
    if near.issuperset(granted.get(container.name, ())):
        return container
    allowed = near.intersection(container.devices.uuids_allowed or near)
    return replace(container, devices=replace(container.devices, uuids_allowed=tuple(sorted(allowed)) or ("none",)))
