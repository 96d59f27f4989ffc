"""The namespace's ResourceQuotas over GPU memory and compute, raised to what the pod takes where it takes least."""

from collections.abc import Iterable, Iterator

import msgspec

from purser.adapters.quotas import quota_resources
from purser.core.grant.quota import Demand
from purser.core.kubernetes.quantities import QuantityError, QuantityLike, quantity_ceil
from purser.core.placement import Reason
from purser.kube.resource_quotas import ResourceQuota
from purser.scheduler.explaining.changes import ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.trial import Trial

_MAX_DEMANDS = 64
"""Nodes of which it is computed what the pod would use of its quota there."""


def smallest_demand(trial: Trial) -> Demand | None:
    """What the pod takes of its quota where it takes least; None where no quota is in the way, or more than it."""
    request = trial.refused.request
    if request is None or Reason.QUOTA_NOT_FIT not in trial.reasons:
        return None
    resources = quota_resources(request.family)
    named = trial.cluster.quotas(request.namespace)
    with trial.cluster.with_quotas([_without(each, (resources.memory, resources.cores)) for each in named]):
        fits = trial.fits(trial.pod)[:_MAX_DEMANDS]
        demands = {found for name in fits if (found := trial.cluster.demand_on(name, request)) is not None}
    return min(demands, key=lambda each: (each.memory_mib, each.cores_percent), default=None)


def raised_quotas(trial: Trial, demand: Demand | None) -> Iterator[Suggestion]:
    """All of them at once, each as far as it is in the way. ``demand``: what they have to leave."""
    request = trial.refused.request
    if request is None or demand is None:
        return
    resources = quota_resources(request.family)
    used = trial.cluster.quota_used(request)
    needed = {word: resources.spelled(word, used + demand) for word in (resources.memory, resources.cores)}
    named = trial.cluster.quotas(request.namespace)
    raised: dict[str, dict[str, str]] = {}
    for quota in named:
        for word, amount in needed.items():
            if amount is not None and _is_less(quota, word, amount) and _counts(word == resources.memory, demand):
                raised.setdefault(quota.metadata.name, {})[word] = str(amount)
    changed = [_raise_quota(quota, raised[quota.metadata.name]) for quota in named if quota.metadata.name in raised]
    hard = [f"{word}={each[word]} in ResourceQuota {name}" for name, each in raised.items() for word in each]
    with trial.cluster.with_quotas(changed):
        text = f"the namespace's quota allows {', '.join(hard)}"
        yield from trial.suggest_if_it_fits(ChangeKind.QUOTA, text, SuggestedChange(quotas=raised), trial.pod)


def _without(quota: ResourceQuota, words: Iterable[str]) -> ResourceQuota:
    gone = frozenset(words)
    return _with_hard(quota, {word: amount for word, amount in quota.spec.hard.items() if word not in gone})


def _raise_quota(quota: ResourceQuota, hard: dict[str, str]) -> ResourceQuota:
    return _with_hard(quota, {**quota.spec.hard, **hard})


def _with_hard(quota: ResourceQuota, hard: dict[str, QuantityLike]) -> ResourceQuota:
    return msgspec.structs.replace(quota, spec=msgspec.structs.replace(quota.spec, hard=hard))


def _is_less(quota: ResourceQuota, word: str, amount: int) -> bool:
    try:
        return word in quota.spec.hard and quantity_ceil(quota.spec.hard[word]) < amount
    except QuantityError:
        return False


def _counts(is_memory: bool, demand: Demand) -> bool:
    """What is not asked for exceeds no limit."""
    return bool(demand.memory_mib if is_memory else demand.cores_percent)
