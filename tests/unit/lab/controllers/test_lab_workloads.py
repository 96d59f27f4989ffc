import json

from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import DAEMON_SETS, EVENTS, NODES, PODS, untyped_resource
from purser.lab.controllers.scheduling.claims import CLAIMS
from purser.lab.controllers.workloads.deployment import DEPLOYMENTS
from purser.lab.controllers.workloads.job import JOBS
from purser.lab.controllers.workloads.replicaset import REPLICATION_CONTROLLERS
from purser.lab.controllers.workloads.statefulset import STATEFUL_SETS

TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
SELECTOR = {"matchLabels": {"app": "x"}}
REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")


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


async def test_a_container_to_debug_with_runs_beside_a_pods_own_and_ends_with_it(world):
    kubelet, task = await world.kubelet("n1")
    uid = (await world.pod("p", restartPolicy="Never"))["metadata"]["uid"]
    await running(world, 1)

    async def add(name):
        containers = [{"name": each, "image": "busybox"} for each in ("a", "b") if each <= name]
        patch = {"spec": {"ephemeralContainers": containers}}
        await world.client.patch_merge(PODS, "p", patch, "default", subresource="ephemeralcontainers", strategic=True)

    async def states(count):
        async def probe():
            found = (await world.pods())[0]["status"].get("ephemeralContainerStatuses") or ()
            return [each["state"] for each in found] if len(found) == count else None

        return await world.until(probe)

    await add("a")
    assert [*(await states(1))[0]] == ["running"]
    assert kubelet.runtime.get(uid, "a").env["HOSTNAME"] == "p"
    task.cancel()
    await add("b")
    kubelet, _ = await world.kubelet("n1")
    assert [[*each] for each in await states(2)] == [["running"], ["running"]]
    await world.client.patch_merge(PODS, "p", {"metadata": {"finalizers": ["x/y"]}}, "default")
    await world.client.delete(PODS, "p", "default")

    async def ended():
        pod = (await world.pods())[0]
        return pod["status"]["phase"] == "Failed" and [[*each] for each in await states(2)] == [["terminated"]] * 2

    await world.until(ended)


async def test_a_refused_pod_is_reported_on_its_owner(world):
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


async def test_a_deployment_says_why_it_has_no_pods_until_it_has_some(world):
    await world.client.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}, "default")
    body = {"metadata": {"name": "d"}, "spec": {"selector": SELECTOR, "template": TEMPLATE}}
    await world.client.create(DEPLOYMENTS, body, "default")

    async def failures():
        found = (await world.client.get(DEPLOYMENTS, "d", "default")).get("status") or {}
        return [each for each in found.get("conditions", ()) if each["type"] == "ReplicaFailure"]

    [failure] = await world.until(failures)
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
    assert "exceeded quota: q" in failure["message"]
    await world.client.patch_merge(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"pods": "9"}}}, "default")

    async def is_gone():
        return not await failures()

    await world.until(is_gone)


async def test_a_stateful_set_makes_pods_in_order_with_claims_of_their_own(world):
    await world.kubelet("n1")
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    mounts = [{"name": "data", "mountPath": "/data"}]
    template = {**TEMPLATE, "spec": {"containers": [{"name": "c", "image": "i", "volumeMounts": mounts}]}}
    spec = {"replicas": 3, "serviceName": "s", "selector": SELECTOR, "template": template}
    body = {"metadata": {"name": "s"}, "spec": {**spec, "volumeClaimTemplates": claims}}
    await world.client.create(STATEFUL_SETS, body, "default")
    pods = sorted(await running(world, 3), key=lambda pod: pod["metadata"]["name"])
    assert [pod["metadata"]["name"] for pod in pods] == ["s-0", "s-1", "s-2"]
    assert pods == sorted(pods, key=lambda pod: int(pod["metadata"]["resourceVersion"]))
    assert (pods[1]["spec"]["hostname"], pods[1]["spec"]["subdomain"]) == ("s-1", "s")
    assert pods[1]["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "s-1"
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-s-1"}} in pods[1]["spec"]["volumes"]
    newer = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "newer", "volumeMounts": mounts}]}}}}
    await world.client.patch_merge(STATEFUL_SETS, "s", newer, "default")

    async def rolled():
        status = (await world.client.get(STATEFUL_SETS, "s", "default"))["status"]
        images = {pod["spec"]["containers"][0]["image"] for pod in await active(world)}
        arrived = status["currentRevision"] == status["updateRevision"] and status["readyReplicas"] == 3
        return arrived and images == {"newer"}

    await world.until(rolled)
    await world.client.patch_merge(STATEFUL_SETS, "s", {"spec": {"replicas": 1}}, "default")
    assert [pod["metadata"]["name"] for pod in await running(world, 1)] == ["s-0"]
    kept = (await world.client.list(CLAIMS, "default")).items
    assert sorted(claim["metadata"]["name"] for claim in kept) == ["data-s-0", "data-s-1", "data-s-2"]


async def test_a_replication_controller_runs_as_many_pods_as_it_says(world):
    await world.kubelet("n1")
    await world.client.create(
        REPLICATION_CONTROLLERS, {"metadata": {"name": "r"}, "spec": {"replicas": 2, "template": TEMPLATE}}, "default"
    )
    pods = await running(world, 2)
    assert pods[0]["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController"

    async def reported():
        return (await world.client.get(REPLICATION_CONTROLLERS, "r", "default"))["status"].get("readyReplicas") == 2

    await world.until(reported)
