"""An MPS daemon for each GPU that is shared by MPS: kept up, reported, and gone when nobody wants it."""

import os
import signal
import socket
from pathlib import Path

import pytest
from msgspec import structs
from tests.unit.agent.mps.conftest import TIMING, Told, eventually
from tests.unit.kube.servers import HastyClock

from purser.agent.mps.processes import runs

pytestmark = pytest.mark.processes


async def test_each_gpu_in_the_mode_has_a_daemon_of_its_own(node):
    node.set(A="mps", B="mps")
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A", "B"})
        assert [len(node.processes(uuid)) for uuid in ("A", "B")] == [1, 1]
        (pid,) = node.processes("A")
        assert "CUDA_VISIBLE_DEVICES=A" in Path(f"/proc/{pid}/environ").read_text().split("\0")
        client = await node.client("A")
        server = [each for each in node.processes("A") if each != pid]
        assert (await node.control.ask("A", "get_server_list")).split() == [str(*server)]
        assert (await node.control.ask("A", f"get_client_list {server[0]}")).split() == [str(client.pid)]
        assert (await node.control.ask("B", "get_server_list")) == ""
        client.kill()
        await client.wait()
    assert node.processes("A") == node.processes("B") == []
    assert not node.pipe("A").exists()
    assert [change[:2] for change in sorted(agent.told.changes)] == [
        ("A", False),
        ("A", True),
        ("B", False),
        ("B", True),
    ]


async def test_others_have_none(node):
    node.set(A="shared", B="whole")
    looks = []
    async with node.agent(obstacles=lambda: looks.append(1) or {}) as agent:
        await eventually(lambda: looks)
        assert agent.wanted == frozenset()
    assert not node.pipe("A").exists()


async def test_one_that_dies_is_restarted_and_its_clients_get_events(node):
    node.set(A="mps", B="mps")
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A", "B"})
        client, other = await node.client("A"), await node.client("B")
        daemon = int((node.pipe("A") / "nvidia-cuda-mps-control.pid").read_text())
        server = [pid for pid in node.processes("A") if pid != daemon]
        os.kill(daemon, signal.SIGKILL)
        assert await client.wait() == 3
        await eventually(lambda: agent.ready == {"A", "B"} and agent.told.losses)
        assert agent.told.losses == [("A", "the daemon's process exited")]
        assert ("A", False, "the MPS daemon failed: the daemon's process exited") in agent.told.changes
        assert len(node.processes("A")) == 1, "the server of the old one is gone"
        assert not set(server) & set(node.processes("A"))
        assert other.returncode is None, "the other GPU's clients notice nothing"
        (await node.client("A")).kill()
        other.kill()


async def test_a_server_that_crashes_in_a_daemon_that_runs_on_is_reported_once(node):
    node.set(A="mps", B="mps")
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A", "B"})
        client, other = await node.client("A"), await node.client("B")
        daemon = int((node.pipe("A") / "nvidia-cuda-mps-control.pid").read_text())
        (server,) = (pid for pid in node.processes("A") if pid != daemon)
        await node.asks(2)  # it has been seen
        os.kill(server, signal.SIGKILL)
        assert await client.wait() == 3
        await eventually(lambda: agent.told.servers_lost)
        client = await node.client("A")  # of a server that the daemon started
        await node.asks(2)
        assert agent.told.servers_lost == [("A", server)]
        assert agent.told.losses == []
        assert agent.ready == {"A", "B"}
        assert other.returncode is None
        (server,) = (pid for pid in node.processes("A") if pid != daemon)
        os.kill(server, signal.SIGUSR1)
        assert await client.wait() == 3
        await eventually(lambda: not runs(server))
        await node.asks(3)
        assert len(agent.told.servers_lost) == 1, "it ended in order"
        other.kill()


async def test_a_server_in_a_fault_is_reported_once_until_it_is_over(node):
    node.set(A="mps")
    fault = node.stub.parent / "fault"
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A"})
        client = await node.client("A")
        daemon = int((node.pipe("A") / "nvidia-cuda-mps-control.pid").read_text())
        (server,) = (pid for pid in node.processes("A") if pid != daemon)
        await node.asks(2)
        assert agent.told.faults == []
        fault.touch()
        await node.asks(3)
        assert agent.told.faults == [("A", server)]
        os.kill(server, signal.SIGKILL)
        assert await client.wait() == 3
        await node.asks(3)
        assert agent.told.servers_lost == [], "its clients have heard of it"
        client = await node.client("A")
        await eventually(lambda: len(agent.told.faults) == 2)
        fault.unlink()
        await node.asks(2)
        fault.touch()
        await eventually(lambda: len(agent.told.faults) == 3)
        client.kill()


async def test_one_that_does_not_answer_is_ended_and_restarted(node, monkeypatch):
    monkeypatch.setattr("purser.agent.mps.control.ASK_TIMEOUT_S", 0.1)
    node.set(A="mps")
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A"})
        (node.bin / "mute").touch()
        await eventually(lambda: agent.told.losses)
        assert agent.told.losses == [("A", "the daemon no longer answers")]
        (node.bin / "mute").unlink()
        await eventually(lambda: agent.ready == {"A"})


async def test_one_that_cannot_start_says_why_and_is_tried_again(node):
    (node.bin / "fail").touch()
    node.set(A="mps")
    async with node.agent() as agent:
        await eventually(lambda: agent.told.changes)
        assert agent.told.changes == [("A", False, "the MPS daemon exited immediately: CUDA is not to be had")]
        (node.bin / "fail").unlink()
        await eventually(lambda: agent.ready == {"A"})
        assert agent.told.losses == []


async def test_one_that_ends_over_and_over_is_started_less_and_less_often(node):
    (node.bin / "fail").touch()
    node.set(A="mps")
    clock = HastyClock()
    async with node.agent(timing=structs.replace(TIMING, restart_initial=0.04, restart_cap=100.0), clock=clock):
        await eventually(lambda: len(clock.slept) > 5)
    assert all(0.02 * 2**number <= pause <= 0.04 * 2**number for number, pause in enumerate(clock.slept[:6]))
    starts = len((node.bin / "starts").read_text().splitlines())
    assert starts - len(clock.slept) in (0, 1)


async def test_none_is_started_where_anothers_runs(node):
    theirs = node.root / "tmp/nvidia-mps/control"
    theirs.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(theirs))
        listener.listen()
        node.set(A="mps")
        async with node.agent() as agent:
            await eventually(lambda: agent.told.changes)
            assert agent.told.changes == [
                (
                    "A",
                    False,
                    "another MPS daemon answers at /tmp/nvidia-mps/control on the node: stop that daemon first",
                )
            ]
            assert node.processes("A") == []
            listener.close()  # the file stays
            await eventually(lambda: agent.ready == {"A"})


async def test_the_next_agent_goes_on_with_the_daemon_that_runs(node):
    node.set(A="mps")
    async with node.agent(leaves=False) as agent:
        await eventually(lambda: agent.ready == {"A"})
        before, client = node.processes("A"), await node.client("A")
    assert node.processes("A")
    used = Told()
    used.used = {"A"}
    async with node.agent(used) as agent:  # it leaves in order, and leaves a daemon that is in use
        await eventually(lambda: agent.ready == {"A"})
        assert set(before) <= set(node.processes("A"))
        assert agent.told.losses == []
    assert client.returncode is None
    client.kill()
    await client.wait()
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A"})
    assert node.processes("A") == []


async def test_the_next_agent_reports_a_daemon_that_ended_meanwhile(node):
    node.set(A="mps")
    async with node.agent(leaves=False) as agent:
        await eventually(lambda: agent.ready == {"A"})
    for pid in node.processes("A"):
        os.kill(pid, signal.SIGKILL)
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A"})
        assert agent.told.losses == [("A", "the daemon stopped with the previous agent")]
    async with node.agent() as agent:  # the one before it left in order
        await eventually(lambda: agent.ready == {"A"})
        assert agent.told.losses == []


async def test_a_gpu_that_leaves_the_mode_keeps_its_daemon_until_its_last_container_has_left(node, monkeypatch):
    monkeypatch.setattr("purser.agent.mps.daemons.DRAIN_CHECK_PERIOD_S", 0.01)
    told = Told()
    told.used = {"A"}
    node.set(A="mps")
    async with node.agent(told) as agent:
        await eventually(lambda: agent.ready == {"A"})
        client = await node.client("A")
        node.set(A="shared")
        asked = told.asked
        await eventually(lambda: told.asked > asked + 2)
        assert client.returncode is None
        client.kill()
        await client.wait()
        told.used = set()
        await eventually(lambda: agent.wanted == frozenset())
        assert node.processes("A") == []
        node.set(A="mps")
        await eventually(lambda: agent.ready == {"A"})


async def test_an_ill_gpu_has_no_daemon_once_nobody_uses_it(node, monkeypatch):
    monkeypatch.setattr("purser.agent.mps.daemons.DRAIN_CHECK_PERIOD_S", 0.01)
    told = Told()
    told.used = {"A"}
    node.set(A="mps")
    async with node.agent(told) as agent:
        await eventually(lambda: agent.ready == {"A"})
        node.set(A="ill")
        asked = told.asked
        await eventually(lambda: told.asked > asked + 2)
        assert agent.ready == {"A"}
        told.used = set()
        await eventually(lambda: not node.processes("A"))
        node.set(A="mps")
        await eventually(lambda: agent.ready == {"A"})
    assert told.losses == []


async def test_what_containers_put_among_the_pipes_leads_the_next_daemon_nowhere(node):
    """They may write there, and the daemon writes as root: through a link it would write anywhere on the node."""
    precious = node.root / "precious"
    node.set(A="mps")
    async with node.agent(leaves=False) as agent:
        await eventually(lambda: agent.ready == {"A"})
        precious.write_text("precious")
        for name in ("nvidia-cuda-mps-control.pid", "control_lock"):
            (node.pipe("A") / name).unlink()
            (node.pipe("A") / name).symlink_to(precious)
        for pid in node.processes("A"):
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: agent.told.losses and agent.ready == {"A"})
    async with node.agent() as agent:
        await eventually(lambda: agent.ready == {"A"})
    assert precious.read_text() == "precious"


async def test_obstacles_are_reported_once(node):
    obstacles, looks = {"A": "MIG mode is enabled"}, []

    def look():
        looks.append(dict(obstacles))
        return looks[-1]

    async with node.agent(obstacles=look) as agent:
        node.set(A="shared")
        await eventually(lambda: agent.told.changes)
        looks.clear()
        node.set(A="shared", B="shared")
        await eventually(lambda: looks)
        obstacles.clear()
        node.set(A="shared")
        await eventually(lambda: {} in looks)
        obstacles["A"] = "MIG mode is enabled"
        node.set(B="shared")
        await eventually(lambda: len(agent.told.changes) == 2)
        assert agent.told.changes == [("A", False, "MIG mode is enabled")] * 2


async def test_exclusive_mode_is_set_while_the_daemon_runs(node):
    smi = node.bin / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\necho "$@" >> {node.bin}/modes\n')
    smi.chmod(0o755)
    node.set(A="mps")
    async with node.agent(exclusive=True) as agent:
        await eventually(lambda: agent.ready == {"A"})
        assert (node.bin / "modes").read_text() == "-i A -c EXCLUSIVE_PROCESS\n"
    assert (node.bin / "modes").read_text().splitlines()[1:] == ["-i A -c DEFAULT"]
    smi.write_text("#!/bin/sh\necho no such GPU; exit 6\n")
    async with node.agent(exclusive=True) as agent:
        await eventually(lambda: agent.told.changes)
        assert "nvidia-smi -i A -c EXCLUSIVE_PROCESS: no such GPU" in agent.told.changes[0][2]
        assert node.processes("A") == []
