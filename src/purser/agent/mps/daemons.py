"""The daemons of all GPUs of a node that are shared by MPS: one for each, so that what ends one of them, or is to be
done about its GPU, concerns the containers of that GPU alone."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from purser.agent.host.latest import Latest
from purser.agent.mps.control import MpsControl
from purser.agent.mps.daemon import MpsDaemon, MpsHooks, MpsTiming
from purser.core.model import DeviceMode, NodeInventory
from purser.kube.clock import Clock, SystemClock
from purser.kube.failures import ObjectFailures

DRAIN_CHECK_PERIOD_S = 10.0
"""Between two looks whether the last container has left a GPU that is not to be shared by MPS any more."""


class MpsDaemons:
    """Follows an inventory: a daemon for each device in mode ``mps``, from when it is healthy until it is unused."""

    def __init__(
        self,
        control: MpsControl,
        inventory: Latest[NodeInventory | None],
        hooks: MpsHooks,
        failures: ObjectFailures,
        *,
        exclusive: bool = False,
        obstacles: Callable[[], Mapping[str, str]] = dict,
        timing: MpsTiming | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``exclusive``: only clients of a daemon may use its GPU. ``obstacles``: by uuid, why a daemon is missing that
        should run."""
        self._control = control
        self._inventory = inventory
        self._hooks = hooks
        self._failures = failures
        self._exclusive = exclusive
        self._obstacles = obstacles
        self._reported: Mapping[str, str] = {}
        self._timing = timing or MpsTiming()
        self._clock = clock or SystemClock()
        self._daemons: dict[str, MpsDaemon] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._is_leaving = False

    @property
    def ready(self) -> frozenset[str]:
        """GPUs whose daemon answers, by uuid."""
        return frozenset(uuid for uuid, daemon in self._daemons.items() if daemon.ready)

    @property
    def wanted(self) -> frozenset[str]:
        """GPUs that have a daemon, or are to have one."""
        return frozenset(self._daemons)

    async def run(self) -> None:
        """Follow until cancelled; what runs then is left running, for the agent that comes next."""
        try:
            await self._failures.keep_going("MPS daemons", self._follow)
        finally:
            await self._stop_watching(tuple(self._running))

    async def leave(self) -> None:
        """End unused daemons. The others end with the agent's container, or serve the next agent."""
        self._is_leaving = True
        await self._quit([uuid for uuid in self._daemons if not self._hooks.is_used(uuid)])

    async def _follow(self) -> None:
        while True:
            inventory = self._inventory.value
            await self._turn(inventory)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_CHECK_PERIOD_S if self._drains() else None):
                    await self._inventory.wait_for_change(inventory)

    async def _turn(self, inventory: NodeInventory | None) -> None:
        if inventory is None or self._is_leaving:
            return
        obstacles = self._obstacles()
        for uuid, why in obstacles.items():
            if self._reported.get(uuid) != why:
                self._hooks.changed(uuid, ready=False, problem=why)
        self._reported = obstacles
        served = _gpus_with_daemon(inventory).difference(obstacles)
        left = (self.wanted | self._control.started_gpus()) - served  # an agent's before this one, too
        for uuid in left:
            self._keep(uuid, wanted=False)
        for uuid in served:
            self._keep(uuid, wanted=True)
        await self._quit([uuid for uuid in left if not self._hooks.is_used(uuid)])

    def _drains(self) -> bool:
        return not all(daemon.wanted for daemon in self._daemons.values())

    def _keep(self, uuid: str, *, wanted: bool) -> None:
        daemon = self._daemons.get(uuid)
        is_new = daemon is None
        if daemon is None:
            daemon = MpsDaemon(uuid, self._control, self._hooks, self._exclusive, self._timing, self._clock)
            self._daemons[uuid] = daemon
        daemon.wanted = wanted
        if is_new or (wanted and self._running[uuid].done()):
            self._running[uuid] = asyncio.create_task(self._failures.keep_going(f"MPS daemon of {uuid}", daemon.run))

    async def _quit(self, uuids: list[str]) -> None:
        await self._stop_watching(uuids)
        await asyncio.gather(*(self._daemons[uuid].quit() for uuid in uuids))
        for uuid in uuids:
            del self._daemons[uuid]

    async def _stop_watching(self, uuids: "list[str] | tuple[str, ...]") -> None:
        """Watch them no more."""
        tasks = [task for uuid in uuids if (task := self._running.pop(uuid, None)) is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _gpus_with_daemon(inventory: NodeInventory) -> frozenset[str]:
    """GPUs that are to have a daemon. One that is ill takes no containers, and its daemon would be in a reset's way."""
    return frozenset(each.uuid for each in inventory.devices if each.mode is DeviceMode.MPS and each.healthy)
