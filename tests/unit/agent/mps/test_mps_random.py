"""Agents, daemons, servers and clients are killed at random: nothing is left over, and every report is right."""

import os
import random
import signal
from contextlib import AsyncExitStack

import pytest
from tests.tiers import IS_LONG
from tests.unit.agent.mps.conftest import Told, eventually

pytestmark = pytest.mark.processes

GPUS = ("A", "B")
STEPS = 25


class Story:
    """One node, and what must be so after each step."""

    def __init__(self, node, seed):
        self.node, self.random = node, random.Random(seed)
        self.modes = dict.fromkeys(GPUS, "mps")
        self.clients = {uuid: [] for uuid in GPUS}
        self.agent, self.stack, self.told = None, AsyncExitStack(), Told()
        self.died_alone = set()
        """GPUs whose daemon was killed while no agent was there."""
        self.losses = dict.fromkeys(GPUS, 0)

    async def start_agent(self):
        self.told = Told()
        self.told.is_used = lambda uuid: bool(self.clients[uuid])
        self.losses = {uuid: int(uuid in self.died_alone and self.modes[uuid] == "mps") for uuid in GPUS}
        self.died_alone.clear()
        self.agent = await self.stack.enter_async_context(self.node.agent(self.told, leaves=False))

    async def kill_agent(self):
        await self.stack.aclose()
        self.agent, self.stack = None, AsyncExitStack()

    async def kill_daemon(self, uuid):
        daemon = self._daemon(uuid)
        os.kill(daemon, signal.SIGKILL)
        await eventually(lambda: daemon not in self.node.processes(uuid))  # on a busy machine it dies later
        if self.agent:
            self.losses[uuid] += 1
            await eventually(lambda: self._losses_told() == self.losses)
        else:
            self.died_alone.add(uuid)
        await self._lose_clients(uuid)

    async def kill_server(self, uuid):
        for pid in set(self.node.processes(uuid)) - {self._daemon(uuid)}:
            os.kill(pid, signal.SIGKILL)
            await self._lose_clients(uuid)

    async def connect(self, uuid):
        self.clients[uuid].append(await self.node.client(uuid))

    async def end_clients(self, uuid):
        while self.clients[uuid]:
            client = self.clients[uuid].pop()
            client.kill()
            await client.wait()

    async def change_mode(self, uuid):
        await self.end_clients(uuid)
        self.modes[uuid] = "shared" if self.modes[uuid] == "mps" else "mps"
        self.node.set(**self.modes)

    async def step(self):
        uuid = self.random.choice(GPUS)
        runs = self._daemon(uuid) is not None
        steps = [self.change_mode, self.end_clients]
        steps += [self.kill_daemon, self.kill_daemon, self.kill_server, self.connect, self.connect] if runs else []
        if self.random.random() < 0.25:
            await (self.kill_agent() if self.agent else self.start_agent())
        else:
            await self.random.choice(steps)(uuid)
        await self.settle()

    async def settle(self):
        """With an agent exactly the wanted daemons run; without one no more than there were."""
        wanted = {uuid for uuid, mode in self.modes.items() if mode == "mps"}
        kept = wanted | {uuid for uuid in GPUS if self.clients[uuid]}
        if self.agent:
            await eventually(lambda: self.agent.ready == self.agent.wanted == kept)
            await eventually(lambda: {uuid for uuid in GPUS if self.node.processes(uuid)} == kept)
            await eventually(lambda: self._losses_told() == self.losses)
        for uuid in GPUS:
            assert len(self.node.processes(uuid)) <= 2, "a daemon and its server"
            assert all(client.returncode is None for client in self.clients[uuid])

    def _daemon(self, uuid):
        try:
            pid = int((self.node.pipe(uuid) / "nvidia-cuda-mps-control.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if pid in self.node.processes(uuid) else None

    def _losses_told(self):
        return {uuid: [lost for lost, _ in self.told.losses].count(uuid) for uuid in GPUS}

    async def _lose_clients(self, uuid):
        assert [await client.wait() for client in self.clients[uuid]] == [3] * len(self.clients[uuid])
        self.clients[uuid] = []


@pytest.mark.parametrize("seed", range(20 if IS_LONG else 2))
async def test_whatever_is_killed(node, seed, monkeypatch):
    monkeypatch.setattr("purser.agent.mps.daemons.DRAIN_CHECK_PERIOD_S", 0.01)
    node.set(A="mps", B="mps")
    story = Story(node, seed)
    await story.start_agent()
    await story.settle()
    for _ in range(STEPS):
        await story.step()
    for uuid in GPUS:
        await story.end_clients(uuid)
    await story.kill_agent()
    node.set(A="mps", B="mps")
    async with node.agent() as agent:  # and one that leaves in order
        await eventually(lambda: agent.ready == set(GPUS))
