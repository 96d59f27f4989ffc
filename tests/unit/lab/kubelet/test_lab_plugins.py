"""The kubelet's sockets, with a real plugin on the other end."""

import asyncio
import json
from contextlib import asynccontextmanager

import grpc
import pytest
from tests.unit.kube.servers import eventually
from tests.unit.lab.kubelet.rig import CHECKPOINT, GPU, Node, Plugin, container, devices, register, running, serving

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.core.kubelet import devicemanager
from purser.lab.kubelet.admission import AdmissionError, allocate_at_creation, lacks_devices, run_options
from purser.lab.kubelet.endpoints import PluginError
from purser.lab.kubelet.pods import containers_of

BOTH = pytest.mark.parametrize("version", ["v1.20.2", "v1.36.3"])


async def test_kubelet_asks_for_options_before_it_answers_register(node):
    async with serving(node, Plugin()) as plugin:
        await register(node)
        assert plugin.calls == [("options",)]


async def test_an_old_kubelet_answers_first_and_takes_the_options_from_the_request(folder):
    async with running(Node(folder, "v1.20.2")) as node, serving(node, Plugin()) as plugin:
        await register(node)
        await node.until_capacity(3)
        assert plugin.calls == []
        await node.admit("u1", container("c", 1))
        assert [call[0] for call in plugin.calls] == ["allocate"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [({"version": "v1"}, 'API version "v1" is not supported by kubelet'), ({"resource": "gpu"}, '"gpu" is invalid')],
)
async def test_bad_registrations_are_refused_in_kubelets_words(node, request_, message):
    with pytest.raises(grpc.aio.AioRpcError, match=message):
        await register(node, **request_)


async def test_the_pod_under_admission_is_listed_without_devices_and_later_with_them(node, plugin):
    seen = []

    async def look():
        seen.append(await node.list())

    plugin.during_allocate = look
    await node.admit("u1", container("one", 1), container("two", 2))
    assert seen == [
        {"pod-u1": {"one": [], "two": []}},
        {"pod-u1": {"one": ["c"], "two": []}},
    ]
    assert await node.list() == {"pod-u1": {"one": ["c"], "two": ["a", "b"]}}


async def test_an_app_container_gets_the_init_containers_devices_without_a_question(node, plugin):
    await node.admit("u1", container("main", 1), init=[container("prepare", 1)])
    assert plugin.calls == [
        ("options",),
        ("preferred", ["a", "b", "c"], 1),
        ("allocate", ["c"]),
        ("allocate", ["c"]),
    ]


async def test_a_refused_allocate_is_an_unexpected_admission_error(node, plugin):
    plugin.failure = "no grant for this pod"
    with pytest.raises(AdmissionError) as caught:
        await node.admit("u1", container("c", 1))
    assert caught.value.reason == "UnexpectedAdmissionError"
    assert caught.value.message == (
        "Allocate failed due to rpc error: code = FailedPrecondition desc = no grant for this pod, which is unexpected"
    )


async def test_run_options_come_after_pre_start_and_carry_the_plugins_environment(node, plugin):
    pod = await node.admit("u1", container("c", 2))
    options = await run_options(node.books, node.endpoints, "u1", next(iter(containers_of(pod))))
    assert options.env == {"VISIBLE": "b,c"}
    assert plugin.calls[-1] == ("pre-start", ["b", "c"])


async def test_what_kubelet_did_not_know_at_admission_is_allocated_when_the_container_is_created(folder):
    async with running(Node(folder, "v1.20.2")) as node, serving(node, Plugin()) as plugin:
        pods = [await node.admit(uid, container("c", 2)) for uid in ("u1", "u2")]
        (view,) = containers_of(pods[0])
        assert not lacks_devices(node.books, "u1", view)
        await register(node)
        await node.until_capacity(3)
        assert lacks_devices(node.books, "u1", view)
        await allocate_at_creation(node.books, node.endpoints, pods[0], "c", {"u1", "u2"})
        assert not lacks_devices(node.books, "u1", view)
        assert (await run_options(node.books, node.endpoints, "u1", view)).env == {"VISIBLE": "a,b"}
        assert [call[0] for call in plugin.calls] == ["allocate"]
        with pytest.raises(PluginError, match="Requested: 2, Available: 1"):
            await allocate_at_creation(node.books, node.endpoints, pods[1], "c", {"u1", "u2"})


async def test_a_plugin_that_ends_leaves_unhealthy_devices(node):
    async with serving(node, Plugin()) as plugin:
        await register(node)
        await node.until_capacity(3)
        plugin.devices.put_nowait(None)
        await node.until_capacity(0, listed=3)


async def test_a_restarted_kubelet_empties_sockets_and_remembers_who_holds_what(folder):
    async with running(Node(folder)) as before, serving(before, Plugin()):
        await register(before)
        await before.until_capacity(3)
        await before.admit("u1", container("c", 1))
    stray = folder / "device-plugins" / "note.txt"
    stray.write_text("kept")
    after = Node(folder)
    async with running(after):
        names = {path.name for path in (folder / "device-plugins").iterdir()}
        assert names == {"kubelet.sock", CHECKPOINT, "note.txt"}
        assert json.loads(after.checkpoint.read_text())["Data"]["PodDeviceEntries"][0]["PodUID"] == "u1"
        async with serving(after, Plugin()) as plugin:
            await register(after)
            await after.until_capacity(3)
            after.pods["u1"] = {"metadata": {"name": "pod-u1"}, "spec": {}}
            await after.admit("u2", container("c", 2))
            assert plugin.calls[-1] == ("allocate", ["a", "b"])


@pytest.mark.parametrize(("version", "left"), [("v1.20.2", set()), ("v1.36.2", {"note.txt"})])
async def test_an_old_kubelet_empties_the_plugin_folder_of_every_file(folder, version, left):
    (folder / "device-plugins/kept").mkdir(parents=True)
    (folder / "device-plugins/note.txt").write_text("a note")
    async with running(Node(folder, version)) as node:
        assert {path.name for path in node.plugin_folder.iterdir()} == {"kept", "kubelet.sock", *left}


@asynccontextmanager
async def two_plugins(node):
    """The older and the newer plugin of one resource."""
    async with serving(node, Plugin()) as older:
        await register(node)
        await node.until_capacity(3)
        async with serving(node, Plugin(("n",)), node.plugin_folder / "newer.sock") as newer:
            await register(node, endpoint="newer.sock")
            await node.until_capacity(1)
            yield older, newer


@BOTH
async def test_of_two_plugins_of_a_resource_both_list_and_the_newer_one_allocates(folder, version):
    async with running(Node(folder, version)) as node, two_plugins(node) as (older, newer):
        older.devices.put_nowait(devices(("x", "y")))
        await node.until_capacity(2)
        await node.admit("u1", container("c", 2))
        assert newer.calls[-1] == ("allocate", ["x", "y"])


async def test_the_end_of_the_older_plugin_ends_the_newer_one_and_what_it_is_asked(node):
    async with two_plugins(node) as (older, newer):

        async def older_ends():
            older.devices.put_nowait(None)
            await asyncio.Event().wait()

        newer.during_allocate = older_ends
        with pytest.raises(AdmissionError, match="code = Canceled desc = grpc: the client connection is closing"):
            await node.admit("u1", container("c", 1))
        await node.until_capacity(0, listed=1)
        await register(node, endpoint="newer.sock")
        newer.during_allocate = None
        newer.devices.put_nowait(devices(("n",)))
        await node.until_capacity(1)
        await node.admit("u2", container("c", 1))


async def test_an_old_kubelet_minds_the_end_of_the_newest_plugin_only(folder):
    async with running(Node(folder, "v1.24.17")) as node, two_plugins(node) as (older, newer):
        older.devices.put_nowait(None)
        newer.devices.put_nowait(devices(("n", "m")))
        await node.until_capacity(2)
        await node.admit("u1", container("c", 2))
        newer.devices.put_nowait(None)
        await node.until_capacity(0, listed=2)


async def test_kubelet_1_37_goes_on_with_the_plugin_that_is_left(folder):
    async with running(Node(folder, "v1.37.2")) as node, two_plugins(node) as (older, newer):
        newer.devices.put_nowait(None)
        await eventually(lambda: len(node.endpoints._connected[GPU]) == 1)
        older.devices.put_nowait(devices(("o", "p")))
        await node.until_capacity(2)
        await node.admit("u1", container("c", 1))
        assert older.calls[-1][0] == "allocate"
        older.devices.put_nowait(None)
        await node.until_capacity(0, listed=2)


async def test_kubelet_1_37_never_takes_a_socket_again_that_registered_while_it_was_connected(folder):
    async with running(Node(folder, "v1.37.2")) as node, serving(node, Plugin()) as plugin:
        await register(node)
        await node.until_capacity(3)
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match=r"device plugin already connected: .*/fake\.sock"):
                await register(node)
        plugin.devices.put_nowait(None)
        async with serving(node, Plugin(("x",)), node.plugin_folder / "other.sock"):
            await register(node, endpoint="other.sock")
            await node.until_capacity(1)


@pytest.mark.parametrize(
    ("version", "printed"),
    [
        ("v1.33.13", "&AllocateResponse{ContainerResponses:[]*ContainerAllocateResponse{},}"),
        ("v1.34.0", ""),
    ],
)
async def test_an_answer_without_containers_is_reported_as_the_version_prints_it(folder, version, printed):
    async with running(Node(folder, version)) as node, serving(node, Plugin()) as plugin:
        plugin.answer = api_pb2.AllocateResponse()
        await register(node)
        await node.until_capacity(3)
        with pytest.raises(AdmissionError) as caught:
            await node.admit("u1", container("c", 1))
        assert caught.value.message == (
            f"Allocate failed due to no containers return in allocation response {printed}, which is unexpected"
        )


@pytest.mark.parametrize(("version", "names"), [("v1.28.15", ()), ("v1.29.0", ("vendor.com/gpu=0",))])
async def test_cdi_devices_of_an_answer_reach_the_runtime_since_they_are_on(folder, version, names):
    async with running(Node(folder, version)) as node, serving(node, Plugin()) as plugin:
        plugin.answer = api_pb2.AllocateResponse(container_responses=[{"cdi_devices": [{"name": "vendor.com/gpu=0"}]}])
        await register(node)
        await node.until_capacity(3)
        (view,) = containers_of(await node.admit("u1", container("c", 1)))
        assert (await run_options(node.books, node.endpoints, "u1", view)).cdi_devices == names


async def test_a_pod_for_a_forgotten_resource_is_out_of_it(node, plugin):
    node.books.tell(devicemanager.stop(node.books.devices, GPU, 0.0))
    node.books.forget_expired(301.0)
    with pytest.raises(AdmissionError) as caught:
        await node.admit("u1", container("c", 1))
    assert caught.value.reason == "OutOfnvidia.com/gpu"
    assert caught.value.message == (
        "Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 0, capacity: 0"
    )
