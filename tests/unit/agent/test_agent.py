"""The whole agent against a kubelet, an API server and a driver library, over their real protocols."""

import asyncio

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.agent.builders import NODE, init, part
from tests.unit.agent.conftest import DEADLINE_S, eventually, health_of, hold_sleeps, node_writes, uuids_of
from tests.unit.agent.emulated_kubelet import Rejected, kubelet_in

from purser.agent.kubelet.refusals import RefusalReason
from purser.agent.nvml import NullDriver
from purser.agent.reasons import AgentReason
from purser.agent.reporting.publisher import Publisher
from purser.agent.settings import DevicePluginFlags, SharingSettings
from purser.core.grant.signing import sign
from purser.core.model import Grant
from purser.core.names import AGENT_STOPPING, AWAITS_GRANT_ANNOTATION, HEALTH_CONDITION
from purser.core.vendors.hami_nodes import REGISTER_ANNOTATION, read_gpus
from purser.core.vendors.volcano_nodes import VGPU_REGISTER_ANNOTATION
from purser.kube.backoff import Backoff
from purser.kube.resources import NODES, PODS

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

UNLIKE_OTHERS_S = 12345.0
"""Of a sleep that is held: nothing else sleeps for as long."""


def calls_of(driver, method):
    """What this method of a driver is called with from now on."""
    call, calls = getattr(driver, method), []

    def noted(*args):
        calls.append(args)
        return call(*args)

    setattr(driver, method, noted)
    return calls


@pytest.mark.parametrize("modern", [True, False], ids=["calls back before it answers", "answers at once"])
async def test_both_generations_of_kubelet_learn_the_devices(world, folder, modern):
    async with kubelet_in(folder, modern) as kubelet, world.agent(slots=2) as agent:
        await eventually(agent.ready)
        await eventually(lambda: len(kubelet.devices) == 8)
        ((request, options),) = kubelet.registrations
        assert (request.resource_name, request.endpoint) == ("nvidia.com/gpu", "purser-nvidia-gpu.sock")
        assert (options.pre_start_required, options.get_preferred_allocation_available) == (True, True)
        device = kubelet.devices[f"{world.uuids[0]}::1"]
        assert device.health == "Healthy"
        assert list(kubelet.devices) == sorted(kubelet.devices)


async def test_a_socket_that_kubelet_takes_for_connected_is_left_for_another_one(world, kubelet):
    kubelet.taken_sockets = {"purser-nvidia-gpu.sock", "purser-nvidia-gpu+2.sock"}
    async with world.agent(slots=2, retry_initial_s=0.01) as agent:
        await eventually(agent.ready)
        ((request, _),) = kubelet.registrations
        assert request.endpoint == "purser-nvidia-gpu+3.sock"
    assert not list(kubelet.plugin_dir.glob("purser-*"))


async def test_a_new_key_of_the_scheduler_is_learned_while_running(world, kubelet):
    new = Ed25519PrivateKey.generate()
    async with world.agent(resolve_timeout_s=10) as agent:
        await eventually(agent.ready)
        await world.pod("p", part("main", world.uuids[0]), key=new)
        await world.publish_keys(world.key, new)
        await kubelet.admit("default/p", [("main", 1)])


async def test_a_rejected_pod_that_kubelet_still_lists_is_passed_over_once_it_has_failed(world, kubelet):
    a, b, _, _ = world.uuids
    async with world.agent(resolve_timeout_s=10) as agent:
        await eventually(agent.ready)
        await world.pod("rejected", part("main", a))
        await world.pod("p", part("main", b))
        kubelet.pods["default/rejected"] = {"main": []}
        admitting = asyncio.create_task(kubelet.admit("default/p", [("main", 1)]))
        await eventually(lambda: kubelet.lists > 2)
        await world.set_phase("rejected", "Failed")
        await admitting
        assert uuids_of(kubelet.pods["default/p"]["main"]) == [b]


async def test_an_id_that_kubelet_forgot_to_have_given_is_not_given_twice(world, kubelet):
    uuid = world.uuids[0]
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("first", part("main", uuid, memory_mib=1000))
        await kubelet.admit("default/first", [("main", 1)])
        await world.pod("second", part("main", uuid, memory_mib=2000))
        kubelet.held["default/first"] = set()
        await kubelet.admit("default/second", [("main", 1)])
        await world.pod("waits", counts={"main": 1})
        kubelet.held["default/second"] = set()
        await kubelet.admit("default/waits", [("main", 1)])
        first, second, waits = (kubelet.pods[f"default/{name}"]["main"] for name in ("first", "second", "waits"))
        assert len({*first, *second, *waits}) == 3
        await kubelet.pre_start(first)
        await kubelet.pre_start(second)
        with pytest.raises(Rejected, match="has no grant from Purser"):
            await kubelet.pre_start(waits)


async def test_a_pod_deleted_before_its_admission_keeps_nobody_waiting(world, kubelet):
    """Were its refusal not final at once, this test would take as long as the agent waits for grants."""
    a, b, _, _ = world.uuids
    async with world.agent(resolve_timeout_s=DEADLINE_S * 10) as agent:
        await eventually(agent.ready)
        await world.pod("deleted", part("main", a))
        await world.delete_pod("deleted")
        with pytest.raises(Rejected, match=r"no longer exists on the API server: default/deleted"):
            await kubelet.admit("default/deleted", [("main", 1)])
        await world.pod("p", part("main", b))
        await kubelet.admit("default/p", [("main", 1)])
        assert uuids_of(kubelet.pods["default/p"]["main"]) == [b]


async def test_a_share_on_a_node_with_hami_core_gets_its_library_and_a_folder(world, kubelet):
    a, _, _, _ = world.uuids
    library = world.folder / "host/usr/local/vgpu"
    library.mkdir(parents=True)
    for name in ("libvgpu.so", "ld.so.preload"):
        (library / name).touch()
    async with world.agent() as agent:
        await eventually(agent.ready)
        grant = await world.pod("p", part("main", a))
        responses = await kubelet.admit("default/p", [("main", 1)])
        assert responses["main"].envs["PURSER_GPU_ENFORCEMENT"] == "hami-core"
        (event,) = await eventually(lambda: world.events("p"))
        assert event[0] == "EnforcementChanged"
        assert "enforcement for container main is hami-core, not none as its grant says" in event[1]
        assert [mount.container_path for mount in responses["main"].mounts][:2] == [
            "/usr/local/vgpu",
            "/usr/local/vgpu/libvgpu.so",
        ]
        cache = library / "containers" / f"{grant.pod_uid}_main"
        assert cache.stat().st_mode & 0o777 == 0o777
        kubelet.remove("default/p")
        await world.set_phase("p", "Succeeded")
        await eventually(lambda: not cache.exists())
        await world.pod("required", part("main", a), required=True)
        await kubelet.admit("default/required", [("main", 1)])
        (library / "libvgpu.so").unlink()
        await world.pod("late", part("main", a), required=True)
        with pytest.raises(Rejected, match="requires enforcement, but its share is no longer enforced"):
            await kubelet.admit("default/late", [("main", 1)])
        assert (await eventually(lambda: world.events("late")))[0][0] == "EnforcementLost"


async def test_a_folder_that_cannot_be_made_is_a_refusal(world, kubelet):
    library = world.folder / "host/usr/local/vgpu"
    library.mkdir(parents=True)
    for name in ("libvgpu.so", "ld.so.preload", "containers"):
        (library / name).touch()
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("p", part("main", world.uuids[0]))
        with pytest.raises(Rejected, match="cannot create a folder on the host"):
            await kubelet.admit("default/p", [("main", 1)])
        assert RefusalReason.HOST in dict(await eventually(lambda: world.events("p")))


async def test_a_stream_that_kubelet_does_not_reopen_leads_to_a_new_registration(world, kubelet):
    async with world.agent(stream_timeout_s=0.3) as agent:
        await eventually(agent.ready)
        before = len(kubelet.registrations)  # on a busy machine the first one may have come too late
        kubelet.drop_streams()
        await eventually(lambda: len(kubelet.registrations) > before and len(kubelet.devices) == 16)


async def test_the_agent_waits_for_kubelet_and_says_so(world, folder):
    async with world.agent() as agent:
        await eventually(lambda: _says(agent, "waiting for kubelet"))
        plugins = folder / "device-plugins"
        plugins.mkdir()
        (plugins / "kubelet.sock").touch()
        await eventually(lambda: _says(agent, "UNAVAILABLE"))
        async with kubelet_in(folder):
            await eventually(agent.ready)


async def _says(agent, text):
    status, body = await agent.get("/readyz")
    return status == 503 and text in body


async def test_the_agent_waits_for_a_driver_and_finds_it(world, kubelet):
    none, looks, installed = NullDriver("no libnvidia-ml.so.1"), [], []

    def find_driver():
        looks.append("look")
        return world.driver.open() if installed else none

    async with world.agent(none, find_driver, reopen_interval_s=0.05) as agent:
        await eventually(lambda: len(looks) > 2)
        await eventually(lambda: _says(agent, "no libnvidia-ml.so.1"))
        assert not kubelet.registrations
        installed.append("driver")
        await eventually(lambda: len(kubelet.devices) == 16)
        await eventually(agent.ready)


async def test_a_dead_gpu_is_unhealthy_everywhere_and_comes_back(world, kubelet):
    dead, alive, _, _ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("holds", part("main", dead))
        await kubelet.admit("default/holds", [("main", 1)])
        world.driver.lose_gpu(dead)
        await eventually(lambda: kubelet.devices and health_of(kubelet, dead) == {"Unhealthy"})
        assert health_of(kubelet, alive) == {"Healthy"}
        assert await agent.metric("purser_device_healthy", uuid=dead) == 0
        await eventually(lambda: _in_inventory(world, "Xid 79"))
        said = dict(await eventually(lambda: world.events(NODE)))
        assert said["GpuUnhealthy"].startswith(f"GPU 0 ({dead}) is unhealthy: ")
        await world.pod("p", part("main", alive))
        await kubelet.admit("default/p", [("main", 1)])
        world.driver.recover_gpu(dead)
        await eventually(lambda: health_of(kubelet, dead) == {"Healthy"})
        await eventually(lambda: _not_in_inventory(world, '"healthy":false'))
        await eventually(lambda: _events_of_node(world, "GpuRecovered", 1))
        await eventually(lambda: _no_condition(world))
        (_, failed), (reason, recovered) = await eventually(lambda: _held_gpu_events(world, "holds"))
        assert failed.startswith(f"GPU 0 ({dead}), which this pod holds, is unhealthy: ")
        assert failed.endswith("If you recreate the pod, the new pod gets another GPU")
        assert recovered == f"GPU 0 ({dead}), which this pod holds, is healthy again"
        assert reason == AgentReason.HELD_GPU_RECOVERED
        assert not await world.events("p")


async def _held_gpu_events(world, pod):
    found = await world.events(pod)
    return sorted(found, key=lambda each: each[0] != "HeldGpuUnhealthy") if len(found) == 2 else None


async def test_a_refused_condition_is_written_later_though_the_node_rests(world, kubelet, api, monkeypatch):
    monkeypatch.setattr("purser.agent.reporting.publisher.Backoff", lambda **_: Backoff(initial_s=0.01, cap_s=0.02))
    refused = []

    async def refuse(request):
        if request.method == "PATCH" and request.path.endswith("/status") and b"conditions" in await request.read():
            refused.append(request.path)
            if len(refused) <= REFUSALS:
                return web.json_response({"code": 500, "reason": "InternalError", "message": "no"}, status=500)
        return None

    api.intercept(refuse)
    try:
        async with world.agent(probe_interval_s=60) as agent:
            await eventually(agent.ready)
            world.driver.lose_gpu(world.uuids[0])
            status, _ = await eventually(lambda: _condition(world))
    finally:
        api.intercept(None)
    assert status == "True"
    assert len(refused) > REFUSALS


REFUSALS = 6
"""More than there are events of the node: of the inventory, the amounts and those again."""


async def _condition(world):
    found = (await world.client.get(NODES, NODE)).status.conditions
    return next(((each.status, each.message) for each in found if each.type == HEALTH_CONDITION), None)


async def _no_condition(world):
    return await _condition(world) is None


async def _events_of_node(world, reason, count):
    return [told for told, _ in await world.events(NODE)].count(reason) == count


async def test_kubelet_hears_of_a_recovered_gpu_before_the_scheduler_does(world, kubelet, monkeypatch):
    monkeypatch.setattr("purser.agent.reporting.publisher.KUBELET_HEAD_START_S", UNLIKE_OTHERS_S)
    begun, over = hold_sleeps(monkeypatch, UNLIKE_OTHERS_S)
    card = world.uuids[0]
    async with world.agent(probe_interval_s=0.1) as agent:
        await eventually(agent.ready)
        world.driver.lose_gpu(card, xid=None)
        await eventually(lambda: _in_inventory(world, '"healthy":false'))
        world.driver.recover_gpu(card)
        async with asyncio.timeout(DEADLINE_S):
            await begun.wait()
        await eventually(lambda: health_of(kubelet, card) == {"Healthy"})
        assert await _in_inventory(world, '"healthy":false')
        over.set()
        await eventually(lambda: _not_in_inventory(world, '"healthy":false'))


async def _in_inventory(world, text):
    return text in await world.inventory_text()


async def _not_in_inventory(world, text):
    return text not in await world.inventory_text()


async def test_the_inventory_is_written_once_while_nothing_changes(world, kubelet, api):
    driver = world.driver.open()
    reads = calls_of(driver, "read")
    async with world.agent(driver, probe_interval_s=0.01) as agent:
        await eventually(agent.ready)
        await world.published_again()  # after the last write of its start
        before = await world.inventory_text()
        with node_writes(api) as written:
            reads.clear()
            await eventually(lambda: len(reads) > 30 * len(world.uuids))
            await world.published_again()
        assert written == [f"/api/v1/nodes/{NODE}"] * 2
        assert await world.inventory_text() == before


async def test_after_a_restart_the_book_is_as_before(world, kubelet):
    a, b, _, _ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("p", init("prepare", a, memory_mib=9000), part("main", a, memory_mib=8000))
        await world.pod("gone", part("main", b, memory_mib=9000))
        await kubelet.admit("default/p", [("main", 1)], init=[("prepare", 1)])
        await kubelet.admit("default/gone", [("main", 1)])
    assert (await agent.task) is None
    assert not (kubelet.plugin_dir / "purser-nvidia-gpu.sock").exists()
    await world.delete_pod("gone")
    kubelet.remove("default/gone")
    async with world.agent() as agent:
        await eventually(agent.ready)
        assert await agent.metric("purser_device_granted_memory_bytes", uuid=a) == 9000 * 1024 * 1024
        assert await agent.metric("purser_device_granted_memory_bytes", uuid=b) == 0
        await kubelet.pre_start(kubelet.pods["default/p"]["main"])


async def test_a_corrupt_checkpoint_is_rebuilt_from_kubelet_and_the_api(world, kubelet):
    a, _, _, _ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("p", part("main", a, memory_mib=9000))
        await kubelet.admit("default/p", [("main", 1)])
    (world.folder / "state" / "agent-checkpoint.json").write_text('{"node": ')
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("q", part("main", a, memory_mib=9000))
        with pytest.raises(Rejected, match="MiB would be allocated"):
            await kubelet.admit("default/q", [("main", 1)])


async def test_an_agent_that_stops_withdraws_its_gpus_first_and_serves_bound_pods(world, kubelet, monkeypatch):
    monkeypatch.setattr("purser.agent.reporting.publisher.LEAVING_NOTICE_TIMEOUT_S", DEADLINE_S)
    ready, go = asyncio.Event(), asyncio.Event()
    begun, over = hold_sleeps(monkeypatch, UNLIKE_OTHERS_S)

    async def one():
        async with world.agent(in_flight_s=UNLIKE_OTHERS_S) as agent:
            await eventually(agent.ready)
            ready.set()
            await go.wait()

    running = asyncio.create_task(one())
    await ready.wait()
    await world.pod("bound", part("main", world.uuids[0]))
    go.set()
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
    assert (await world.inventory_text()).count('"healthy":false') == len(world.uuids)
    assert {each.health for each in kubelet.devices.values()} == {"Healthy"}
    await kubelet.admit("default/bound", [("main", 1)])
    over.set()
    await running
    async with world.agent() as agent:
        await eventually(agent.ready)
        await eventually(lambda: _not_in_inventory(world, AGENT_STOPPING))


async def test_gpus_are_to_be_had_again_once_kubelet_has_asked_for_them(world, kubelet, monkeypatch):
    monkeypatch.setattr("purser.agent.reporting.publisher.KUBELET_HEAD_START_S", 0.0)
    for deadline in ("KUBELET_LIST_TIMEOUT_S", "LEAVING_NOTICE_TIMEOUT_S"):
        monkeypatch.setattr(f"purser.agent.reporting.publisher.{deadline}", DEADLINE_S)
    async with world.agent() as agent:
        await eventually(agent.ready)
    assert AGENT_STOPPING in await world.inventory_text()
    await kubelet.stop()
    wait_for_kubelet, order = Publisher._wait_for_kubelet, []

    async def noted(publisher):
        order.append("the agent waits")
        await wait_for_kubelet(publisher)
        order.append("it publishes")

    monkeypatch.setattr(Publisher, "_wait_for_kubelet", noted)
    async with world.agent() as agent:
        await eventually(lambda: order)
        assert AGENT_STOPPING in await world.inventory_text()
        order.append("kubelet is there")
        await kubelet.start()
        await eventually(lambda: _not_in_inventory(world, AGENT_STOPPING))
        assert order[:3] == ["the agent waits", "kubelet is there", "it publishes"]
        assert await agent.metric("purser_agent_streams") == 1


async def test_where_the_informer_lags_the_api_server_is_asked_for_the_pod_itself(world, kubelet, api):
    """Watches of pods fail from the start, so the informer knows none of these pods, nor that one of them ends."""
    a, _, _, _ = world.uuids
    api.intercept(_no_pod_watches)
    try:
        async with world.agent() as agent:
            await eventually(agent.ready)
            await world.pod("p", part("main", a, memory_mib=9000))
            await kubelet.admit("default/p", [("main", 1)])
            await kubelet.pre_start(kubelet.pods["default/p"]["main"])
            await world.set_phase("p", "Succeeded")
            kubelet.remove("default/p")
            await world.pod("q", part("main", a, memory_mib=9000))
            await kubelet.admit("default/q", [("main", 1)])
            assert await agent.metric("purser_grant_memory_bytes", pod="q") == 9000 * 1024 * 1024
            assert await agent.metric("purser_grant_memory_bytes", pod="p") is None
            await world.pod("refused", counts={"main": 1})
            await kubelet.admit("default/refused", [("main", 1)])
            with pytest.raises(Rejected, match=r"has no (valid )?grant from Purser"):
                await kubelet.pre_start(kubelet.pods["default/refused"]["main"])
            (event,) = await eventually(lambda: world.events("refused"))
            assert event[0] == "NoGrant"
    finally:
        api.intercept(None)


async def test_where_the_informer_lags_no_replaced_pod_gets_what_its_namesake_was_granted(world, kubelet, api):
    """As far as the agent heard, both pods have the same grant, and either would do."""
    a, b, _, _ = world.uuids
    await world.pod("p", part("main", a))
    await world.pod("rejected", part("main", a))
    api.intercept(_no_pod_watches)
    try:
        async with world.agent(resolve_timeout_s=10) as agent:
            await eventually(agent.ready)
            await world.delete_pod("p")
            await world.pod("p", part("main", b))
            kubelet.pods["default/rejected"] = {"main": []}
            admitting = asyncio.create_task(kubelet.admit("default/p", [("main", 1)]))
            await eventually(lambda: kubelet.lists > 2 or admitting.done())
            await world.set_phase("rejected", "Failed")
            await admitting
            assert uuids_of(kubelet.pods["default/p"]["main"]) == [b]
    finally:
        api.intercept(None)


async def _no_pod_watches(request):
    if request.path == "/api/v1/pods" and "watch" in request.query:
        return web.Response(status=503)
    return None


@pytest.mark.gate
async def test_with_the_api_server_away_running_pods_restart_and_a_known_pod_is_admitted(world, kubelet, api):
    a, b, _, _ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("running", part("main", a))
        await kubelet.admit("default/running", [("main", 1)])
        await world.pod("p", part("main", b))
        await eventually(lambda: _knows_pod(kubelet, "default/p"))
        await api.stop()
        try:
            await kubelet.restart()
            await eventually(lambda: len(kubelet.devices) == 16)
            await kubelet.pre_start(kubelet.pods["default/running"]["main"])
            await kubelet.admit("default/p", [("main", 1)])
        finally:
            await api.start()


async def _knows_pod(kubelet, key):
    """A preferred allocation changes nothing, and is answered for a pod that the agent knows."""
    kubelet.pods[key] = {"main": []}
    await kubelet._preferred(kubelet.plugin, kubelet.free, [], 1)
    return True


async def test_metrics_name_every_gpu_and_every_grant(world, kubelet):
    a, _, _, _ = world.uuids
    async with world.agent() as agent:
        await eventually(agent.ready)
        world.driver.set_memory_used(a, 1234)
        await world.pod("p", part("main", a, memory_mib=100, cores_percent=100))
        await kubelet.admit("default/p", [("main", 1)])
        await eventually(lambda: _is(agent, 1234 * 1024 * 1024, "purser_device_memory_used_bytes", uuid=a))
        assert await agent.metric("purser_device_info", uuid=a, index="0", mode="shared") == 1
        assert await agent.metric("purser_device_slots", uuid=a) == 4
        assert await agent.metric("purser_device_healthy", uuid=a, reason="") == 1
        assert await agent.metric("purser_grant_cores_ratio", container="main", enforcement="whole-device") == 1
        assert await agent.metric("purser_agent_call_seconds_count", method="Allocate") == 1
        assert await agent.metric("purser_agent_registrations_total") == 1
        assert await agent.metric("purser_agent_registered") == 1
        assert await agent.metric("purser_agent_streams") == 1
        assert (await agent.get("/healthz")) == (200, "ok\n")


async def _is(agent, value, name, **labels):
    return await agent.metric(name, **labels) == value


async def test_device_files_are_named_where_that_is_asked_for(world, kubelet):
    dev = world.folder / "host/dev"
    dev.mkdir(parents=True)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "sda"):
        (dev / name).touch()
    b = world.uuids[1]
    async with world.agent(sharing=SharingSettings(flags=DevicePluginFlags(pass_device_specs=True))) as agent:
        await eventually(agent.ready)
        await world.pod("p", part("main", b))
        responses = await kubelet.admit("default/p", [("main", 1)])
        assert [device.host_path for device in responses["main"].devices] == [
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia1",
        ]
        assert {device.permissions for device in responses["main"].devices} == {"rw"}


async def test_hamis_scheduler_is_told_of_the_gpus_where_it_knows_the_node_and_its_pods_wait_for_a_grant(
    world, kubelet
):
    a, _, _, _ = world.uuids
    async with world.agent(resolve_timeout_s=10) as agent:
        await eventually(agent.ready)
        assert REGISTER_ANNOTATION not in await _annotations(world)
        known = {REGISTER_ANNOTATION: "[]", VGPU_REGISTER_ANNOTATION: ""}
        await world.client.patch_merge(NODES, NODE, {"metadata": {"annotations": known}})

        async def registered():
            return read_gpus((await _annotations(world))[REGISTER_ANNOTATION])

        gpus = await eventually(registered)
        assert [(gpu.id, gpu.type, gpu.health) for gpu in gpus] == [
            (uuid, "NVIDIA-Tesla T4", True) for uuid in world.uuids
        ]
        said = (await _annotations(world))[VGPU_REGISTER_ANNOTATION].split(":")
        assert said == [*(f"{uuid},4,15360,NVIDIA-Tesla T4,true,hami-core" for uuid in world.uuids), ""]
        theirs = {"hami.io/vgpu-node": NODE, "hami.io/bind-phase": "allocating"}
        pod = await world.pod("p", counts={"main": 1}, annotations=theirs)
        admitting = asyncio.create_task(kubelet.admit("default/p", [("main", 1)]))
        await eventually(lambda: kubelet.lists > 2)
        signed = sign(Grant(pod.pod_uid, "default", "p", NODE, (part("main", a),)), world.key)
        await world.client.patch_merge(
            PODS, "p", {"metadata": {"annotations": signed}}, "default", subresource="status"
        )
        await admitting
        assert uuids_of(kubelet.pods["default/p"]["main"]) == [a]
    unknown = {"annotations": {REGISTER_ANNOTATION: None, VGPU_REGISTER_ANNOTATION: None}}
    await world.client.patch_merge(NODES, NODE, {"metadata": unknown})


async def test_a_pod_of_another_scheduler_that_is_served_waits_for_its_grant_or_for_word_that_there_is_none(
    world, kubelet
):
    a, _, _, _ = world.uuids
    async with world.agent(resolve_timeout_s=10) as agent:
        await eventually(agent.ready)
        for name, gets in (("served", True), ("refused", False)):
            pod = await world.pod(name, counts={"main": 1}, annotations={AWAITS_GRANT_ANNOTATION: "true"})
            lists, admitting = kubelet.lists, asyncio.create_task(kubelet.admit(f"default/{name}", [("main", 1)]))
            await eventually(lambda lists=lists: kubelet.lists > lists + 2)
            said = {AWAITS_GRANT_ANNOTATION: "false"}
            if gets:
                said = sign(Grant(pod.pod_uid, "default", name, NODE, (part("main", a),)), world.key)
            patch = {"metadata": {"annotations": said}}
            await world.client.patch_merge(PODS, name, patch, "default", subresource="status")
            if gets:
                await admitting
                assert uuids_of(kubelet.pods[f"default/{name}"]["main"]) == [a]
            else:
                with pytest.raises(Rejected, match=r"has no (valid )?grant from Purser"):
                    await admitting


async def _annotations(world):
    return (await world.client.get(NODES, NODE)).metadata.annotations
