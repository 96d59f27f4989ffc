"""What an eviction does to PodDisruptionBudgets: it is paid for in the step that allows it, so that many at once
never take more than there was."""

from .cluster import ApiRequest, Cluster
from .errors import Obj, StatusError
from .jsonio import now
from .resources import get_path
from .selectors import object_selector

BUDGETS = "poddisruptionbudgets.policy"


def charge_budget(cluster: Cluster, call: ApiRequest, pod: Obj) -> None:
    """Take a disruption from the pod's budget, and note the pod there until its deletion is seen.

    Raises `StatusError`.
    """
    budgets = _budgets_of(cluster, call.namespace, pod)
    if not budgets or _is_unaffected(pod):
        return
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(500, "InternalError", message)
    budget = budgets[0]
    status = budget.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(budget["metadata"].get("generation") or 0):
        raise _refusal(f"The disruption budget {budget['metadata']['name']} is still being processed by the server.")
    if _is_unhealthy(pod, status):
        return
    if int(status.get("disruptionsAllowed") or 0) <= 0:
        raise _refusal(
            f"The disruption budget {budget['metadata']['name']} needs {status.get('desiredHealthy') or 0} healthy "
            f"pods and has {status.get('currentHealthy') or 0} currently"
        )
    if not call.dry_run:
        noted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now()}
        allowed = int(status["disruptionsAllowed"]) - 1
        budget["status"] = {**status, "disruptionsAllowed": allowed, "disruptedPods": noted}
        cluster.store.collections[BUDGETS].put(budget)


def _budgets_of(cluster: Cluster, namespace: str, pod: Obj) -> list[Obj]:
    labels = pod["metadata"].get("labels") or {}
    found = []
    for record in cluster.store.collections[BUDGETS].records():
        if record.key[0] == namespace:
            budget = record.object()
            selector = get_path(budget, "spec.selector")
            if selector is not None and object_selector(selector).matches(labels):
                found.append(budget)
    return found


def _is_unaffected(pod: Obj) -> bool:
    """It does not count as available, or is on its way already."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Pending")
    return ended or bool(pod["metadata"].get("deletionTimestamp"))


def _is_unhealthy(pod: Obj, status: Obj) -> bool:
    """A pod that runs and is not ready goes while enough others are (unhealthyPodEvictionPolicy IfHealthyBudget)."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    healthy, desired = int(status.get("currentHealthy") or 0), int(status.get("desiredHealthy") or 0)
    return not is_ready and desired > 0 and healthy >= desired


def _refusal(why: str) -> StatusError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return StatusError(429, "TooManyRequests", message, {"causes": [{"reason": "DisruptionBudget", "message": why}]})
