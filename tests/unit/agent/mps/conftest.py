"""A node with a stub of NVIDIA's MPS programs: real processes, real sockets, no GPU."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from tests.waiting import eventually

from purser.agent.host.latest import Latest
from purser.agent.mps.control import MpsControl
from purser.agent.mps.daemon import MpsHooks, MpsTiming
from purser.agent.mps.daemons import MpsDaemons
from purser.agent.mps.folders import folders_of
from purser.agent.mps.processes import find_marked, runs
from purser.agent.mps.programs import MARK, MpsPrograms
from purser.agent.settings import AgentSettings
from purser.core.model import Device, DeviceMode, NodeInventory
from purser.kube.failures import ObjectFailures

SOURCE = Path(__file__).with_name("stub.c")
TIMING = MpsTiming(start=10.0, first_poll_s=0.005, health=0.05, restart_initial=0.01, restart_cap=0.05, steady=60.0)


def compile_stub(folder: Path) -> Path:
    """Compiled once for all workers and runs; static, so that it runs in a root of its own."""
    made = Path(tempfile.gettempdir()) / f"mps-stub-{os.getuid()}-{SOURCE.stat().st_mtime_ns}"
    if not made.exists():
        draft = folder / "stub"
        subprocess.run(["cc", "-O1", "-static", "-o", draft, SOURCE], check=True)
        shutil.move(draft, made)
    target = folder / "nvidia-cuda-mps-control"
    shutil.copy(made, target)
    return target


class Told(MpsHooks):
    """What an agent would have been notified of."""

    def __init__(self):
        self.changes, self.losses, self.servers_lost, self.used = [], [], [], set()
        self.faults = []
        self.asked = 0

    def changed(self, uuid, ready, problem):
        self.changes.append((uuid, ready, problem))

    def lost(self, uuid, why):
        self.losses.append((uuid, why))

    def server_lost(self, uuid, server):
        self.servers_lost.append((uuid, server))

    def server_in_fault(self, uuid, server):
        self.faults.append((uuid, server))

    def is_used(self, uuid):
        self.asked += 1
        return uuid in self.used


def _mode(word):
    return DeviceMode("mps" if word == "ill" else word)


class CountedControl(MpsControl):
    """Counts how often the daemon of each GPU was asked for its servers."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.asked = Counter()

    async def servers(self, uuid):
        self.asked[uuid] += 1
        return await super().servers(uuid)


class MpsNode:
    """The host's side of a node, on which agents come and go."""

    def __init__(self, folder):
        self.root, self.bin = folder / "host", folder / "bin"
        self.bin.mkdir()
        self.stub = compile_stub(self.bin)
        self.settings = AgentSettings(node_name="n", host_root=self.root)
        self.programs = MpsPrograms(str(self.bin))
        self.control = CountedControl(self.settings, lambda: self.programs)
        self.inventory = Latest[NodeInventory | None](None)

    def set(self, **modes):
        """GPUs by uuid, and their modes; ``ill``: in the mode, and unhealthy."""
        devices = tuple(
            Device(uuid, index, "A100", 40960, slots=4, mode=_mode(mode), healthy=mode != "ill")
            for index, (uuid, mode) in enumerate(modes.items())
        )
        self.inventory.set(NodeInventory("n", devices))

    def pipe(self, uuid):
        return self.root / folders_of(uuid).pipe.relative_to("/")

    def processes(self, uuid):
        """Of the GPU's daemon and its servers."""
        return [pid for pid in find_marked(f"{MARK}={self.pipe(uuid)}") if runs(pid)]

    async def asks(self, times, uuid="A"):
        """Until the agent has asked the daemon for its servers so often again; of the last, the answer may be open."""
        before = self.control.asked[uuid]
        await eventually(lambda: self.control.asked[uuid] >= before + times)

    async def client(self, uuid):
        """A CUDA program in a container with a share of the GPU."""
        process = await asyncio.create_subprocess_exec(
            self.stub,
            "--client",
            env={"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe(uuid))},
            stdout=asyncio.subprocess.PIPE,
        )
        assert await process.stdout.readline() == b"connected\n"
        return process

    @contextlib.asynccontextmanager
    async def agent(self, told=None, *, leaves=True, timing=TIMING, **more):
        """The part of an agent that keeps daemons. It leaves in order, or is killed."""
        told = told or Told()
        daemons = MpsDaemons(self.control, self.inventory, told, ObjectFailures(), timing=timing, **more)
        task = asyncio.create_task(daemons.run())
        daemons.told = told
        try:
            yield daemons
        finally:
            if leaves:
                await daemons.leave()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def node():
    folder = Path(tempfile.mkdtemp(prefix="mps"))  # a socket's path has at most 107 bytes
    made = MpsNode(folder)
    yield made
    left = [pid for uuid in ("A", "B") for pid in made.processes(uuid)]
    for pid in left:
        os.kill(pid, 9)
    shutil.rmtree(folder)
    assert not left, "processes are left"
