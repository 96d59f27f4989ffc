"""Evictions by the agent, through the Eviction API: it respects disruption budgets."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import structlog

from purser.agent.allocation.pod_statuses import NodePod
from purser.kube.client import Client
from purser.kube.errors import KubeError, TooManyRequestsError
from purser.kube.policy_group import evict, policy_version

log = structlog.get_logger("purser.agent")

T = TypeVar("T")

MAX_EVICTION_GRACE_S = 300
"""Grace period of evicted pods, instead of the pod's own: others lack what they hold meanwhile."""

Evict = Callable[[NodePod], Awaitable[None]]
"""Ask for a pod's eviction. Raises `KubeError`, also where a disruption budget refuses it now."""


def make_evict(client: Client) -> Evict:
    """What asks the API server for evictions, with a grace period of `MAX_EVICTION_GRACE_S` at most."""

    async def ask(pod: NodePod) -> None:
        meta = pod.metadata
        is_too_long = pod.spec.termination_grace_period_seconds > MAX_EVICTION_GRACE_S or meta.deletion_timestamp
        grace_period_s = MAX_EVICTION_GRACE_S if is_too_long else None
        version = await policy_version(client)
        await evict(client, version, meta.namespace, meta.name, meta.uid, grace_period_s=grace_period_s)

    return ask


async def evict_first(evict: Evict, ranked: Iterable[tuple[T, NodePod]], what: str) -> tuple[T, NodePod] | None:
    """Evict the first pod that no disruption budget keeps, and return it with its reason; None where none was evicted.
    ``what`` they are, for the log."""
    for reason, pod in ranked:
        try:
            await evict(pod)
        except KubeError as error:
            log.warning(f"Cannot evict {what} yet", error=str(error))
            if isinstance(error, TooManyRequestsError):
                continue
            return None
        return reason, pod
    return None


def is_ending(pod: NodePod) -> bool:
    """Whether a pod was asked to end, with no longer a grace period than `MAX_EVICTION_GRACE_S`."""
    meta = pod.metadata
    return bool(meta.deletion_timestamp) and meta.deletion_grace_period_seconds <= MAX_EVICTION_GRACE_S
