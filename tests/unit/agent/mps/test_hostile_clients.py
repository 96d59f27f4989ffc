"""Clients that are root in their container: what they put among the pipes, how they call themselves, what they keep."""

import asyncio
import contextlib
import socket

import pytest
from tests.unit.agent.mps.conftest import Told, eventually

from purser.agent.mps import processes
from purser.agent.mps.programs import MARK, MpsError

pytestmark = pytest.mark.processes


async def test_who_answers_in_the_daemons_place_without_end_is_not_listened_to(node):
    node.pipe("A").mkdir(parents=True)
    asked = 0

    async def flood(_, writer):
        nonlocal asked
        asked += 1
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"1 " * 4096)
                await writer.drain()

    async with await asyncio.start_unix_server(flood, node.pipe("A") / "control"):
        with pytest.raises(MpsError, match=r"the output of .*get_server_list exceeds 65536 bytes"):
            await node.control.ask("A", "get_server_list")
    assert asked == 1


def test_programs_of_containers_are_no_daemons_whatever_they_call_themselves(tmp_path, monkeypatch):
    mark = f"{MARK}=/run/purser/mps/A"
    own, other = "pid:[4026531836]", "pid:[4026532999]"
    for name, namespace in (("self", own), ("1", own), ("2", other), ("3", None)):
        made = tmp_path / name
        (made / "ns").mkdir(parents=True)
        (made / "comm").write_text("nvidia-cuda-mps\n")
        (made / "environ").write_text(f"PATH=/bin\0{mark}\0")
        if namespace is not None:
            (made / "ns/pid").symlink_to(namespace)
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert processes.find_marked(mark) == (1,)


async def test_what_clients_left_in_memory_goes_with_the_daemon(node):
    node.set(A="mps")
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A"})
        left = node.root / "dev/shm/purser-mps/A/left"
        left.write_text("x")
    assert not left.parent.exists()
    assert list(node.pipe("A").parent.iterdir()) == []


async def test_one_that_cannot_be_ended_is_in_no_other_gpus_way(node, monkeypatch):
    """As where its GPU hangs: the kernel ends no process that waits for it."""
    monkeypatch.setattr("purser.agent.mps.control.END_TIMEOUT_S", 0.3)
    monkeypatch.setattr("purser.agent.mps.control.ASK_TIMEOUT_S", 0.5)
    told = Told()
    node.set(A="mps")
    async with node.agent(told) as agent:
        await eventually(lambda: agent.ready == {"A"})
        [stuck] = node.processes("A")
        with monkeypatch.context() as patch:
            patch.setattr("purser.agent.mps.control.kill", lambda pids: None)
            (node.bin / "mute").touch()
            node.set(A="shared", B="shared")
            await eventually(lambda: agent.wanted == frozenset())
            (node.bin / "mute").unlink()
            node.set(A="mps", B="mps")
            problem = f"processes of the MPS daemon did not exit within 0.3 s: {stuck}"
            await eventually(lambda: agent.ready == {"B"} and ("A", False, problem) in told.changes)
            assert told.losses == []
        await eventually(lambda: agent.ready == {"A", "B"})


async def test_clients_that_come_and_go_do_not_fill_the_nodes_disk(node, monkeypatch):
    monkeypatch.setattr("purser.agent.mps.control.MAX_LOG_BYTES", 8192)
    node.set(A="mps")
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A"})
        server, control = (node.root / "var/log/purser/mps/A" / f"{name}.log" for name in ("server", "control"))
        control.write_bytes(b"kept")
        with server.open("wb") as file:
            file.write(b"x" * 100_000)
            file.flush()
            await eventually(lambda: server.stat().st_size == 0)
            file.write(b"more")
            file.flush()
            await eventually(lambda: server.stat().st_blocks * 512 <= 8192)
        assert control.read_bytes() == b"kept"
        assert agent.told.losses == []


@pytest.mark.parametrize(
    ("folder", "is_looked_at"), [("pipe", True), ("nvidia.com/gpu.shared/pipe", True), ("a/gpu/pipe/b/pipe", False)]
)
def test_daemons_of_nvidias_plugin_are_looked_for_where_it_has_them(node, folder, is_looked_at):
    """Its clients may nest folders without end beside them."""
    path = node.root / "run/nvidia/mps" / folder / "control"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert node.control.other_daemon() == (f"/run/nvidia/mps/{folder}/control" if is_looked_at else "")
