"""A second agent on a node waits for the first one, and then does not start."""

import asyncio
import errno
import fcntl
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from purser.agent.host import node_lock
from purser.agent.host.node_lock import LOCK_FILE, SecondAgentError, held, lock_node
from purser.agent.settings import AgentSettings

pytestmark = pytest.mark.processes


def settings(folder: Path) -> AgentSettings:
    return AgentSettings(node_name="n", namespace="gpus", state_dir=folder / "state")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_lock, "LOCK_WAIT_S", 0.02)
    monkeypatch.setattr(node_lock, "LOCK_RETRY_PERIOD_S", 0.01)


async def test_the_second_agent_names_the_first_and_takes_over_once_it_has_gone(tmp_path: Path, hasty: None) -> None:
    own, stop = settings(tmp_path), asyncio.Event()
    lock_file = own.state_dir / LOCK_FILE
    with held(await lock_node(own, stop)):
        lock_file.write_text("gpus/purser-agent-x" + " " * 1000)
        with pytest.raises(SecondAgentError, match=r"another Purser agent serves .* \(gpus/purser-agent-x\): uninst"):
            await lock_node(own, stop)
    with held(await lock_node(own, stop)):
        told = lock_file.read_text()
        assert told.startswith("gpus/")
        assert told == told.strip(), "nothing is left of the longer name"


async def test_an_agent_that_waits_takes_over_and_one_that_is_stopped_meanwhile_ends(tmp_path: Path) -> None:
    own, stop = settings(tmp_path), asyncio.Event()
    first = await lock_node(own, asyncio.Event())
    stopped = asyncio.create_task(lock_node(own, stop))
    waiting = asyncio.create_task(lock_node(own, asyncio.Event()))
    await asyncio.sleep(0)
    stop.set()
    assert await stopped is None
    with held(first):
        assert not waiting.done()
    with held(await waiting):
        assert waiting.result() is not None


async def test_without_a_place_for_the_file_the_agent_serves_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    assert await lock_node(settings(tmp_path), asyncio.Event()) is None


async def test_a_file_system_without_locks_is_named_and_the_agent_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with capture_logs() as said:
        assert await lock_node(settings(tmp_path), asyncio.Event()) is None
    assert said[0]["event"].startswith("The state folder's file system does not support locks")


KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
"""

COMMAND = """
import purser.agent.host.node_lock
from purser.cli import app
purser.agent.host.node_lock.LOCK_WAIT_S = 0.02
app()
"""

HOLDER = """
import asyncio, sys, time
from pathlib import Path
from purser.agent.host.node_lock import lock_node
from purser.agent.settings import AgentSettings
assert asyncio.run(lock_node(AgentSettings(node_name="n", state_dir=Path(sys.argv[1])), asyncio.Event())) is not None
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.gate
async def test_the_command_ends_in_one_sentence(tmp_path: Path) -> None:
    own, kubeconfig = settings(tmp_path), tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    words = ("agent", "run", "--node-name=n", f"--state-dir={own.state_dir}", f"--kubeconfig={kubeconfig}")
    with held(await lock_node(own, asyncio.Event())):
        command = await asyncio.create_subprocess_exec(sys.executable, "-c", COMMAND, *words, stderr=PIPE)
        async with asyncio.timeout(60):
            _, said = await command.communicate()
    assert command.returncode == 1
    assert said.decode().splitlines()[-1].startswith("purser: another Purser agent serves this node (gpus/")
    assert b"Traceback" not in said


@pytest.mark.gate
async def test_a_killed_agent_leaves_nothing_in_the_way(tmp_path: Path, hasty: None) -> None:
    own = settings(tmp_path)
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, str(own.state_dir), stdout=PIPE)
    try:
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        with pytest.raises(SecondAgentError):
            await lock_node(own, asyncio.Event())
    finally:
        holder.kill()
        await holder.wait()
    with held(await lock_node(own, asyncio.Event())):
        assert (own.state_dir / LOCK_FILE).exists()
