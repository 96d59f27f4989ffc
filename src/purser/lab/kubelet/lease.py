"""The Lease by which a kubelet says that it lives: without it kube-controller-manager takes a node for lost in 40 s."""

from collections.abc import Callable, Iterable
from datetime import datetime

import structlog

from purser.kube.client import Client
from purser.kube.clock import Clock, micro_timestamp
from purser.kube.errors import AlreadyExistsError, ApiError, ApiUnavailableError
from purser.kube.resources import LEASES

_PERIOD_S = 10.0
_NAMESPACE = "kube-node-lease"

log = structlog.get_logger("purser.lab.kubelet")


async def keep_leases(client: Client, clock: Clock, nodes: Callable[[], Iterable[str]]) -> None:
    """Renew the leases of the nodes that ``nodes`` names, every ten seconds until cancelled. What fails is tried again
    the next time."""
    while True:
        for node in list(nodes()):
            try:
                await renew_lease(client, node, clock.now())
            except (ApiError, ApiUnavailableError) as error:
                log.warning("Failed to renew the node lease", node=node, error=str(error))
        await clock.sleep(_PERIOD_S)


async def renew_lease(client: Client, node: str, now: datetime) -> None:
    """Write that the node's kubelet lives. Raises what the client raises."""
    spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": micro_timestamp(now)}
    body = {"metadata": {"name": node, "namespace": _NAMESPACE}, "spec": spec}
    try:
        await client.create(LEASES, body, _NAMESPACE)
    except AlreadyExistsError:
        await client.patch_merge(LEASES, node, {"spec": spec}, _NAMESPACE)
