"""Would the node's kubelet take the pod, and with the devices that it is to be granted?

kubelet decides by rules of its own, and what it refuses is lost: it never tries again. So its admission is run ahead
(`purser.core.kubelet`), answered as Purser's agent will answer it. Where kubelet would go for other devices than the
grant's, the choice is made anew among those.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import permutations
from typing import TypeVar

import msgspec

from purser.core import device_ids
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import Allocate, Ask, Outcome, PreferredAllocation
from purser.core.kubelet.asks import Refusal as KubeletRefusal
from purser.core.kubelet.state import Node, NodeState
from purser.core.model import ContainerRequest, PodRequest
from purser.core.names import GPU_RESOURCE
from purser.core.outlook import Arrival, Outlook
from purser.core.placement.reasons import Reason, Refusal

MAX_ARRIVALS = 2
"""Pods on their way to one kubelet among which another one may go: it must fit whichever kubelet takes first, and the
orders grow fast."""

Granted = Mapping[str, tuple[str, ...]]
"""By container, the uuids of its devices."""


class Diverted(msgspec.Struct, frozen=True):
    """kubelet would go for other devices than the container was granted."""

    container: str
    available: frozenset[str]
    """uuids of the devices that it would choose from."""
    required: frozenset[str]
    """uuids of those that it would take whatever it is told."""


Foreseen = Outcome | KubeletRefusal | Diverted

Choice = TypeVar("Choice")


def settle(
    outlook: Outlook,
    request: PodRequest,
    choose: Callable[[PodRequest], Choice | Refusal],
    granted: Callable[[Choice], Granted],
) -> Choice | Refusal:
    """A choice of devices with which the node's kubelet takes the pod, or why there is none.

    ``choose`` chooses for the request as kubelet narrows it: fewer devices allowed, some of them required. ``granted``
    says what a choice means.
    """
    choice = choose(request)
    if request.kubelet_pod is None or isinstance(choice, Refusal):
        return choice
    if len(outlook.arrivals) > MAX_ARRIVALS:
        return _busy(outlook)
    while True:
        arrival = Arrival(request.kubelet_pod, granted(choice))
        foreseen = foresee(outlook.node, outlook.state, (*outlook.arrivals, arrival))
        match foreseen:
            case KubeletRefusal():
                return _refused(outlook, foreseen)
            case Diverted():
                narrowed = _narrowed(request, foreseen)
                choice = choose(narrowed)
                if narrowed == request or isinstance(choice, Refusal):
                    return _diverted(outlook, foreseen)
                request = narrowed
            case Outcome():
                return choice if _holds_in_any_order(outlook, arrival) else _busy(outlook)


def foresee(node: Node, state: NodeState, order: Sequence[Arrival]) -> Foreseen:
    """What becomes of pods that kubelet takes one after another: the first bad end, which ends it."""
    for arrival in order:
        foreseen = _admit(node, state, arrival)
        if not isinstance(foreseen, Outcome):
            return foreseen
        if foreseen.refusal is not None:
            return foreseen.refusal
        state = foreseen.state
    return Outcome(state)


def _holds_in_any_order(outlook: Outlook, arrival: Arrival) -> bool:
    """kubelet takes pods that come to it together by their age, not in the order in which they were bound."""
    orders = permutations((*outlook.arrivals, arrival))
    next(orders)  # the one that was looked at
    return all(isinstance(foresee(outlook.node, outlook.state, order), Outcome) for order in orders)


def _admit(node: Node, state: NodeState, arrival: Arrival) -> Outcome | Diverted:
    admission = admit(node, state, arrival.pod, None)
    try:
        ask = next(admission)
        while True:
            answer = _answer(ask, arrival)
            if isinstance(answer, Diverted):
                return answer
            ask = admission.send(answer)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def _answer(ask: Ask, arrival: Arrival) -> tuple[str, ...] | bytes | Diverted:
    """What the agent will answer; for other plugins' devices kubelet is left to itself."""
    if ask.resource != GPU_RESOURCE:
        return () if isinstance(ask, PreferredAllocation) else b""
    container = ask.container[1]
    granted = arrival.granted.get(container, ())
    if isinstance(ask, Allocate):
        taken = device_ids.uuids_of(ask.device_ids)
        return b"" if Counter(taken) == Counter(granted) else Diverted(container, frozenset(taken), frozenset(taken))
    return _preferred(ask, container, granted)


def _preferred(ask: PreferredAllocation, container: str, granted: Collection[str]) -> tuple[str, ...] | Diverted:
    required = device_ids.uuids_of(ask.must_include)
    available = frozenset(map(device_ids.uuid_of, ask.available))
    if not (set(required) <= set(granted) <= available and len(granted) == ask.size):
        return Diverted(container, available, frozenset(required))
    ranked = (*sorted(ask.must_include, key=device_ids.id_order), *sorted(ask.available, key=device_ids.id_order))
    first = {device_ids.uuid_of(id_): id_ for id_ in reversed(ranked)}
    return tuple(first[uuid] for uuid in granted)


def _narrowed(request: PodRequest, diverted: Diverted) -> PodRequest:
    containers = tuple(
        _narrowed_container(container, diverted) if container.name == diverted.container else container
        for container in request.containers
    )
    return msgspec.structs.replace(request, containers=containers)


def _narrowed_container(container: ContainerRequest, diverted: Diverted) -> ContainerRequest:
    devices = container.devices
    allowed = diverted.available.intersection(devices.uuids_allowed or diverted.available)
    narrowed = msgspec.structs.replace(
        devices,
        # No device at all must not read as any device.
        uuids_allowed=tuple(sorted(allowed)) or ("none",),
        uuids_required=tuple(sorted(diverted.required)),
    )
    return msgspec.structs.replace(container, devices=narrowed)


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


def _numa_nodes(state: NodeState, uuids: Collection[str]) -> Iterator[int]:
    resource = state.devices.resources.get(GPU_RESOURCE)
    for device in resource.devices.values() if resource else ():
        if device_ids.uuid_of(device.id) in uuids:
            yield from device.numa_nodes or ()


def _busy(outlook: Outlook) -> Refusal:
    """For a second or so: until the node's agent tells that kubelet took them."""
    count = len(outlook.arrivals)
    pods = "a pod is" if count == 1 else f"{count} pods are"
    return _refusal(f"{pods} on the way to it, and which it takes first would decide whether this one can run")
