"""What breaks meanwhile: processes are killed, connections cut, cards lost, the clock is set to another time."""

import asyncio
import os
import random
from pathlib import Path

from purser.lab.cluster import Lab
from tests.soak.outcomes import HonestPods

DAY_S = 86_400
JUMPS_DAYS = (90, -90)
CLOCK_FILE = "FAKETIME_TIMESTAMP_FILE"
"""libfaketime reads the offset of the wall clock here, again every second."""


class Breaker:
    """Breaks one thing after the other and mends it again."""

    def __init__(self, lab: Lab, records: HonestPods, dice: random.Random) -> None:
        self._lab = lab
        self._records = records
        self._dice = dice
        self.faults: dict[str, int] = {}

    async def run(self, every_s: float) -> None:
        """Break things until cancelled."""
        faults = (
            self.restart_kubelet,
            self.kill_agent,
            self.kill_scheduler,
            self.kill_kube_scheduler,
            self.cut_api_server,
            self.lose_card,
            *([self.jump_clock] if CLOCK_FILE in os.environ else []),
        )
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / every_s))
            fault = self._dice.choice(faults)
            self.faults[fault.__name__] = self.faults.get(fault.__name__, 0) + 1
            await fault()

    async def restart_kubelet(self) -> None:
        """kubelet ends and starts."""
        node = self._node()
        self._records.node_breaks(node)
        await self._lab.restart_kubelet(node)

    async def kill_agent(self) -> None:
        """An agent ends as by SIGKILL, and is back after up to two seconds."""
        node = self._node()
        self._records.node_breaks(node)
        await self._lab.kill_agent(node)
        try:
            await asyncio.sleep(self._dice.uniform(0, 2))
        finally:
            self._records.node_breaks(node)
            self._lab.start_agent(node)

    async def kill_scheduler(self) -> None:
        """Webhook and extender end as by SIGKILL, and are back after up to two seconds."""
        await self._lab.kill_scheduler()
        try:
            await asyncio.sleep(self._dice.uniform(0, 2))
        finally:
            await self._lab.start_scheduler()

    async def kill_kube_scheduler(self) -> None:
        """The kube-scheduler beside Purser ends and starts."""
        await self._lab.kube_scheduler.kill()
        self._lab.kube_scheduler.start()

    async def cut_api_server(self) -> None:
        """Every connection and watch is cut; the API server answers again up to two seconds later."""
        await self._lab.cut_api_server(self._dice.uniform(0, 2))

    async def lose_card(self) -> None:
        """A card falls off the bus and comes back."""
        node = self._node()
        card = self._dice.randrange(len(self._lab.nodes[node].driver.uuids))
        self._records.node_breaks(node)
        self._lab.lose_gpu(node, card)
        try:
            await asyncio.sleep(self._dice.uniform(0.5, 3))
        finally:
            self._records.node_breaks(node)
            self._lab.recover_gpu(node, card)

    async def jump_clock(self) -> None:
        """The wall clock of the whole machine goes ninety days on or back, stays there for a while, and returns."""
        set_clock(self._dice.choice(JUMPS_DAYS))
        try:
            await asyncio.sleep(self._dice.uniform(2, 20))
        finally:
            set_clock(0)

    def _node(self) -> str:
        return self._dice.choice(list(self._lab.nodes))


def set_clock(days: int) -> None:
    """Set the wall clock of this process so many days off."""
    Path(os.environ[CLOCK_FILE]).write_text(f"{days * DAY_S:+d}\n")
