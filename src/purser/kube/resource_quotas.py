"""ResourceQuotas, as far as they are read."""

from purser.core.kubernetes.quantities import QuantityLike
from purser.kube.objects import ObjectMeta, Slim
from purser.kube.resources import Resource


class ResourceQuotaSpec(Slim, frozen=True, gc=False):
    """The limits of a namespace."""

    hard: dict[str, QuantityLike] = {}


class ResourceQuotaStatus(Slim, frozen=True, gc=False):
    """What is used of them."""

    used: dict[str, QuantityLike] = {}


class ResourceQuota(Slim, frozen=True, gc=False):
    """A namespace's quota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)
