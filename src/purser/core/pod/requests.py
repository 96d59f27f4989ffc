"""How much of a node's CPU and memory a pod takes, as kube-scheduler counts it."""

from collections.abc import Mapping
from operator import add

import msgspec

from purser.core.kubernetes.quantities import quantity_mib, quantity_milli
from purser.core.pod.manifest import PodManifest
from purser.core.pod.phases import largest

MAX_CONTAINER_REQUEST = 1 << 30
"""Millicores, or MiB, that one container counts for: more than any node has, and no sum leaves the arrays' integers."""


class EffectiveRequests(msgspec.Struct, frozen=True, gc=False):
    """CPU and memory of a whole pod."""

    cpu_milli: int = 0
    memory_mib: int = 0

    def __add__(self, other: "EffectiveRequests") -> "EffectiveRequests":
        return EffectiveRequests(self.cpu_milli + other.cpu_milli, self.memory_mib + other.memory_mib)

    def __sub__(self, other: "EffectiveRequests") -> "EffectiveRequests":
        return EffectiveRequests(self.cpu_milli - other.cpu_milli, self.memory_mib - other.memory_mib)

    def peak(self, other: "EffectiveRequests") -> "EffectiveRequests":
        """The larger of the two in each dimension."""
        return EffectiveRequests(max(self.cpu_milli, other.cpu_milli), max(self.memory_mib, other.memory_mib))


def pod_resources(spec: PodManifest) -> EffectiveRequests:
    """The most that a pod asks for at any time, and its overhead.

    What counts is the request, which is the limit where only that is given. CPU is rounded up to thousandths; memory to
    bytes, and then down to MiB, container by container. Resizes under way are not looked at. Raises
    `purser.core.kubernetes.quantities.QuantityError`.
    """
    asked = ((each.kind, _read({**each.limits, **each.requests})) for each in spec.containers)
    of_containers = largest(asked, EffectiveRequests(), add, EffectiveRequests.peak)
    whole = _read(spec.requests)
    together = EffectiveRequests(
        whole.cpu_milli if "cpu" in spec.requests else of_containers.cpu_milli,
        whole.memory_mib if "memory" in spec.requests else of_containers.memory_mib,
    )
    return together + _read(spec.overhead)


def _read(amounts: Mapping[str, str]) -> EffectiveRequests:
    return EffectiveRequests(
        _bounded(quantity_milli(amounts.get("cpu", "0"))), _bounded(quantity_mib(amounts.get("memory", "0")))
    )


def _bounded(amount: int) -> int:
    return max(0, min(amount, MAX_CONTAINER_REQUEST))
