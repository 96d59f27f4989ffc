"""What pods ask of a node's resources, as kube-scheduler counts it. Amounts are in thousandths, whatever the unit."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from purser.core.kubernetes.quantities import quantity_milli
from purser.core.pod.manifest import ContainerKind
from purser.core.pod.phases import largest

Raw = Mapping[str, Any]
Amounts = dict[str, int]


@lru_cache(maxsize=4096)
def _milli(value: str | int | float) -> int:
    return quantity_milli(value)


def amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """Kubernetes quantities as integers."""
    return {name: _milli(value) for name, value in (quantities or {}).items()}


def pod_requests(pod: Raw) -> Amounts:
    """The larger of all app containers and any init container beside the sidecars before it, plus overhead; one pod."""
    spec = pod["spec"]
    asked = [(_init_kind(each), _own_requests(each)) for each in spec.get("initContainers") or ()]
    asked += [(ContainerKind.APP, _own_requests(each)) for each in spec.get("containers") or ()]
    # What the pod asks for as a whole counts instead of what its containers do (1.34).
    together = largest(asked, {}, add, _maximum) | _own_requests(spec)
    return add(add(together, amounts(spec.get("overhead"))), {"pods": 1000})


def priority_of(pod: Raw) -> int:
    """The pod's priority, 0 by default."""
    return int(pod["spec"].get("priority") or 0)


def resource_names(pod: Raw) -> frozenset[str]:
    """Every resource that some container names in its requests or limits."""
    spec = pod["spec"]
    containers: Iterable[Raw] = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    found: set[str] = set()
    for container in containers:
        resources = container.get("resources") or {}
        found.update(resources.get("requests") or (), resources.get("limits") or ())
    return frozenset(found)


def add(left: Amounts, right: Amounts) -> Amounts:
    """Sum by name."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def subtract(left: Amounts, right: Amounts) -> Amounts:
    """Difference by name."""
    return {name: left.get(name, 0) - right.get(name, 0) for name in {**left, **right}}


def _init_kind(container: Raw) -> ContainerKind:
    return ContainerKind.SIDECAR if container.get("restartPolicy") == "Always" else ContainerKind.INIT


def _own_requests(asker: Raw) -> Amounts:
    resources = asker.get("resources") or {}
    # The API server defaults requests from limits; a stand-in that does not must not let pods through for it.
    return amounts(resources.get("limits")) | amounts(resources.get("requests"))


def _maximum(left: Amounts, right: Amounts) -> Amounts:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
