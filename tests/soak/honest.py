"""Users who mean well: shares and whole cards that are created, run for a while and are deleted."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

from purser.kube.errors import ApiError, ApiUnavailableError, KubeError, NotFoundError
from purser.kube.resources import PODS
from tests.scenarios.actions import RAW_PODS, pods
from tests.scenarios.cluster import Cluster
from tests.scenarios.pods import Raw, container, half, pod, share, whole
from tests.soak.outcomes import HonestPods

ANYWHERE = {"nodeSelector": {}, "schedulerName": "purser-scheduler"}
REQUESTS = (share(4000, 10), share(9000, 30), share(2000, 0), share(3000, 20, 2), half(), whole(), whole(2))
WEIGHTS = (4, 3, 4, 2, 3, 2, 1)
LIFETIME_S = (2.0, 25.0)


async def create_pods(cluster: Cluster, records: HonestPods, dice: random.Random, *, per_s: float, total: int) -> None:
    """Create ``total`` pods, so many a second on average; return once their owners have deleted all of them."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(total):
            manifest = _pod(cluster, f"honest-{number}", dice)
            tasks.create_task(_create_and_delete(cluster, records, manifest, dice.uniform(*LIFETIME_S)))
            await asyncio.sleep(dice.expovariate(per_s))


async def observe_pods(cluster: Cluster, records: HonestPods) -> None:
    """Look at every pod again and again: a watch could miss what happens while the API server is away."""
    while True:
        with contextlib.suppress(KubeError):
            for each in await pods(cluster):
                records.observe(each)
        records.check_waiting()
        await asyncio.sleep(0.3)


async def retry(write: Callable[[], Awaitable[Any]]) -> None:
    """Try until the API server takes it: it is away now and then, and so is the webhook. Raises NotFoundError."""
    while True:
        try:
            await write()
            return
        except NotFoundError:
            raise
        except (ApiError, ApiUnavailableError):
            await asyncio.sleep(0.5)


async def _create_and_delete(cluster: Cluster, records: HonestPods, manifest: Raw, lifetime_s: float) -> None:
    name = manifest["metadata"]["name"]
    await retry(lambda: cluster.client.create(RAW_PODS, manifest, cluster.namespace))
    await records.add(name).settled.wait()
    await asyncio.sleep(lifetime_s)
    records.remove(name)
    with contextlib.suppress(NotFoundError):
        await retry(lambda: cluster.client.delete(PODS, name, cluster.namespace, grace_period_seconds=0))


def _pod(cluster: Cluster, name: str, dice: random.Random) -> Raw:
    made = pod(cluster, name, dice.choices(REQUESTS, WEIGHTS)[0], **ANYWHERE)
    if dice.random() < 0.2:
        made["spec"]["containers"].append(container(cluster, share(1000, 5), "beside"))
    return made
