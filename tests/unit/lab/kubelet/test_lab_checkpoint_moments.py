"""When kubelet writes its device checkpoint, which is less often than its books change (seen on the real 1.20.2)."""

import tempfile
from pathlib import Path

import pytest
from tests.unit.lab.kubelet.rig import CHECKPOINT, GPU, Node, Plugin, container, register, running, serving

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.core.kubelet import managers
from purser.core.kubelet.devicemanager import checkpoint
from purser.lab.kubelet.admission import AdmissionError, run_options
from purser.lab.kubelet.endpoints import PluginError
from purser.lab.kubelet.pods import ContainerView
from purser.lab.kubelet.statefiles import StateFiles


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="pk-") as name:
        yield Path(name)


@pytest.fixture
async def node(folder):
    async with running(Node(folder, "v1.20.2")) as node:
        yield node


def saved(node):
    found = checkpoint.decode(node.checkpoint.read_bytes())
    return {key: sorted(held[GPU].device_ids) for key, held in found.held.items() if GPU in held}


async def test_not_at_the_start(node):
    assert not node.checkpoint.exists()


async def test_with_a_plugins_list_and_with_devices_but_not_when_they_come_free(node):
    async with serving(node, Plugin()):
        await register(node)
        await node.until_capacity(3)
        assert checkpoint.decode(node.checkpoint.read_bytes()).registered[GPU]
        await node.admit("u1", container("c", 1))
        assert list(saved(node)) == [("u1", "c")]
        node.books.commit(managers.free_all_but(node.books.state, set()))
        assert list(saved(node)) == [("u1", "c")]
        await node.admit("u2", container("c", 3))
        assert list(saved(node)) == [("u2", "c")]


async def test_the_first_containers_devices_though_the_second_is_refused(node):
    async with serving(node, Plugin()):
        await register(node)
        await node.until_capacity(3)
        with pytest.raises(AdmissionError, match="requested number of devices unavailable"):
            await node.admit("u1", container("a", 1), container("b", 3))
        assert list(saved(node)) == [("u1", "a")]


async def test_not_when_the_plugin_goes_away(node):
    async with serving(node, Plugin()):
        await register(node)
        await node.until_capacity(3)
    await node.until_capacity(0, listed=3)
    assert len(checkpoint.decode(node.checkpoint.read_bytes()).registered[GPU]) == 3


async def test_a_corrupt_one_stays_until_the_next_list(folder):
    (folder / "device-plugins").mkdir()
    (folder / "device-plugins" / CHECKPOINT).write_text("{}")
    async with running(Node(folder, "v1.20.2")) as node:
        assert node.checkpoint.read_text() == "{}"


def test_a_kubelet_that_was_here_before_is_known_by_its_folder_even_without_a_checkpoint(folder):
    files = StateFiles(folder, None)
    assert not files.has_previous_kubelet()
    (folder / "device-plugins").mkdir()
    assert files.has_previous_kubelet()


async def test_an_old_kubelet_wants_devices_for_prestartcontainer_even_where_none_were_asked_for(node):
    async with serving(node, Plugin()):
        await register(node, options=api_pb2.DevicePluginOptions(pre_start_required=True))
        await node.until_capacity(3)
        view = ContainerView("c", False, {"resources": {"limits": {GPU: "0"}}})
        with pytest.raises(PluginError, match="no devices found allocated in local cache for pod u1, container c, "):
            await run_options(node.books, node.endpoints, "u1", view)


async def test_a_new_kubelet_does_not(folder):
    async with running(Node(folder)) as node, serving(node, Plugin()):
        await register(node)
        await node.until_capacity(3)
        view = ContainerView("c", False, {"resources": {"limits": {GPU: "0"}}})
        assert not (await run_options(node.books, node.endpoints, "u1", view)).env
