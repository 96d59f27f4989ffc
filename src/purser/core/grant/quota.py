"""Namespace quotas over GPU memory and compute, as arithmetic over plain values.

Kubernetes counts extended resources itself, but memory and compute of a GPU exist only in the book; so the namespace's
ResourceQuota (``limits.nvidia.com/gpumem`` and ``limits.nvidia.com/gpucores``) is held here. Other vendors' families
have quotas of their own.
"""

from collections.abc import Iterable
from operator import add
from typing import Protocol

import msgspec

from purser.core.model import ContainerGrant, DeviceShare, Grant, PodRequest
from purser.core.pod.phases import HasKind, largest


class HeldShare(Protocol):
    """What a container holds of one device."""

    @property
    def memory_mib(self) -> int:
        """Of its memory."""
        ...

    @property
    def cores_percent(self) -> int:
        """Of its compute."""
        ...


class HoldingContainer(HasKind, Protocol):
    """A container, and what it holds."""

    @property
    def shares(self) -> Iterable[HeldShare]:
        """Of each device."""
        ...


class Demand(msgspec.Struct, frozen=True):
    """What is asked of, or used of, a namespace's quota: summed over all devices."""

    memory_mib: int = 0
    cores_percent: int = 0

    def __add__(self, other: "Demand") -> "Demand":
        return Demand(self.memory_mib + other.memory_mib, self.cores_percent + other.cores_percent)

    def __sub__(self, other: "Demand") -> "Demand":
        return Demand(self.memory_mib - other.memory_mib, self.cores_percent - other.cores_percent)

    def peak(self, other: "Demand") -> "Demand":
        """The larger of the two in each dimension."""
        return Demand(max(self.memory_mib, other.memory_mib), max(self.cores_percent, other.cores_percent))


class QuotaLimits(msgspec.Struct, frozen=True):
    """How much a namespace may use (a quota) or may still take; None: no limit, 0: nothing is left."""

    memory_mib: int | None = None
    cores_percent: int | None = None

    def holds(self, demand: Demand) -> bool:
        """Whether the demand stays within both limits; what is not asked for cannot exceed a limit."""
        return _is_within(demand.memory_mib, self.memory_mib) and _is_within(demand.cores_percent, self.cores_percent)


UNLIMITED = QuotaLimits()


def remaining_quota(hard: QuotaLimits, used: Demand) -> QuotaLimits:
    """What is left of a quota; negative where more is used than the quota now allows."""
    return QuotaLimits(_left(hard.memory_mib, used.memory_mib), _left(hard.cores_percent, used.cores_percent))


def strictest_limits(quotas: Iterable[QuotaLimits]) -> QuotaLimits:
    """Several quotas of one namespace as one: each holds, as the API server's own quota admission has it."""
    held = tuple(quotas)
    return QuotaLimits(_smallest(q.memory_mib for q in held), _smallest(q.cores_percent for q in held))


def grant_demand(grant: Grant) -> Demand:
    """What a grant uses of its namespace's quota: the peak over the pod's phases, as Kubernetes counts pods."""
    return peak_demand(grant.containers)


def peak_demand(containers: Iterable[HoldingContainer]) -> Demand:
    """What a pod's containers, be it of a grant or of the state document, use of its namespace's quota."""
    return largest(((each.kind, _demand(each.shares)) for each in containers), Demand(), add, Demand.peak)


def request_demand(request: PodRequest) -> Demand:
    """What a request would use of its namespace's quota. Memory in percent counts for nothing: it depends on the device
    that is chosen."""
    return peak_demand(
        [
            ContainerGrant(
                each.name,
                each.kind,
                (DeviceShare("", each.devices.memory_mib or 0, each.devices.cores_percent),) * each.devices.count,
            )
            for each in request.containers
        ]
    )


def _demand(shares: Iterable[HeldShare]) -> Demand:
    held = tuple(shares)
    return Demand(sum(share.memory_mib for share in held), sum(share.cores_percent for share in held))


def _is_within(asked: int, limit: int | None) -> bool:
    return limit is None or asked == 0 or asked <= limit


def _left(hard: int | None, used: int) -> int | None:
    return None if hard is None else hard - used


def _smallest(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
