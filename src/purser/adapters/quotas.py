"""ResourceQuotas over GPU memory and compute: what the kernel cannot see and kube-apiserver does not count.

Two places of ``spec.hard`` are read: ``limits.nvidia.com/gpumem`` (MiB) and ``limits.nvidia.com/gpucores`` (percent);
and of each family of other vendors' devices the two of its own resources, such as ``limits.hygon.com/dcumem``, in the
family's units. An explicit 0 blocks. Scopes are not looked at: a quota that names these resources means all pods of its
namespace.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec
import structlog

from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, remaining_quota, strictest_limits
from purser.core.kubernetes.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.core.model import WHOLE_PERCENT
from purser.core.state import StateQuota
from purser.core.vendors.catalogue import FAMILIES
from purser.core.vendors.family import DeviceFamily, SoftSplit
from purser.kube.resource_quotas import ResourceQuota
from purser.kube.resources import key_of

MEMORY = "limits.nvidia.com/gpumem"
CORES = "limits.nvidia.com/gpucores"


class QuotaResources(msgspec.Struct, frozen=True):
    """How quotas name what a family has."""

    memory: str = MEMORY
    unit_mib: int = 1
    cores: str = CORES
    per_device: int = WHOLE_PERCENT
    """How much compute a whole device has."""

    def limits(self, quota: "ResourceQuota") -> QuotaLimits:
        """What a quota allows."""
        memory, cores = _limit(quota, self.memory), _limit(quota, self.cores)
        return QuotaLimits(
            None if memory is None else memory * self.unit_mib,
            None if cores is None else cores * WHOLE_PERCENT // self.per_device,
        )

    def spelled(self, resource: str, amounts: Demand | QuotaLimits) -> int | None:
        """An amount of one of the two resources, as quotas have it."""
        if resource == self.memory:
            return None if amounts.memory_mib is None else -(-amounts.memory_mib // self.unit_mib)
        return None if amounts.cores_percent is None else -(-amounts.cores_percent * self.per_device // WHOLE_PERCENT)


def _resources(family: DeviceFamily) -> QuotaResources:
    memory, cores = family.memory, family.cores or family.soft_split
    named = "" if cores is None else cores.cores if isinstance(cores, SoftSplit) else cores.resource
    return QuotaResources(
        f"limits.{memory.resource}" if memory else "",
        memory.unit_mib if memory else 1,
        f"limits.{named}" if named else "",
        family.cores.per_device if family.cores else WHOLE_PERCENT,
    )


_RESOURCES = {"": QuotaResources(), **{family.resource: _resources(family) for family in FAMILIES}}
"""By family, as `purser.core.model.DeviceShare.family` names it."""
_FAMILY_OF_WORD = {word: family for family, named in _RESOURCES.items() for word in (named.memory, named.cores) if word}

log = structlog.get_logger("purser.adapters")


def quota_resources(family: str) -> QuotaResources:
    """How quotas name what a family has (`purser.core.model.PodRequest.family`)."""
    return _RESOURCES[family]


def kept_limits(quota: ResourceQuota) -> dict[str, str]:
    """Which limits of a quota Purser keeps; by resource the family of devices."""
    return {word: _FAMILY_OF_WORD[word] for word in quota.spec.hard if word in _FAMILY_OF_WORD}


def used_amounts(quota: ResourceQuota, usage: Callable[[str], Demand]) -> dict[str, int]:
    """How much of each limit that Purser keeps is used, in the quota's units. ``usage``: what the namespace uses of a
    family of devices."""
    found = {word: _RESOURCES[family].spelled(word, usage(family)) for word, family in kept_limits(quota).items()}
    return {word: amount for word, amount in found.items() if amount is not None}


class Quotas:
    """The quotas of all namespaces that have any."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Mapping[str, QuotaLimits]]] = {}
        """By namespace, quota and family."""

    def put(self, quota: ResourceQuota) -> None:
        """Take a quota as it now is."""
        found = {family: _RESOURCES[family].limits(quota) for family in kept_limits(quota).values()}
        if limits := {family: each for family, each in found.items() if each != UNLIMITED}:
            self._by_namespace.setdefault(quota.metadata.namespace, {})[quota.metadata.name] = limits
        else:
            self.remove(quota)

    def remove(self, quota: ResourceQuota) -> None:
        """Forget a quota."""
        named = self._by_namespace.get(quota.metadata.namespace, {})
        named.pop(quota.metadata.name, None)
        if not named:
            self._by_namespace.pop(quota.metadata.namespace, None)

    def of(self, namespace: str, family: str = "") -> QuotaLimits:
        """All of a namespace's quotas over a family's devices as one."""
        named = self._by_namespace.get(namespace)
        return strictest_limits(limits.get(family, UNLIMITED) for limits in named.values()) if named else UNLIMITED

    @property
    def namespaces(self) -> Collection[str]:
        """Those that have any."""
        return tuple(self._by_namespace)

    def documents(self, namespace: str, usage: Callable[[str], Demand]) -> Iterator[StateQuota]:
        """Each limit of a namespace, by name of its quota and by resource. ``usage``: as `used_amounts` has it."""
        for name, by_family in sorted(self._by_namespace.get(namespace, {}).items()):
            found = [
                StateQuota(namespace, name, resource, family, held, limit)
                for family, hard in by_family.items()
                for resource in (_RESOURCES[family].memory, _RESOURCES[family].cores)
                if resource
                and (limit := _RESOURCES[family].spelled(resource, hard)) is not None
                and (held := _RESOURCES[family].spelled(resource, usage(family))) is not None
            ]
            yield from sorted(found, key=lambda each: each.resource)

    def exceeded(self, namespace: str, family: str, asked: Demand, used: Demand) -> str:
        """Which quota of a namespace does not hold what is asked beside what is used, in kube-apiserver's own words for
        the resources that it counts itself; the first by name, empty where all hold it."""
        words = _RESOURCES[family]
        quotas = sorted(self._by_namespace.get(namespace, {}).items())
        named = ((name, limits.get(family, UNLIMITED)) for name, limits in quotas)
        name, hard = next(((n, h) for n, h in named if not remaining_quota(h, used).holds(asked)), ("", UNLIMITED))
        if not name:
            return ""
        left = remaining_quota(hard, used)
        over = [
            resource
            for resource, demand, limit in (
                (words.memory, asked.memory_mib, left.memory_mib),
                (words.cores, asked.cores_percent, left.cores_percent),
            )
            if limit is not None and demand > max(limit, 0)
        ]
        amounts = (
            f"{word}: {','.join(f'{resource}={words.spelled(resource, each)}' for resource in over)}"
            for word, each in (("requested", asked), ("used", used), ("limited", hard))
        )
        return f"exceeded quota: {name}, {', '.join(amounts)}"


def _limit(quota: ResourceQuota, resource: str) -> int | None:
    hard: Mapping[str, QuantityLike] = quota.spec.hard
    if resource not in hard:
        return None
    try:
        return quantity_ceil(hard[resource])
    except QuantityError as error:
        log.warning(
            "A quota's limit is invalid, so it is ignored", quota=key_of(quota), resource=resource, error=str(error)
        )
        return None
