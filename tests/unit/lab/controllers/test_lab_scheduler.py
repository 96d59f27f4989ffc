import asyncio
import time

import pytest

from purser.kube.resources import NODES, PODS, untyped_resource
from purser.lab.controllers.scheduling.claims import CLAIMS, find_obstacle
from purser.lab.controllers.scheduling.filters import PodInfo
from purser.lab.controllers.scheduling.requests import pod_requests


async def test_a_pod_that_does_not_fit_gets_the_real_schedulers_message_and_condition(world):
    await world.node("small", cpu="1")
    await world.node("tainted", spec={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]})
    await world.node("cordoned", spec={"unschedulable": True})
    await world.pod("big", {"cpu": "2"})

    async def told():
        pod = await world.client.get(PODS.raw(), "big", "default")
        conditions = pod["status"].get("conditions", ())
        return next((c for c in conditions if c["type"] == "PodScheduled" and "3 nodes" in c["message"]), None)

    condition = await world.until(told)
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    expected = (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {k: v}, "
        "1 node(s) were unschedulable. preemption: 0/3 nodes are available: "
        "3 Preemption is not helpful for scheduling."
    )
    assert condition["message"] == expected
    assert await world.event("big", "FailedScheduling")
    began = int(time.time())
    while int(time.time()) == began:  # noqa: ASYNC110 - times of conditions have whole seconds
        await asyncio.sleep(0.05)
    await world.client.patch_merge(NODES, "small", {"spec": {"unschedulable": True}})

    async def told_anew():
        again = await told()
        return again if again is not None and "2 node(s) were unschedulable" in again["message"] else None

    again = await world.until(told_anew)
    assert again["lastTransitionTime"] == condition["lastTransitionTime"], "it is since then that it has no node"
    await world.client.patch_merge(NODES, "cordoned", {"spec": {"unschedulable": False}})
    assert await world.bound("big") == "cordoned"


async def test_a_pod_that_the_scheduler_fails_on_takes_no_other_s_turn(world, monkeypatch):
    made = PodInfo.of

    def fails_on_odd(pod, *arguments):
        if pod["metadata"]["name"] == "odd":
            raise ValueError("odd")
        return made(pod, *arguments)

    monkeypatch.setattr(PodInfo, "of", fails_on_odd)
    await world.node("only")
    await world.pod("odd")
    await world.pod("plain")
    assert await world.bound("plain") == "only"


async def test_selectors_and_affinity_choose_the_node(world):
    for name in ("a", "b", "c"):
        await world.node(name, labels={"zone": name, "rank": str(ord(name))})
    await world.pod("selected", nodeSelector={"zone": "b"})
    expression = {"key": "rank", "operator": "Gt", "values": ["98"]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    await world.pod("affine", affinity=affinity)
    assert await world.bound("selected") == "b"
    assert await world.bound("affine") == "c"


async def test_room_is_counted_at_once_and_freed_by_a_finished_pod(world):
    await world.node("only", cpu="2")
    await world.pod("first", {"cpu": "2"})
    await world.bound("first")
    await world.pod("second", {"cpu": "2"})
    assert "Insufficient cpu" in await world.event("second", "FailedScheduling")
    await world.client.patch_merge(PODS, "first", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    assert await world.bound("second") == "only"


async def test_a_more_important_pod_evicts_as_few_as_it_must(world):
    await world.node("only", cpu="4")
    for name, cpu in (("small", "1"), ("large", "3")):
        await world.pod(name, {"cpu": cpu})
        await world.bound(name)
    await world.client.create(
        PODS.raw(),
        {
            "metadata": {"name": "urgent"},
            "spec": {
                "priorityClassName": "system-cluster-critical",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}],
            },
        },
        "default",
    )

    async def evicted():
        pods = {pod["metadata"]["name"]: pod for pod in await world.pods()}
        return pods if pods["large"]["metadata"].get("deletionTimestamp") else None

    pods = await world.until(evicted)
    assert not pods["small"]["metadata"].get("deletionTimestamp")
    await world.client.delete(PODS, "large", "default", grace_period_seconds=0)
    assert await world.bound("urgent") == "only"


async def test_room_that_is_being_made_for_a_pod_is_kept_from_those_it_outranks(world):
    """What a ReplicaSet recreates at once must not take the place that it just left: or all of them go."""
    await world.node("only", cpu="2")
    await world.pod("low", {"cpu": "2"})
    await world.bound("low")
    await world.pod("urgent", {"cpu": "2"}, priorityClassName="system-cluster-critical")

    async def nominated():
        pods = {pod["metadata"]["name"]: pod for pod in await world.pods()}
        going = pods["low"]["metadata"].get("deletionTimestamp")
        return pods["low"] if going and pods["urgent"]["status"].get("nominatedNodeName") == "only" else None

    low = await world.until(nominated)
    [target] = [each for each in low["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
    await world.pod("other", {"cpu": "1"})  # tried before urgent, which rests
    await world.client.delete(PODS, "low", "default", grace_period_seconds=0)
    assert await world.bound("urgent") == "only"
    assert "Insufficient cpu" in await world.event("other", "FailedScheduling")
    assert not (await world.client.get(PODS, "other", "default")).spec.node_name


async def test_a_nomination_of_any_author_is_tried_first(world):
    for name in ("a", "b"):
        await world.node(name, cpu="4", spec={"unschedulable": True})
    await world.pod("waiting", {"cpu": "3"})
    assert "unschedulable" in await world.event("waiting", "FailedScheduling")
    status = {"status": {"nominatedNodeName": "b"}}
    await world.client.patch_merge(PODS, "waiting", status, "default", subresource="status")
    for name in ("b", "a"):
        await world.client.patch_merge(NODES, name, {"spec": {"unschedulable": False}})
    assert await world.bound("waiting") == "b"


async def test_a_pod_that_may_not_preempt_gets_that_message(world):
    await world.node("only", cpu="2")
    await world.pod("low", {"cpu": "2"})
    await world.bound("low")
    classes = untyped_resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
    await world.client.create(classes, {"metadata": {"name": "polite"}, "value": 9, "preemptionPolicy": "Never"})
    await world.pod("polite", {"cpu": "2"}, priorityClassName="polite")
    message = await world.event("polite", "FailedScheduling")
    assert message.endswith("preemption: not eligible due to preemptionPolicy=Never.")


async def test_a_pod_waits_for_a_claim_that_is_not_there_and_runs_once_it_is(world):
    await world.node("n1")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}
    await world.pod("p", volumes=[volume])
    message = await world.event("p", "FailedScheduling")
    assert message == (
        '0/1 nodes are available: persistentvolumeclaim "mine" not found. '
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    claim = {"metadata": {"name": "mine"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    await world.client.create(CLAIMS, claim, "default")
    assert await world.bound("p") == "n1"


@pytest.mark.parametrize(
    ("volume", "claims", "expected"),
    [
        ({"name": "v", "emptyDir": {}}, {}, ""),
        ({"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"default/c": {"metadata": {}}}, ""),
        (
            {"name": "v", "persistentVolumeClaim": {"claimName": "c"}},
            {"default/c": {"metadata": {"deletionTimestamp": "now"}}},
            'persistentvolumeclaim "c" is being deleted',
        ),
        (
            {"name": "v", "ephemeral": {}},
            {},
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"',
        ),
    ],
)
def test_what_keeps_a_pod_from_its_volumes(volume, claims, expected):
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"volumes": [volume]}}
    assert find_obstacle(pod, claims.get) == expected


def test_what_a_pod_asks_for_as_a_whole_counts_instead_of_what_its_containers_do():
    containers = [{"name": name, "resources": {"requests": {"cpu": "1", "memory": "1Ki"}}} for name in "ab"]
    spec = {"containers": containers, "resources": {"requests": {"cpu": "500m"}}, "overhead": {"cpu": "1"}}
    assert pod_requests({"spec": spec}) == {"cpu": 1500, "memory": 2048_000, "pods": 1000}
