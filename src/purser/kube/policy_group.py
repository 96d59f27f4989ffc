"""The group ``policy``: disruption budgets, and in which version a server is spoken to of them and of evictions."""

from typing import Any

from purser.kube.client import Client
from purser.kube.objects import ObjectMeta, Slim
from purser.kube.resources import PODS, Resource

_V1_MINOR = 22  # PodDisruptionBudget v1 came with 1.21, Eviction v1 with 1.22: one rule for both


class BudgetSpec(Slim, frozen=True, gc=False):
    """Which pods a budget is about."""

    selector: dict[str, Any] | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Slim, frozen=True, gc=False):
    """What a budget allows now."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    disrupted_pods: dict[str, str] = {}
    """By name: pods whose eviction has been counted, and when."""


class DisruptionBudget(Slim, frozen=True, gc=False):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


def budgets_resource(version: str) -> Resource[DisruptionBudget]:
    """PodDisruptionBudgets of ``v1`` or ``v1beta1``."""
    return Resource("policy", version, "poddisruptionbudgets", "PodDisruptionBudget", True, DisruptionBudget)


async def policy_version(client: Client) -> str:
    """``v1``, or ``v1beta1`` for servers before 1.22. Raises `KubeError`."""
    version = await client.version()
    digits = "".join(letter for letter in version.get("minor", "") if letter.isdigit())
    return "v1" if version.get("major", "1") != "1" or not digits or int(digits) >= _V1_MINOR else "v1beta1"


async def evict(
    client: Client, version: str, namespace: str, name: str, uid: str, *, grace_period_s: int | None = None
) -> None:
    """Ask for the eviction of this very pod. ``version``: see `policy_version`; ``grace_period_s`` None: the pod's own.

    Raises `KubeError`, also where a disruption budget refuses it now.
    """
    options: dict[str, Any] = {"preconditions": {"uid": uid}}
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    body = {
        "apiVersion": f"policy/{version}",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": options,
    }
    await client.create_subresource(PODS, name, "eviction", body, namespace)
