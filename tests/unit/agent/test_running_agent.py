"""One agent that all tests of this module share: each leaves it without pods, as it found it."""

import asyncio

import grpc
import pytest
import pytest_asyncio
from tests.unit.agent.builders import NODE, init, part
from tests.unit.agent.conftest import World, eventually, health_of, shared_folder, shared_kubelet, uuids_of
from tests.unit.agent.emulated_kubelet import Rejected

from purser.agent.kubelet.refusals import RefusalReason
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.kube.resources import NODES
from purser.lab.driver import SimulatedDriver

REFUSALS = "purser_agent_refusals_total"

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]
folder, kubelet = shared_folder, shared_kubelet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(folder, client):
    world = World(folder, client, SimulatedDriver.create(folder / "driver", NODE, "t4-4"))
    await world.prepare()
    yield world
    await world.clean_up()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(world, kubelet):
    async with world.agent(probe_interval_s=60, reopen_interval_s=60) as agent:
        await eventually(agent.ready)
        yield agent


@pytest_asyncio.fixture(loop_scope="module")
async def agent(world, kubelet, running):
    """The shared agent, which has let go of all pods when a test is over."""
    yield running
    kubelet.pods.clear()
    kubelet.held.clear()
    await world.remove_pods()
    for uuid in world.uuids:
        await eventually(lambda uuid=uuid: _is_zero(running, uuid))


async def test_a_pod_gets_the_devices_of_its_grant(world, kubelet, agent):
    a, b, c, _ = world.uuids
    policy = {"hami.io/node-scheduler-policy": "spread"}
    await world.pod("p", part("main", c, a, memory_mib=2000, cores_percent=20), annotations=policy)
    await world.pod("default-policy", part("main", b))
    responses = await kubelet.admit("default/p", [("main", 2)])
    await kubelet.admit("default/default-policy", [("main", 1)])
    assert uuids_of(kubelet.pods["default/p"]["main"]) == sorted([a, c])
    assert dict(responses["main"].envs) == {
        "NVIDIA_VISIBLE_DEVICES": f"{a},{c}",
        "PURSER_GPU_ENFORCEMENT": "time-slicing",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "2000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "2000m",
        "CUDA_DEVICE_SM_LIMIT": "20",
    }
    await kubelet.pre_start(kubelet.pods["default/p"]["main"])
    assert await agent.metric("purser_device_granted_memory_bytes", uuid=a) == 2000 * 1024 * 1024
    assert await agent.metric("purser_grant_cores_ratio", pod="p", uuid=c, enforcement="time-slicing") == 0.2
    assert await agent.metric("purser_device_granted_slots", uuid=b) == 1
    assert await agent.metric("purser_grant_cores_ratio", pod="p", uuid=c, policy="spread") == 0.2
    assert await agent.metric("purser_grant_cores_ratio", pod="default-policy", policy="") is not None


async def test_many_pods_at_once_each_get_their_own(world, kubelet, agent):
    uuids = world.uuids
    pods = [(f"p{n}", uuids[n % 4], uuids[(n + 1 + n // 4) % 4]) for n in range(8)]
    pods = [(name, one, two if two != one else uuids[(uuids.index(one) + 1) % 4]) for name, one, two in pods]
    for name, one, two in pods:
        await world.pod(name, part("one", one, memory_mib=100), part("two", two, memory_mib=200), plain=["log"])
    names = [("one", 1), ("log", 0), ("two", 1)]
    await asyncio.gather(*(kubelet.admit(f"default/{name}", names) for name, _, _ in pods))
    for name, one, two in pods:
        held = kubelet.pods[f"default/{name}"]
        assert (uuids_of(held["one"]), uuids_of(held["two"])) == ([one], [two])


async def test_an_init_containers_devices_go_on_to_the_app_container(world, kubelet, agent):
    a, b, _, _ = world.uuids
    await world.pod("p", init("prepare", b, memory_mib=500), part("main", a, b))
    responses = await kubelet.admit("default/p", [("main", 2)], init=[("prepare", 1)])
    assert responses["prepare"].envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "500m"
    assert uuids_of(kubelet.pods["default/p"]["main"]) == sorted([a, b])
    await kubelet.pre_start([held for held in kubelet.held["default/p"] if held.startswith(b)])
    assert await agent.metric("purser_device_granted_memory_bytes", uuid=b) == 1000 * 1024 * 1024


async def test_a_pod_without_a_grant_is_admitted_without_devices_and_does_not_start(world, kubelet, agent):
    """A rejected one fails, and its controller makes another at once."""
    labels = {"method": "PreStartContainer", "reason": "NoGrant"}
    before = await agent.metric("purser_agent_refusals_total", **labels) or 0
    await world.pod("p", counts={"prepare": 1, "main": 2})
    responses = await kubelet.admit("default/p", [("main", 2)], init=[("prepare", 1)])
    given = [dict(responses[name].envs) for name in ("prepare", "main")]
    assert given == [{"NVIDIA_VISIBLE_DEVICES": "void"}] * 2
    held = kubelet.pods["default/p"]["main"]
    for ids in (held[:1], held, held):
        with pytest.raises(
            Rejected, match=r"Pod default/p has no grant from Purser\. .*schedulerName: purser-scheduler"
        ):
            await kubelet.pre_start(ids)

    async def refusals():  # an audit may have said HoldsWithoutGrant before
        return [message for reason, message in await world.events("p") if reason == "NoGrant"]

    for message in await eventually(refusals):  # one, or one for each call
        assert message.startswith("Pod default/p has no grant")
    assert await agent.metric("purser_agent_refusals_total", **labels) == before + 3
    [other] = [uuid for uuid in world.uuids if uuid not in uuids_of(held)][:1]
    await world.pod("granted", part("main", other))
    await kubelet.admit("default/granted", [("main", 1)])
    await kubelet.pre_start(kubelet.pods["default/granted"]["main"])


@pytest.mark.parametrize(
    "how", [{"labels": {"purser.dev/webhook": "ignore"}}, {"labels": {"hami.io/webhook": "ignore"}}, {"scheduler": "x"}]
)
async def test_who_keeps_away_from_purser_holds_nothing_of_kubelets(world, kubelet, agent, how):
    """What kubelet lists for a pod that waits is kept from others, so that only those who missed the webhook may."""
    await world.pod("p", counts={"main": 1}, **how)
    with pytest.raises(Rejected, match=r"has no (valid )?grant from Purser"):
        await kubelet.admit("default/p", [("main", 1)])


async def test_a_grant_for_fewer_containers_than_ask_does_not_count(world, kubelet, agent):
    await world.pod("p", part("main", world.uuids[0]), counts={"main": 1, "more": 1})
    with pytest.raises(Rejected, match="covers 1 device for container main, but the pod requests 1 device"):
        await kubelet.admit("default/p", [("main", 1), ("more", 1)])


async def test_what_stays_ambiguous_is_refused(world, kubelet, agent):
    a, b, _, _ = world.uuids
    await world.pod("other", part("main", a))
    await world.pod("p", part("main", b))
    kubelet.pods["default/other"] = {"main": []}
    with pytest.raises(Rejected, match="several containers with different grants"):
        await kubelet.admit("default/p", [("main", 1)])
    ((reason, _),) = await eventually(lambda: world.events("p"))
    assert reason == RefusalReason.AMBIGUOUS


async def test_a_replaced_pod_holds_its_gpu_until_kubelet_hears_of_its_end(world, kubelet, agent):
    a, b, _, _ = world.uuids
    await world.pod("p", part("main", a, memory_mib=9000))
    await kubelet.admit("default/p", [("main", 1)])
    await kubelet.pre_start(kubelet.pods["default/p"]["main"])
    await world.delete_pod("p")
    await world.pod("p", part("main", b, memory_mib=9000))
    await world.pod("q", part("main", a, memory_mib=9000))
    with pytest.raises(Rejected, match=r"18000 MiB would be allocated, but the device has only \d+ MiB"):
        await kubelet.admit("default/q", [("main", 1)])
    kubelet.remove("default/q")
    await world.delete_pod("q")
    await world.pod("q", part("main", a, memory_mib=9000))
    kubelet.remove("default/p")
    await kubelet.admit("default/p", [("main", 1)])
    await kubelet.admit("default/q", [("main", 1)])
    assert uuids_of(kubelet.pods["default/p"]["main"]) == [b]


async def test_a_gpu_is_never_overcommitted_whatever_the_scheduler_signed(world, kubelet, agent):
    a, _, _, _ = world.uuids
    await world.pod("p", part("main", a, memory_mib=9000))
    await world.pod("q", part("main", a, memory_mib=9000))
    await kubelet.admit("default/p", [("main", 1)])
    with pytest.raises(Rejected, match=r"18000 MiB would be allocated, but the device has only \d+ MiB"):
        await kubelet.admit("default/q", [("main", 1)])
    kubelet.remove("default/q")
    await world.delete_pod("p")
    kubelet.remove("default/p")
    await eventually(lambda: _is_zero(agent, a))
    await world.pod("r", part("main", a, memory_mib=9000))
    await kubelet.admit("default/r", [("main", 1)])


async def _is_zero(agent, uuid):
    return await agent.metric("purser_device_granted_slots", uuid=uuid) == 0


async def test_ids_that_kubelet_chose_off_the_grant_are_refused(world, kubelet, agent):
    d = sorted(world.uuids)[-1]
    await world.pod("p", part("main", d))
    with pytest.raises(Rejected, match="does not match the grant"):
        await kubelet.admit("default/p", [("main", 1)], prefer=False)


async def test_who_holds_all_ids_of_a_granted_gpu_is_named(world, kubelet, agent):
    a, _, _, _ = world.uuids
    await world.pod("old", *(part(f"c{place}", a) for place in range(4)))
    await kubelet.admit("default/old", [(f"c{place}", 1) for place in range(4)])
    await world.delete_pod("old")  # by force: kubelet is still ending it
    await world.pod("p", part("main", a))
    with pytest.raises(Rejected, match=f"GPU {a} has no free device ID because pod default/old still holds it"):
        await kubelet.admit("default/p", [("main", 1)])
    assert await eventually(lambda: _events_for(world, "p", "DeviceOvercommitted"))


async def test_a_container_does_not_start_with_ids_that_are_not_its_grants(world, kubelet, agent):
    a, b, _, _ = world.uuids
    await world.pod("p", part("main", a))
    await kubelet.admit("default/p", [("main", 1)])
    kubelet.pods["default/p"]["main"] = [f"{b}::0"]
    with pytest.raises(Rejected, match="kubelet allocated"):
        await kubelet.pre_start([f"{b}::0"])
    with pytest.raises(Rejected, match="neither kubelet nor the agent has a record"):
        await kubelet.pre_start([f"{b}::3"])


async def test_pods_that_run_are_in_nobodys_way_once_kubelet_has_lost_its_record_of_devices(world, kubelet, agent):
    a, b, _, _ = world.uuids
    for name in ("p", "q"):
        await world.pod(name, part("main", a))
        await kubelet.admit(f"default/{name}", [("main", 1)])
        await world.set_phase(name, "Running")
        kubelet.pods[f"default/{name}"] = {"main": []}
        kubelet.held[f"default/{name}"] = set()
    for name, uuid in (("alike", a), ("elsewhere", b)):
        await world.pod(name, part("main", uuid))
        await kubelet.admit(f"default/{name}", [("main", 1)])
        assert uuids_of(kubelet.pods[f"default/{name}"]["main"]) == [uuid]
    await world.pod("too-large", part("main", a, memory_mib=14_000))
    with pytest.raises(Rejected, match="other pods were admitted first"):
        await kubelet.admit("default/too-large", [("main", 1)])
    kubelet.remove("default/too-large")
    await kubelet.admit("default/p", [("main", 1)])  # old ones ask for running pods again
    assert uuids_of(kubelet.pods["default/p"]["main"]) == [a]


async def test_kubelet_restarts_are_noticed_and_running_pods_keep_their_devices(world, kubelet, agent):
    a, _, _, _ = world.uuids
    await world.pod("p", part("main", a, memory_mib=9000))
    await kubelet.admit("default/p", [("main", 1)])
    seen, restarts = len(kubelet.registrations), await agent.metric("purser_agent_kubelet_restarts_total")
    await kubelet.restart()
    await eventually(lambda: len(kubelet.devices) == 16)
    assert len(kubelet.registrations) == seen + 1
    assert await agent.metric("purser_agent_kubelet_restarts_total") == restarts + 1
    await world.pod("q", part("main", a, memory_mib=9000))
    with pytest.raises(Rejected, match="MiB would be allocated"):
        await kubelet.admit("default/q", [("main", 1)])


async def test_a_vanished_socket_is_made_again(world, kubelet, agent):
    seen, restarts = len(kubelet.registrations), await agent.metric("purser_agent_kubelet_restarts_total")
    (kubelet.plugin_dir / "purser-nvidia-gpu.sock").unlink()
    await eventually(lambda: len(kubelet.registrations) == seen + 1 and len(kubelet.devices) == 16)
    assert await agent.metric("purser_agent_kubelet_restarts_total") == restarts


async def _events_for(world, name, reason):
    return [message for told, message in await world.events(name) if told == reason]


async def test_pods_on_a_gpu_get_an_event_for_a_programs_error(world, kubelet, agent):
    held, _, _, _ = world.uuids
    await world.pod("p", part("main", held))
    await kubelet.admit("default/p", [("main", 1)])
    world.driver.inject_xid(held, 31)
    said = await eventually(lambda: _events_for(world, "p", "GpuProgramError"))
    assert said[0].startswith(
        f"A program on GPU 0 ({held}) failed: Xid 31 (GPU memory page fault). Restart the program"
    )
    assert health_of(kubelet, held) == {"Healthy"}


async def test_a_removed_inventory_is_published_again(world, kubelet, agent):
    async def is_complete():
        """A test before this one may have had a GPU away."""
        text = await world.inventory_text()
        return text is not None and all(uuid in text for uuid in world.uuids)

    await eventually(is_complete)
    gone = {"metadata": {"annotations": {"purser.dev/inventory": None}}}
    await world.client.patch_merge(NODES, NODE, gone)
    await eventually(is_complete)


async def test_two_containers_in_one_allocate_are_refused(world, kubelet, agent):
    labels = {"method": "Allocate", "reason": RefusalReason.MALFORMED}
    before = await agent.metric(REFUSALS, **labels) or 0
    for count in (0, 2):
        with pytest.raises(grpc.aio.AioRpcError, match=f"one Allocate request has {count} containers"):
            await kubelet.plugin.Allocate(api_pb2.AllocateRequest(container_requests=[{}] * count))
    assert await agent.metric(REFUSALS, **labels) == before + 2


async def test_a_start_with_devices_that_nobody_was_given_is_refused(world, kubelet, agent):
    labels = {"method": "PreStartContainer", "reason": RefusalReason.MISMATCH}
    before = await agent.metric(REFUSALS, **labels) or 0
    with pytest.raises(grpc.aio.AioRpcError, match="neither kubelet nor the agent has a record"):
        await kubelet.plugin.PreStartContainer(api_pb2.PreStartContainerRequest(devices_ids=["GPU-other::0"]))
    assert await agent.metric(REFUSALS, **labels) == before + 1


async def test_reload_enumerates_gpus_again(world, kubelet, agent):
    removed = world.uuids[0]
    world.driver.remove_gpu(removed)
    agent.reload.set()
    await eventually(lambda: len(kubelet.devices) == 12)
    world.driver.restore_gpu(removed)
    agent.reload.set()
    await eventually(lambda: len(kubelet.devices) == 16)


async def test_what_a_pod_holds_of_a_gpu_that_is_gone_stays_listed_until_it_lets_go(world, kubelet, agent):
    gone = world.uuids[0]
    await world.pod("p", part("main", gone))
    await kubelet.admit("default/p", [("main", 1)])
    (held,) = kubelet.pods["default/p"]["main"]
    world.driver.remove_gpu(gone)
    agent.reload.set()
    await eventually(lambda: len(kubelet.devices) == 13)
    assert kubelet.devices[held].health == "Unhealthy"
    kubelet.remove("default/p")
    await world.delete_pod("p")
    await eventually(lambda: len(kubelet.devices) == 12)
    world.driver.restore_gpu(gone)
    agent.reload.set()
    await eventually(lambda: len(kubelet.devices) == 16)


async def test_without_the_schedulers_keys_the_refusal_says_where_they_should_be(world, kubelet, agent):
    await world.publish_keys()
    await world.pod("p", part("main", world.uuids[0]))
    with pytest.raises(Rejected, match="ConfigMap purser-system/purser-grant-keys is missing or empty"):
        await kubelet.admit("default/p", [("main", 1)])
    await world.publish_keys(world.key)
