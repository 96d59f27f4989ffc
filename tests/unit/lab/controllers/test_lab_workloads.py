import json

from purser.kube.resources import DAEMON_SETS, EVENTS, NODES, PODS, untyped
from purser.lab.controllers.workloads.deployment import DEPLOYMENTS
from purser.lab.controllers.workloads.job import JOBS

TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
SELECTOR = {"matchLabels": {"app": "x"}}
REPLICA_SETS = untyped("apps", "v1", "replicasets", "ReplicaSet")


async def active(world):
    return [pod for pod in await world.pods() if not pod["metadata"].get("deletionTimestamp")]


async def running(world, count):
    async def probe():
        pods = [pod for pod in await active(world) if pod["status"].get("phase") == "Running"]
        return pods if len(pods) == count and len(await active(world)) == count else None

    return await world.until(probe)


async def test_a_deployment_runs_scales_replaces_and_reports(world):
    await world.kubelet("n1")
    body = {"metadata": {"name": "d"}, "spec": {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE}}
    await world.client.create(DEPLOYMENTS, body, "default")
    first = await running(world, 3)

    async def available():
        status = (await world.client.get(DEPLOYMENTS, "d", "default")).get("status") or {}
        return status.get("availableReplicas") == 3 and status.get("updatedReplicas") == 3

    await world.until(available)
    await world.client.patch_merge(DEPLOYMENTS, "d", {"spec": {"replicas": 1}}, "default")
    await running(world, 1)
    newer = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "newer"}]}}}}
    await world.client.patch_merge(DEPLOYMENTS, "d", newer, "default")

    async def replaced():
        pods = await running(world, 1)
        return pods[0]["spec"]["containers"][0]["image"] == "newer"

    await world.until(replaced)
    uids = {pod["metadata"]["uid"] for pod in first}
    assert uids.isdisjoint(pod["metadata"]["uid"] for pod in await running(world, 1))


async def test_a_lost_replica_is_replaced_and_none_is_made_twice(world):
    await world.kubelet("n1")
    body = {"metadata": {"name": "r"}, "spec": {"replicas": 5, "selector": SELECTOR, "template": TEMPLATE}}
    await world.client.create(REPLICA_SETS, body, "default")
    pods = await running(world, 5)
    await world.client.delete(PODS, pods[0]["metadata"]["name"], "default")

    async def replaced():
        names = {pod["metadata"]["name"] for pod in await running(world, 5)}
        return pods[0]["metadata"]["name"] not in names

    await world.until(replaced)


async def test_a_daemon_set_follows_the_nodes(world):
    await world.kubelet("n1")
    body = {"metadata": {"name": "ds"}, "spec": {"selector": SELECTOR, "template": TEMPLATE}}
    await world.client.create(DAEMON_SETS, body, "default")
    await running(world, 1)
    await world.kubelet("n2")
    pods = await running(world, 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"n1", "n2"}

    async def reported():
        return ((await world.client.get(DAEMON_SETS, "ds", "default")).get("status") or {}).get("numberReady") == 2

    await world.until(reported)


async def test_a_job_completes(world):
    await world.kubelet("n1")
    template = {
        "metadata": {"annotations": {"purser.dev/lab-run-seconds": "0.05"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    body = {"metadata": {"name": "j"}, "spec": {"completions": 3, "parallelism": 2, "template": template}}
    await world.client.create(JOBS, body, "default")

    async def complete():
        status = (await world.client.get(JOBS, "j", "default")).get("status") or {}
        return status if any(c["type"] == "Complete" for c in status.get("conditions") or ()) else None

    status = await world.until(complete)
    assert (status["succeeded"], status["active"]) == (3, 0)
    assert len(await world.pods()) == 3


async def test_pods_of_a_deleted_node_are_collected(world):
    await world.node("lost")
    await world.pod("orphan")
    await world.bound("orphan")
    await world.client.delete(NODES, "lost")

    async def gone():
        return not await world.pods()

    await world.until(gone)


async def test_a_pod_lives_and_ends_on_a_kubelet(world):
    kubelet, task = await world.kubelet("n1")
    created = await world.pod("p")
    await running(world, 1)
    record = kubelet.runtime.get(created["metadata"]["uid"], "c")
    assert record.env["HOSTNAME"] == "p"
    task.cancel()
    kubelet, _ = await world.kubelet("n1")
    pods = await running(world, 1)
    assert kubelet.runtime.get(created["metadata"]["uid"], "c") == record
    assert json.dumps(pods[0]["status"]["containerStatuses"][0]["restartCount"]) == "0"
    await world.client.delete(PODS, "p", "default")

    async def gone():
        return not await world.pods() and kubelet.runtime.get(created["metadata"]["uid"], "c") is None

    await world.until(gone)


async def test_a_refused_pod_is_told_on_its_owner(world):
    spec = {**TEMPLATE["spec"], "priorityClassName": "none-such"}
    body = {"metadata": {"name": "r"}, "spec": {"selector": SELECTOR, "template": {**TEMPLATE, "spec": spec}}}
    await world.client.create(REPLICA_SETS, body, "default")

    async def told():
        events = (await world.client.list(EVENTS, "default")).items
        return [event for event in events if event.reason == "FailedCreate"]

    [event, *_] = await world.until(told)
    assert event.type == "Warning"
    assert (event.involved_object.kind, event.involved_object.name) == ("ReplicaSet", "r")
    assert "none-such" in event.message
