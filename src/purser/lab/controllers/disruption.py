"""The disruption controller: how many pods each PodDisruptionBudget can spare, in its status."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from purser.kube.client import Client
from purser.kube.clock import SystemClock
from purser.kube.errors import ConflictError, NotFoundError
from purser.kube.informer import Informer
from purser.kube.resources import Raw, Resource, key_of, untyped_resource
from purser.lab.apiserver.selectors import object_selector
from purser.lab.controllers.workloads.loop import run_controller
from purser.lab.controllers.workloads.owned import is_ready, owner_uid

BUDGETS = untyped_resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
"""As API servers since 1.21 serve them."""

DELETION_TIMEOUT = timedelta(minutes=2)
"""A pod whose eviction was allowed and that was not deleted for this long counts again."""


async def run(client: Client, budgets: Informer[Raw], pods: Informer[Raw], *scaled: Informer[Raw]) -> None:
    """Until cancelled. ``scaled`` are the kinds that say how many pods they want."""

    async def reconcile(budget: Raw) -> None:
        namespace = budget["metadata"]["namespace"]
        chosen = _pod_matcher(budget)
        selected = [
            pod
            for pod in pods.store.values()
            if pod["metadata"]["namespace"] == namespace and chosen(pod["metadata"].get("labels") or {})
        ]
        scales = {
            each["metadata"]["uid"]: each["spec"].get("replicas", 1)
            for of_kind in scaled
            for each in of_kind.store.values()
        }
        await _write(client, budgets.resource, budget, status_of(budget, selected, scales, SystemClock().now()))

    def beside(obj: Raw) -> Iterable[Raw]:
        namespace = obj["metadata"]["namespace"]
        return (each for each in budgets.store.values() if each["metadata"]["namespace"] == namespace)

    def of_pod(pod: Raw) -> Iterable[str]:
        labels = pod["metadata"].get("labels") or {}
        return [key_of(budget) for budget in beside(pod) if _pod_matcher(budget)(labels)]

    def budgets_of_controller(owner: Raw) -> Iterable[str]:
        return map(key_of, beside(owner))

    await run_controller(budgets, reconcile, (pods, of_pod), *((of_kind, budgets_of_controller) for of_kind in scaled))


def status_of(budget: Raw, pods: Sequence[Raw], scales: Mapping[str, int], now: datetime) -> dict[str, Any]:
    """``pods`` are those that the budget selects, ``scales`` the replicas of their owners by uid."""
    going = _pending_evictions(budget, pods, now)
    healthy = sum(is_ready(pod) and not _is_terminating(pod) and pod["metadata"]["name"] not in going for pod in pods)
    expected, desired = _expected(budget["spec"], pods, scales)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptedPods": going,
        "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }


def _pod_matcher(budget: Raw) -> Callable[[Mapping[str, str]], bool]:
    """Without a selector it selects nothing, with an empty one everything."""
    selector = budget["spec"].get("selector")
    return object_selector(selector).matches if selector is not None else lambda labels: False


def _is_terminating(pod: Raw) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _pending_evictions(budget: Raw, pods: Sequence[Raw], now: datetime) -> dict[str, str]:
    """Pods whose eviction was allowed, and whose deletion is not seen yet."""
    noted = (budget.get("status") or {}).get("disruptedPods") or {}
    there = {pod["metadata"]["name"] for pod in pods if not _is_terminating(pod)}
    return {
        name: since
        for name, since in noted.items()
        if name in there and now - datetime.fromisoformat(since) < DELETION_TIMEOUT
    }


def _expected(spec: Raw, pods: Sequence[Raw], scales: Mapping[str, int]) -> tuple[int, int]:
    """How many pods there are to be, and how many of them have to be healthy.

    Percentages and ``maxUnavailable`` go by the scale of the pods' controllers. Where one has none that is known, the
    budget spares nothing, as the real controller has it.
    """
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if most is None and not isinstance(least, str):
        return len(pods), int(least if least is not None else 1)
    owners = {owner_uid(pod) for pod in pods}
    if not owners <= scales.keys():
        return 0, 0
    expected = sum(scales[uid] for uid in owners)
    if most is not None:
        return expected, max(0, expected - _of(most, expected))
    return expected, _of(str(least), expected)


def _of(given: int | str, total: int) -> int:
    return given if isinstance(given, int) else math.ceil(total * int(given.removesuffix("%")) / 100)


async def _write(client: Client, resource: Resource[Raw], budget: Raw, status: dict[str, Any]) -> None:
    """On condition of the version that it was computed from: an eviction may have been paid for meanwhile."""
    metadata, known = budget["metadata"], budget.get("status") or {}
    if {**known, "disruptedPods": known.get("disruptedPods") or {}} == status:
        return
    gone = dict.fromkeys((known.get("disruptedPods") or {}).keys() - status["disruptedPods"].keys())
    patch = {
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "status": {**status, "disruptedPods": {**status["disruptedPods"], **gone}},
    }
    try:
        await client.patch_merge(resource, metadata["name"], patch, metadata["namespace"], subresource="status")
    except (NotFoundError, ConflictError):
        return  # The informer lags behind; its next event is reconciled again.
