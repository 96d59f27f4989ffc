from purser.kube.resources import NODES, PODS


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
        "1 node(s) were unschedulable."
    )
    assert condition["message"] == expected
    assert await world.event("big", "FailedScheduling")
    await world.client.patch_merge(NODES, "cordoned", {"spec": {"unschedulable": False}})
    assert await world.bound("big") == "cordoned"


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
