"""Pods that HAMi's scheduler places on a node of Purser's agent: granted where they may have what it chose."""

import asyncio

import pytest
from tests.unit.scheduler.extender_world import eventually

from purser.core.device.resources import GPU_RESOURCE
from purser.core.model import GrantState
from purser.core.vendors.hami_nodes import REGISTER_ANNOTATION, registration
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import NODES, PODS
from purser.scheduler.binding import HamiPods

LOCK = "hami.io/mutex.lock"


@pytest.fixture
async def world(world):
    """With a node of Purser's agent, ``n``, that HAMi's scheduler knows."""
    await world.add_node("n", cards=2)
    text = registration(world.cache.fleet.node("n").inventory)
    await world.client.patch_merge(NODES, "n", {"metadata": {"annotations": {REGISTER_ANNOTATION: text}}})
    await eventually(lambda: world.cache.is_hami_node("n"))
    seeing = HamiPods(world.client, world.cache, world.keys, world.pods, world.nodes, world.events, lambda: True)
    task = asyncio.create_task(seeing.run())
    yield world
    task.cancel()


async def reserved(world, name, devices, memory=1000, **limits):
    """As HAMi's scheduler does when it filters."""
    pod = await world.add_pod(name, memory, spec={"schedulerName": "hami-scheduler"}, **limits)
    record = {"hami.io/vgpu-node": "n", "hami.io/vgpu-devices-allocated": devices}
    record["hami.io/vgpu-devices-to-allocate"] = devices
    await annotate(world, pod, record)
    return pod


async def annotate(world, pod, annotations):
    await world.client.patch_merge(PODS, pod.metadata.name, {"metadata": {"annotations": annotations}}, "default")


async def lock(world, name):
    held = {LOCK: f"{world.clock.now():%Y-%m-%dT%H:%M:%SZ},default,{name}"}
    await world.client.patch_merge(NODES, "n", {"metadata": {"annotations": held}})


async def bound(world, pod):
    """As HAMi's scheduler binds; returns the phase that follows."""
    name = pod.metadata.name
    await lock(world, name)
    await annotate(world, pod, {"hami.io/bind-phase": "allocating", "hami.io/bind-time": "1"})
    await world.client.bind("default", name, pod.metadata.uid, "n", {})
    phases = []

    def over():
        phases[:] = [world.cache.pod_by_uid(pod.metadata.uid).metadata.annotations["hami.io/bind-phase"]]
        return phases != ["allocating"]

    await eventually(over)
    await eventually(lambda: LOCK not in world.cache.node("n").metadata.annotations)
    return phases[0]


async def test_a_share_and_a_whole_gpu_get_their_grants_and_the_node_is_unlocked(world):
    share = await reserved(world, "share", "n-1,NVIDIA,3000,30:;", 3000, **{"nvidia.com/gpucores": "30"})
    whole = await reserved(world, "whole", "n-0,NVIDIA,8000,100:;", None, **{GPU_RESOURCE: "1"})
    for pod, uuid, mib, cores in ((share, "n-1", 3000, 30), (whole, "n-0", 8000, 100)):
        assert await bound(world, pod) == "success"
        (part,) = (await world.grant_on(pod)).containers
        (held,) = part.shares
        assert (held.uuid, held.memory_mib, held.cores_percent) == (uuid, mib, cores)
        assert (await world.stored(pod)).metadata.annotations["hami.io/vgpu-devices-to-allocate"] == ";"
        await eventually(lambda pod=pod: world.state_of(pod) is GrantState.BOUND)


async def test_what_hamis_scheduler_reserved_is_given_to_nobody_else_until_it_binds(world):
    theirs = await reserved(world, "theirs", "n-0,NVIDIA,8000,0:;", 8000)
    await eventually(lambda: world.state_of(theirs) is not None)
    own = await world.add_pod("own", 8000)
    assert await world.bind(own, "n") == ""
    assert (await world.grant_on(own)).uuids == {"n-1"}
    assert await bound(world, theirs) == "success"


@pytest.mark.parametrize(
    ("devices", "memory"),
    [
        pytest.param("n-1,NVIDIA,100,0:;", 5000, id="less is recorded than asked for, and it is not there"),
        pytest.param("n-7,NVIDIA,1000,0:;", 1000, id="an unknown GPU"),
        pytest.param("n-0,NVIDIA,1000,0:n-1,NVIDIA,1000,0:;", 1000, id="two for one"),
    ],
)
async def test_what_a_pod_cannot_have_fails(world, devices, memory):
    await world.bind(await world.add_pod("own", 4000), "n")
    pod = await reserved(world, "p", devices, memory)
    assert await bound(world, pod) == "failed"
    assert await world.grant_on(pod) is None
    assert world.state_of(pod) is None
    told = "hami-scheduler placed the pod on node n, where Purser cannot grant the pod a GPU: "
    assert [each for each in await world.event_messages() if each.startswith(told) and len(each) > len(told)]


async def test_rules_and_quotas_of_pods_that_purser_places_hold_for_these_as_well(world):
    bypassing = await reserved(world, "p", "n-0,NVIDIA,1000,0:;", labels={"purser.dev/webhook": "ignore"})
    assert await bound(world, bypassing) == "failed"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "1500"}}}
    await world.client.create(RESOURCE_QUOTAS, quota, "default")
    await eventually(lambda: world.cache.quota_limits("default").memory_mib == 1500)
    phases = [await bound(world, await reserved(world, name, "n-0,NVIDIA,1000,0:;")) for name in ("q", "r")]
    assert phases == ["success", "failed"]


async def test_a_pod_that_only_says_that_hamis_scheduler_bound_it_gets_nothing(world):
    """Its author writes all that HAMi's scheduler would, on the pod; the node's lock is for another pod, or absent."""
    said = {"hami.io/vgpu-node": "n", "hami.io/vgpu-devices-allocated": "n-1,NVIDIA,1000,0:;"}
    said |= {"hami.io/bind-phase": "allocating", "hami.io/bind-time": "1"}
    forged = await world.add_pod(
        "forged", 1000, annotations=said, spec={"schedulerName": "hami-scheduler", "nodeName": "n"}
    )
    assert await bound(world, await reserved(world, "theirs", "n-0,NVIDIA,1000,0:;")) == "success"
    assert await world.grant_on(forged) is None
    assert (await world.stored(forged)).metadata.annotations["hami.io/bind-phase"] == "allocating"


async def test_the_lock_may_be_seen_after_the_pod(world):
    pod = await reserved(world, "p", "n-0,NVIDIA,1000,0:;")
    await annotate(world, pod, {"hami.io/bind-phase": "allocating"})
    await world.client.bind("default", "p", pod.metadata.uid, "n", {})
    await eventually(lambda: world.cache.pod_by_uid(pod.metadata.uid).spec.node_name == "n")
    await lock(world, "p")
    await eventually(lambda: world.state_of(pod) is GrantState.BOUND)
