"""kube-scheduler's filters, asked again of one pod and one node: the first that refuses, in its order.

The rules of the plugins NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit and, of volumes
that are bound, VolumeBinding; for those about other pods see ``neighbours``. Amounts are whole numbers: thousandths of
a CPU, bytes, pieces of all else.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from purser.core.dialects import WORDS
from purser.core.explaining.reasons import FilterReason
from purser.core.kubernetes.affinity import NO_AFFINITY, NodeTerms, RequiredAffinity
from purser.core.kubernetes.quantities import MAX_VALUE, QuantityLike, quantity_ceil, quantity_milli
from purser.core.kubernetes.taints import CORDON, PodToleration, Taint, untolerated_taints
from purser.core.pod.manifest import PodManifest
from purser.core.pod.phases import largest

Amounts = Mapping[str, int]
"""By resource."""

PODS = "pods"


class HostPort(msgspec.Struct, frozen=True, order=True):
    """A port of a node that a container has to itself."""

    port: int
    protocol: str = "TCP"
    address: str = ""
    """Empty: all of the node's."""

    def conflicts(self, other: "HostPort") -> bool:
        """Whether both cannot be had."""
        wildcards = {"", "0.0.0.0"}
        same_address = self.address == other.address or bool({self.address, other.address} & wildcards)
        return (self.port, self.protocol) == (other.port, other.protocol) and same_address


class FilteredNode(msgspec.Struct, frozen=True):
    """What filters read of a node."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    is_cordoned: bool = False
    allocatable: Amounts = {}


class PodNeeds(msgspec.Struct, frozen=True):
    """What filters read of the pod that is to be placed."""

    amounts: Amounts = {}
    node_selector: Mapping[str, str] = {}
    tolerations: tuple[PodToleration, ...] = ()
    affinity: RequiredAffinity = NO_AFFINITY
    ports: frozenset[HostPort] = frozenset()
    volumes: tuple[tuple[str, NodeTerms], ...] = ()
    """PersistentVolumes, and where each is available."""


class KubeletListing(StrEnum):
    """What a node's allocatable amounts say of a device's resource."""

    SOME = ""
    """kubelet has some of it, in use or not."""
    ZERO = "zero"
    """kubelet keeps the name with 0: its device plugin has gone, or offers no healthy device any more."""
    ABSENT = "absent"
    """No device plugin has listed it since the node has been there."""


class FilterRejection(msgspec.Struct, frozen=True):
    """Why kube-scheduler keeps a pod from a node. Equal ones are counted together, but for what is free."""

    reason: FilterReason
    about: str = ""
    """The taint, label or resource."""
    asked: int = 0
    free: int = 0
    listing: KubeletListing = KubeletListing.SOME
    instead: tuple[str, ...] = ()
    """Devices of the same vendor that the node has under other names."""


def first_rejection(
    needs: PodNeeds, node: FilteredNode, used: Amounts, ports: Iterable[HostPort] = ()
) -> FilterRejection | None:
    """What the first filter that refuses has to say; None where all let the pod pass. ``used`` and ``ports`` are what
    pods take of the node."""
    return next(all_rejections(needs, node, used, ports), None)


def all_rejections(
    needs: PodNeeds, node: FilteredNode, used: Amounts, ports: Iterable[HostPort] = ()
) -> Iterator[FilterRejection]:
    """What each filter that refuses has to say, in their order; of taints and resources each one."""
    if node.is_cordoned and untolerated_taints((CORDON,), needs.tolerations):
        yield FilterRejection(FilterReason.UNSCHEDULABLE)
    for taint in untolerated_taints(node.taints, needs.tolerations):
        yield FilterRejection(FilterReason.TAINT, str(taint))
    lacking = [(key, value) for key, value in sorted(needs.node_selector.items()) if node.labels.get(key) != value]
    if lacking:
        yield FilterRejection(FilterReason.SELECTOR, ", ".join(f"{key}={value}" for key, value in lacking))
    if needs.affinity.nodes is not None and not needs.affinity.nodes.matches(node.name, node.labels):
        yield FilterRejection(FilterReason.AFFINITY, needs.affinity.nodes.words())
    for taken in ports if needs.ports else ():
        for port in sorted(needs.ports):
            if port.conflicts(taken):
                yield FilterRejection(FilterReason.PORTS, f"{port.port}/{port.protocol}")
    yield from _missing_resources(needs.amounts, node.allocatable, used)
    for name, where in needs.volumes:
        if not where.matches(node.name, node.labels):
            yield FilterRejection(FilterReason.VOLUME, name)


def _missing_resources(asked: Amounts, allocatable: Amounts, used: Amounts) -> Iterator[FilterRejection]:
    for resource, amount in asked.items():
        free = allocatable.get(resource, 0) - used.get(resource, 0)
        if amount > 0 and amount > free:
            if resource == PODS:
                yield FilterRejection(FilterReason.PODS, resource, amount, max(free, 0))
                continue
            listing = _listing(resource, allocatable)
            instead = () if listing is KubeletListing.SOME else _same_vendor_resources(resource, allocatable)
            yield FilterRejection(FilterReason.RESOURCES, resource, amount, max(free, 0), listing, instead)


def _listing(resource: str, allocatable: Amounts) -> KubeletListing:
    if "/" not in resource or allocatable.get(resource):
        return KubeletListing.SOME
    if resource not in allocatable:
        return KubeletListing.ABSENT
    # Of amounts that agents list there may be none left, which is a shortage like any other.
    return KubeletListing.SOME if resource in WORDS else KubeletListing.ZERO


def _same_vendor_resources(resource: str, allocatable: Amounts) -> tuple[str, ...]:
    vendor = resource.partition("/")[0]
    listed = (name for name, amount in allocatable.items() if amount and name.startswith(f"{vendor}/"))
    return tuple(sorted(name for name in listed if name not in WORDS))  # amounts are no devices


def requested_amounts(spec: PodManifest) -> dict[str, int]:
    """What a pod takes of its node, as kube-scheduler counts it: itself, and of each resource the most that it requests
    at any time, and its overhead; the limit where there is no request. Raises
    `purser.core.kubernetes.quantities.QuantityError`."""
    asked = ((each.kind, amounts_of({**each.limits, **each.requests})) for each in spec.containers)
    of_containers: dict[str, int] = largest(asked, {}, _sum, _maximum)
    return {PODS: 1, **_sum(of_containers | amounts_of(spec.requests), amounts_of(spec.overhead))}


def amounts_of(quantities: Mapping[str, QuantityLike]) -> dict[str, int]:
    """Quantities as whole numbers. Raises `purser.core.kubernetes.quantities.QuantityError`."""
    return {
        resource: quantity_milli(quantity) if resource == "cpu" else quantity_ceil(quantity)
        for resource, quantity in quantities.items()
    }


def summed_amounts(parts: Iterable[Amounts]) -> dict[str, int]:
    """What several pods take together."""
    total: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.items():
            total[resource] = min(total.get(resource, 0) + amount, MAX_VALUE)
    return total


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return summed_amounts((one, other))


def _maximum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (*one, *(n for n in other if n not in one))}
