"""ResourceQuotas over GPU memory and compute: what the kernel cannot see and kube-apiserver does not count.

Two places of ``spec.hard`` are read: ``limits.nvidia.com/gpumem`` (MiB) and ``limits.nvidia.com/gpucores`` (percent).
An explicit 0 blocks. Scopes are not looked at: a quota that names these resources means all pods of its namespace.
"""

from collections.abc import Mapping

import msgspec
import structlog

from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, remaining, strictest
from purser.core.kubernetes.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.kube.objects import ObjectMeta
from purser.kube.resources import Resource, key_of

MEMORY = "limits.nvidia.com/gpumem"
CORES = "limits.nvidia.com/gpucores"

log = structlog.get_logger("purser.scheduler")


class ResourceQuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The limits of a namespace."""

    hard: dict[str, QuantityLike] = {}


class ResourceQuota(msgspec.Struct, frozen=True, rename="camel"):
    """A namespace's quota, as far as it is read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()


RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)


class Quotas:
    """The quotas of all namespaces that have any."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, QuotaLimits]] = {}

    def put(self, quota: ResourceQuota) -> None:
        """Take a quota as it now is."""
        limits = _limits(quota)
        if limits == UNLIMITED:
            self.remove(quota)
        else:
            self._by_namespace.setdefault(quota.metadata.namespace, {})[quota.metadata.name] = limits

    def remove(self, quota: ResourceQuota) -> None:
        """Forget a quota."""
        named = self._by_namespace.get(quota.metadata.namespace, {})
        named.pop(quota.metadata.name, None)
        if not named:
            self._by_namespace.pop(quota.metadata.namespace, None)

    def of(self, namespace: str) -> QuotaLimits:
        """All of a namespace's quotas as one."""
        named = self._by_namespace.get(namespace)
        return strictest(named.values()) if named else UNLIMITED

    def exceeded(self, namespace: str, asked: Demand, used: Demand) -> str:
        """Which quota of a namespace does not hold what is asked beside what is used, in kube-apiserver's own words for
        the resources that it counts itself; the first by name, empty where all hold it."""
        named = sorted(self._by_namespace.get(namespace, {}).items())
        name, hard = next(((n, h) for n, h in named if not remaining(h, used).holds(asked)), ("", UNLIMITED))
        if not name:
            return ""
        left = remaining(hard, used)
        over = [
            resource
            for resource, demand, limit in (
                (MEMORY, asked.memory_mib, left.memory_mib),
                (CORES, asked.cores_percent, left.cores_percent),
            )
            if limit is not None and demand > max(limit, 0)
        ]
        amounts = (
            f"{word}: {','.join(f'{resource}={_of(resource, each)}' for resource in over)}"
            for word, each in (("requested", asked), ("used", used), ("limited", hard))
        )
        return f"exceeded quota: {name}, {', '.join(amounts)}"


def _of(resource: str, amounts: Demand | QuotaLimits) -> int | None:
    return amounts.memory_mib if resource == MEMORY else amounts.cores_percent


def _limits(quota: ResourceQuota) -> QuotaLimits:
    return QuotaLimits(_limit(quota, MEMORY), _limit(quota, CORES))


def _limit(quota: ResourceQuota, resource: str) -> int | None:
    hard: Mapping[str, QuantityLike] = quota.spec.hard
    if resource not in hard:
        return None
    try:
        return quantity_ceil(hard[resource])
    except QuantityError as error:
        log.warning("A quota's limit is invalid and ignored", quota=key_of(quota), resource=resource, error=str(error))
        return None
