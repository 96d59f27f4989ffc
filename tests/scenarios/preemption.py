"""Preemption, on any cluster: exactly who has to go goes, once, though a ReplicaSet recreates what went."""

import contextlib

from purser.core.names import SCHEDULER_NAME
from purser.kube.errors import AlreadyExistsError
from purser.kube.resources import EVENTS, untyped_resource
from tests.scenarios.actions import cards, check_books, create, event, eventually, is_running, pods, running
from tests.scenarios.cluster import Cluster
from tests.scenarios.pods import pod, replica_set

PRIORITY_CLASSES = untyped_resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")
HIGH = "purser-test-high"
TOUCHES = 5
"""How often waiting pods are tried again afterwards."""


async def preempt_one(cluster: Cluster, limits: dict[str, str], *, asked: bool = True) -> None:
    """A node full of replicas; one pod that outranks them comes, and then nothing happens any more.

    ``limits``: so much that each card holds one such pod. ``asked``: whether Purser is asked who has to go, or decides.
    """
    with contextlib.suppress(AlreadyExistsError):
        await cluster.client.create(PRIORITY_CLASSES, {"metadata": {"name": HIGH}, "value": 1000})
    count = len(cluster.uuids)
    await cluster.client.create(REPLICA_SETS, replica_set(cluster, "low", count, limits))
    before = await replicas(cluster, count, waiting=0)
    await create(cluster, pod(cluster, "high", limits, priorityClassName=HIGH, schedulerName=SCHEDULER_NAME))
    high = (await running(cluster, ["high"]))["high"]
    after = await replicas(cluster, count - 1, waiting=1)
    [gone] = before.keys() - after.keys()
    assert cards(high) == cards(before[gone])
    await event(cluster, before[gone]["metadata"]["name"], "Preempted", "Preempted by", "on node")
    if asked:
        await event(cluster, "high", "Preempting", "1 lower-priority pod", before[gone]["metadata"]["name"])
    for number in range(TOUCHES):
        await create(cluster, pod(cluster, f"touch-{number}", limits, schedulerName=SCHEDULER_NAME))
        await event(cluster, f"touch-{number}", "FailedScheduling", "nodes are available")
    assert (await replicas(cluster, count - 1, waiting=1)).keys() == after.keys()
    assert is_running((await running(cluster, ["high"]))["high"])
    listed = (await cluster.client.list(EVENTS, cluster.namespace)).items
    assert [max(1, each.count) for each in listed if each.reason == "Preempted"] == [1]
    await check_books(cluster)


async def replicas(cluster: Cluster, run: int, waiting: int) -> dict[str, dict[str, object]]:
    """The replicas by uid, once so many run and so many wait."""

    async def probe() -> dict[str, dict[str, object]] | None:
        found = {
            each["metadata"]["uid"]: each
            for each in await pods(cluster)
            if each["metadata"].get("labels", {}).get("app") == "low" and not each["metadata"].get("deletionTimestamp")
        }
        up = sum(map(is_running, found.values()))
        assert (up, len(found) - up) == (run, waiting), f"{up} of {len(found)} replicas run"
        return found

    return await eventually(cluster, f"{run} replicas run and {waiting} wait", probe)
