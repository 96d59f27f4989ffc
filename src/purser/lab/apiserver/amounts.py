"""Lists of resources (`v1.ResourceList`): amounts as canonical quantities by name, and what a pod's come to. Pure.

Source of the rules: k8s.io/component-helpers/resource.
"""

from collections.abc import Callable, Mapping

from . import quantity
from .errors import Obj

Amounts = Mapping[str, str]

POD_LEVEL = ("cpu", "memory")
_HUGE_PAGES = "hugepages-"


def is_extended(name: str) -> bool:
    """Whether it is a resource of a device plugin, as `nvidia.com/gpu`, and none of Kubernetes' own."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def is_huge_pages(name: str) -> bool:
    """Huge pages of one size."""
    return name.startswith(_HUGE_PAGES)


def is_pod_level(name: str) -> bool:
    """Whether a pod as a whole may ask for it."""
    return name in POD_LEVEL or is_huge_pages(name)


def add(left: Amounts, right: Amounts) -> dict[str, str]:
    """Sum by name."""
    return _join(left, right, quantity.added)


def subtract(left: Amounts, right: Amounts) -> dict[str, str]:
    """Difference by name."""
    return _join(left, right, quantity.subtracted)


def _join(left: Amounts, right: Amounts, join: Callable[[str, str], str]) -> dict[str, str]:
    return {name: join(left.get(name, "0"), right.get(name, "0")) for name in {**left, **right}}


def _largest(left: Amounts, right: Amounts) -> dict[str, str]:
    more = {name: amount for name, amount in right.items() if name not in left or exceeds(amount, left[name])}
    return {**left, **more}


def exceeds(amount: str, limit: str) -> bool:
    """Whether an amount is above a limit."""
    return quantity.parse(amount) > quantity.parse(limit)


def of_container(container: Obj, kind: str) -> dict[str, str]:
    """Its own. ``kind``: `requests` or `limits`."""
    return (container.get("resources") or {}).get(kind) or {}


def of_containers(spec: Obj, kind: str) -> dict[str, str]:
    """The most that containers take together: init containers one by one, beside the sidecars before them."""
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        beside = add(sidecars, of_container(container, kind))
        most = _largest(most, beside)
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    together = sidecars
    for container in spec.get("containers") or ():
        together = add(together, of_container(container, kind))
    return _largest(together, most)


def of_pod(spec: Obj, kind: str) -> dict[str, str]:
    """What its containers take together, or the pod as a whole where it says so; without overhead."""
    whole = {name: amount for name, amount in of_container(spec, kind).items() if is_pod_level(name)}
    return {**of_containers(spec, kind), **whole}
