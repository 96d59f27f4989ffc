"""What the pages show of quotas that are in the way of waiting pods: how much of each is held, and by which pods."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from purser.adapters.quotas import quota_resources
from purser.core.grant.quota import Demand, peak_demand
from purser.core.model import WHOLE_PERCENT
from purser.core.placement import Reason
from purser.core.state import ClusterState, StateGrant, StateQuota, StateWaiting
from purser.core.vendors.catalogue import FAMILIES
from purser.web.tables import HeldAmount, ReasonGroup

MAX_HOLDERS = 3
"""Pods that are named of those that hold a part of a quota; the page says how many others there are."""
MAX_QUOTAS = 50
"""Limits that are shown of those in the way of one group of pods."""


@dataclass(frozen=True)
class QuotaHolder:
    """A pod that holds a part of a quota."""

    namespace: str
    pod: str
    amount: int
    """In the quota's units."""


@dataclass(frozen=True)
class QuotaRow:
    """A limit of a quota."""

    quota: StateQuota
    unit: str
    """What follows its amounts; empty: they are in the vendor's own."""
    holders: Sequence[QuotaHolder]
    """Those that hold most."""
    others: int
    """How many more pods hold some."""

    @property
    def amount(self) -> HeldAmount:
        """What is held of the limit."""
        return HeldAmount(self.quota.held, max(self.quota.limit, 0))


@dataclass(frozen=True)
class QuotasInTheWay:
    """The quotas of the namespaces of some waiting pods, as far as pods wait for them."""

    rows: Sequence[QuotaRow] = ()
    """Those of which most is held come first."""
    total: int = 0
    """How many there are, shown or not."""
    unknown: Sequence[str] = ()
    """Namespaces whose quotas are in the way, and of which nothing is known."""


_FAMILIES = frozenset(family.resource for family in FAMILIES)
_Held = Mapping[tuple[str, str], Sequence[tuple[StateGrant, Demand]]]
"""By namespace and family of devices: what each pod holds."""


def waits_for_quota(pod: StateWaiting) -> bool:
    """Whether a quota is among the reasons of a waiting pod."""
    return pod.reason == Reason.QUOTA_NOT_FIT or any(each.reason == Reason.QUOTA_NOT_FIT for each in pod.reasons)


def quotas_of_groups(state: ClusterState, groups: Iterable[ReasonGroup]) -> list[QuotasInTheWay]:
    """For each group of waiting pods, the quotas in their way."""
    found = [{pod.namespace for pod in group.pods if waits_for_quota(pod)} for group in groups]
    rows = _rows(state, set[str]().union(*found))
    return [_of_namespaces(namespaces, rows) for namespaces in found]


def quotas_of_pod(state: ClusterState, pod: StateWaiting) -> QuotasInTheWay:
    """The quotas in the way of a waiting pod."""
    (found,) = quotas_of_groups(state, [ReasonGroup(pod.reason, [pod])])
    return found


def _of_namespaces(namespaces: Collection[str], rows: Mapping[str, Sequence[QuotaRow]]) -> QuotasInTheWay:
    found = sorted((row for name in namespaces for row in rows[name]), key=_fullest_first)
    unknown = sorted(name for name in namespaces if not rows[name])
    return QuotasInTheWay(found[:MAX_QUOTAS], len(found), unknown)


def _fullest_first(row: QuotaRow) -> tuple[float, str, str, str]:
    quota, amount = row.quota, row.amount
    part = amount.held / amount.total if amount.total else float("inf")
    return -part, quota.namespace, quota.quota, quota.resource


def _rows(state: ClusterState, namespaces: Collection[str]) -> Mapping[str, Sequence[QuotaRow]]:
    """By namespace."""
    rows: dict[str, list[QuotaRow]] = {name: [] for name in namespaces}
    if not namespaces:
        return rows  # nothing is looked for among all pods
    held = _held(state, namespaces)
    for quota in state.quotas:
        if quota.namespace in rows:
            rows[quota.namespace].append(_row(quota, held.get((quota.namespace, quota.family), ())))
    return rows


def _held(state: ClusterState, namespaces: Collection[str]) -> _Held:
    families = {gpu.uuid: gpu.resource for node in state.nodes for gpu in node.gpus if gpu.resource in _FAMILIES}
    found: dict[tuple[str, str], list[tuple[StateGrant, Demand]]] = {}
    for grant in state.grants:
        if grant.namespace in namespaces:
            shares = (share.gpu for part in grant.containers for share in part.shares)
            family = families.get(next(shares, ""), "")  # a pod has devices of one
            found.setdefault((grant.namespace, family), []).append((grant, peak_demand(grant.containers)))
    return found


def _percent_sign(per_device: int) -> str:
    return "%" if per_device == WHOLE_PERCENT else ""


def _row(quota: StateQuota, held: Iterable[tuple[StateGrant, Demand]]) -> QuotaRow:
    words = quota_resources(quota.family) if quota.family in {"", *_FAMILIES} else None
    if words is None or quota.resource not in (words.memory, words.cores):
        return QuotaRow(quota, "", (), 0)  # of a scheduler that knows more
    units = {words.memory: " MiB" if words.unit_mib == 1 else "", words.cores: _percent_sign(words.per_device)}
    amounts = ((grant, words.spelled(quota.resource, demand) or 0) for grant, demand in held)
    holders = [QuotaHolder(grant.namespace, grant.pod, amount) for grant, amount in amounts if amount]
    most = nsmallest(MAX_HOLDERS, holders, key=lambda each: (-each.amount, each.pod))
    return QuotaRow(quota, units.get(quota.resource, ""), most, len(holders) - len(most))
