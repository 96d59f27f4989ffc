"""ResourceQuotas over GPU memory and compute: what the kernel cannot see and kube-apiserver does not count.

Two places of ``spec.hard`` are read: ``limits.nvidia.com/gpumem`` (MiB) and ``limits.nvidia.com/gpucores`` (percent).
An explicit 0 blocks. Scopes are not looked at: a quota that names these resources means all pods of its namespace.
"""

from collections.abc import Mapping

import msgspec
import structlog

from purser.core.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.core.quota import UNLIMITED, Room, strictest
from purser.kube.objects import ObjectMeta
from purser.kube.resources import Resource

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
        self._by_namespace: dict[str, dict[str, Room]] = {}

    def put(self, quota: ResourceQuota) -> None:
        """Take a quota as it now is."""
        room = _room(quota)
        if room == UNLIMITED:
            self.remove(quota)
        else:
            self._by_namespace.setdefault(quota.metadata.namespace, {})[quota.metadata.name] = room

    def remove(self, quota: ResourceQuota) -> None:
        """Forget a quota."""
        named = self._by_namespace.get(quota.metadata.namespace, {})
        named.pop(quota.metadata.name, None)
        if not named:
            self._by_namespace.pop(quota.metadata.namespace, None)

    def of(self, namespace: str) -> Room:
        """All of a namespace's quotas as one."""
        return strictest(self._by_namespace.get(namespace, {}).values())


def _room(quota: ResourceQuota) -> Room:
    return Room(_limit(quota, MEMORY), _limit(quota, CORES))


def _limit(quota: ResourceQuota, resource: str) -> int | None:
    hard: Mapping[str, QuantityLike] = quota.spec.hard
    if resource not in hard:
        return None
    try:
        return quantity_ceil(hard[resource])
    except QuantityError as error:
        where = f"{quota.metadata.namespace}/{quota.metadata.name}"
        log.warning("A quota cannot be read and does not count", quota=where, resource=resource, error=str(error))
        return None
