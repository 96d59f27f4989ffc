"""What stands in the place of a file that the agent reads or writes: a pipe, a device without end, a link, a folder."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import grpc.aio
import pytest
import structlog.testing

from purser.agent.allocation.book import AgentCheckpoint, AgentCheckpointError, read_checkpoint, write_checkpoint
from purser.agent.host.files import read_head, temporary_path
from purser.agent.host.hostfiles import make_shared_dir, remove_dir
from purser.agent.inventory.driver_roots import read_place
from purser.agent.kubelet.facts.reading import read, sources_of
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.agent.settings import AgentSettings
from tests.unit.agent.builders import NODE

DEADLINE_S = 20


def pipe(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def huge(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


def folder(path):
    path.mkdir()


def loop(path):
    path.symlink_to(path)


ODD = pytest.mark.parametrize("make", [pipe, endless, huge, folder, loop])


async def in_time(call):
    """What a blocking call gives: it may neither wait for ever nor take all memory."""
    return await asyncio.wait_for(asyncio.to_thread(call), DEADLINE_S)


@ODD
async def test_a_checkpoint_that_is_none_is_reported(tmp_path, make):
    make(tmp_path / "checkpoint.json")
    with pytest.raises(AgentCheckpointError):
        await in_time(lambda: read_checkpoint(tmp_path / "checkpoint.json", NODE))


@ODD
async def test_kubelets_malformed_files_are_reported_and_block_nothing(tmp_path, make):
    settings = AgentSettings(node_name=NODE, kubelet_dir=tmp_path, device_plugin_dir=tmp_path)
    make(tmp_path / "config.yaml")
    found = await in_time(lambda: read(sources_of(settings), "v1.30.0"))
    assert set(found.problems) == {"config"}


@ODD
async def test_the_drivers_place_is_not_known_then(tmp_path, make):
    make(tmp_path / "driver-ready")
    assert await in_time(lambda: read_place(tmp_path / "driver-ready")) is None


@pytest.mark.parametrize("make", [pipe, endless, loop])
async def test_what_is_in_the_checkpoints_drafts_place_is_not_followed(tmp_path, make):
    path = tmp_path / "checkpoint.json"
    make(temporary_path(path))
    await in_time(lambda: write_checkpoint(path, AgentCheckpoint(NODE)))
    assert read_checkpoint(path, NODE).pods == ()


async def test_a_link_in_place_of_a_checkpoint_or_its_draft_leads_to_no_other_file(tmp_path):
    precious, path = tmp_path / "precious", tmp_path / "checkpoint.json"
    precious.write_text("precious")
    for each in (path, temporary_path(path)):
        each.symlink_to(precious)
    write_checkpoint(path, AgentCheckpoint(NODE))
    assert precious.read_text() == "precious"
    assert read_checkpoint(path, NODE).pods == ()


async def test_no_folder_of_the_host_is_opened_to_everybody_through_a_link(tmp_path):
    """Every user of the host may write to ``/tmp``."""
    settings = AgentSettings(node_name=NODE, host_root=tmp_path)
    etc, locks = tmp_path / "etc", tmp_path / "tmp/vgpulock"
    etc.mkdir(mode=0o700)
    locks.parent.mkdir()
    locks.symlink_to("../etc")
    with pytest.raises(OSError, match="vgpulock"):
        make_shared_dir(settings, settings.hami_lock_dir)
    assert stat.S_IMODE(etc.stat().st_mode) == 0o700


class Endless(api_pb2_grpc.PodResourcesListerServicer):
    """Lists more than any kubelet."""

    async def List(self, request, context):
        pod = api_pb2.PodResources(name="x" * 1024 * 1024)
        return api_pb2.ListPodResourcesResponse(pod_resources=[pod] * 32)


async def test_an_answer_of_kubelets_that_is_too_large_is_not_taken(tmp_path):
    server = grpc.aio.server(options=(("grpc.max_send_message_length", -1),))
    api_pb2_grpc.add_PodResourcesListerServicer_to_server(Endless(), server)
    server.add_insecure_port(f"unix:{tmp_path}/kubelet.sock")
    await server.start()
    async with KubeletBooks(tmp_path / "kubelet.sock") as books:
        with pytest.raises(KubeletError, match="RESOURCE_EXHAUSTED"):
            await books.list()
    await server.stop(0)


def test_what_is_no_file_is_not_even_opened(tmp_path):
    """A watchdog's device restarts the machine if it is. Of a socket that can be seen: it cannot be opened."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        (tmp_path / "link").symlink_to(tmp_path / "socket")
        with pytest.raises(OSError, match="not a regular file"):
            read_head(tmp_path / "link", 10)


def test_a_folder_that_is_filled_faster_than_emptied_keeps_nobody_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr("purser.agent.host.hostfiles.REMOVE_TIMEOUT_S", -1.0)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/file").touch()
    with structlog.testing.capture_logs() as logged:
        remove_dir(AgentSettings(node_name=NODE, host_root=tmp_path), Path("/theirs"))
    assert [each.name[0] for each in tmp_path.iterdir()] == ["."], "its place is free, and what is left is hidden"
    assert "another process keeps writing to it" in logged[0]["error"]
