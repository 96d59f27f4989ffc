"""Grants are taken off running pods while nobody looks, and the scheduler restarts."""

import pytest

from purser.core.names import DISPUTES_ANNOTATION, GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION
from purser.kube import untyped_resource
from purser.kube.resources import NODES, PODS
from tests.scenarios.actions import create, eventually, is_running, pods, running
from tests.scenarios.pods import container, pod, whole

REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")
GONE = {"metadata": {"annotations": dict.fromkeys((GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION))}}


def replica_set(cluster, replicas):
    labels = {"app": "rs"}
    spec = {"containers": [container(cluster, whole())], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "rs", "namespace": cluster.namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


async def of_set(cluster):
    return [one for one in await pods(cluster) if one["metadata"].get("labels", {}).get("app") == "rs"]


def is_unschedulable(one):
    return any(each.get("reason") == "Unschedulable" for each in one["status"].get("conditions", ()))


@pytest.mark.gate
async def test_defaced_pods_keep_their_gpus_and_nobody_fails_for_it(lab, cluster):
    names = [f"victim-{n}" for n in range(4)]
    await create(cluster, *(pod(cluster, name, whole()) for name in names))
    await running(cluster, names)
    for name in names[:2]:
        await cluster.client.patch_merge(PODS, name, GONE, cluster.namespace, subresource="status")
    await lab.kill_scheduler()
    for name in names[2:]:  # nobody answers the webhook
        await cluster.client.patch_merge(PODS, name, GONE, cluster.namespace)
    await lab.start_scheduler()
    await cluster.client.create(REPLICA_SETS, replica_set(cluster, 8))

    async def four_run():
        return sum(map(is_running, await of_set(cluster))) == 4

    async def four_wait():
        """Where cards that are held were given away, fifty pods a second failed, and others took their place."""
        return sum(map(is_unschedulable, await of_set(cluster))) == 4

    await eventually(cluster, "the four cards that are free are used", four_run)
    await eventually(cluster, "no others are given away", four_wait)
    failed = [one for one in await of_set(cluster) if one["status"].get("phase") == "Failed"]
    assert len(failed) <= 2
    assert await four_run()
    held = [id_.partition("::")[0] for ids in (await cluster.pod_resources(cluster.gpu_node)).values() for id_ in ids]
    assert sorted(held) == sorted(cluster.uuids)
    for name in names:
        await cluster.client.delete(PODS, name, cluster.namespace, grace_period_seconds=0)

    async def all_run():
        return sum(map(is_running, await of_set(cluster))) == 8

    await eventually(cluster, "all cards can be had again", all_run)

    async def settled():
        node = await cluster.client.get(NODES, cluster.gpu_node)
        return DISPUTES_ANNOTATION not in node.metadata.annotations

    await eventually(cluster, "nothing is told any more", settled)
