"""One GPU's MPS daemon: started, watched, and restarted when it ends.

A new agent may find the daemon of the previous one running, where the two do not share a container, and adopts it: its
clients notice nothing.
"""

import asyncio
import contextlib

import msgspec
import structlog

from purser.agent.mps.control import MpsControl
from purser.agent.mps.processes import ended, reap, runs
from purser.agent.mps.programs import MpsError
from purser.agent.mps.servers import MpsServers
from purser.kube.backoff import Backoff
from purser.kube.clock import Clock

log = structlog.get_logger("purser.agent")

EXCLUSIVE, SHARED = "EXCLUSIVE_PROCESS", "DEFAULT"
"""Compute modes."""


class MpsTiming(msgspec.Struct, frozen=True):
    """In seconds."""

    start: float = 30.0
    """How long a daemon may take to answer for the first time."""
    first_poll_s: float = 0.05
    """Between two looks whether it does."""
    health: float = 60.0
    """Between two questions whether it still does. Its end is heard of at once; this finds one that hangs."""
    restart_initial: float = 1.0
    restart_cap: float = 300.0
    """Pause before a daemon is started again: twice the last."""
    steady: float = 600.0
    """One that ran so long has failed by chance, and is started again after the first pause."""


class MpsHooks:
    """What an agent does about its daemons. Here: nothing."""

    def changed(self, uuid: str, ready: bool, problem: str) -> None:
        """A daemon answers, or does not any more. An empty problem: it is no longer wanted."""

    def lost(self, uuid: str, why: str) -> None:
        """It ended, and every program that was its client has lost its GPU."""

    def server_lost(self, uuid: str, server: int) -> None:
        """The process of a server crashed. The daemon keeps running, and starts another one for its next client."""

    def server_in_fault(self, uuid: str, server: int) -> None:
        """A fatal fault has ended the programs of the server, which takes no other clients until they have gone."""

    def is_used(self, uuid: str) -> bool:
        """Whether a container that runs may be a client of this GPU's daemon."""
        return False


class MpsDaemon:
    """The daemon of one GPU. ``ready`` is whether it answers, ``problem`` why it does not."""

    def __init__(
        self,
        uuid: str,
        control: MpsControl,
        hooks: MpsHooks,
        exclusive: bool,
        timing: MpsTiming,
        clock: Clock,
    ) -> None:
        self.uuid = uuid
        self.ready = False
        self.problem = "the MPS daemon has not been started yet"
        self.wanted = True
        """Whether it is started again when it ends; one that is not serves its clients as long as it runs."""
        self._control = control
        self._hooks = hooks
        self._exclusive = exclusive
        self._timing = timing
        self._clock = clock
        self._process: int | None = None

    async def run(self) -> None:
        """Keep it running until cancelled, and leave it running then. Returns where it has ended and is not wanted."""
        backoff = Backoff(self._timing.restart_initial, self._timing.restart_cap)
        await self._adopt()
        while self.wanted or self._process is not None:
            try:
                process = self._process or await self._start()
                began, why = self._clock.monotonic(), await self._watch(process)
                if self._clock.monotonic() - began >= self._timing.steady:
                    backoff.reset()
                await self._handle_loss(why)
            except MpsError as error:
                await self._end_leftovers()
                self._set_state(False, str(error))
            await self._clock.sleep(backoff.next())

    async def quit(self) -> None:
        """End it; it is unused, and `run` is over."""
        self._set_state(False, "")
        await self._control.quit(self.uuid)
        self._forget()
        if self._exclusive:
            try:
                await self._control.set_compute_mode(self.uuid, SHARED)
            except MpsError as error:
                log.warning("Cannot reset a GPU's compute mode; it stays exclusive", uuid=self.uuid, error=str(error))

    async def _adopt(self) -> None:
        """Go on with the daemon that an agent before this one started, where it answers; else its clients are lost."""
        was_started, process = self._control.was_started(self.uuid), await self._control.process(self.uuid)
        if process is not None and await self._control.answers(self.uuid):
            log.info("An MPS daemon is already running", uuid=self.uuid, pid=process)
            self._process = process
        elif was_started:
            await self._handle_loss("the daemon stopped with the previous agent")

    async def _start(self) -> int:
        """A new one that answers; its process. Raises `MpsError`."""
        await self._control.clean(self.uuid)
        if other := self._control.other_daemon():
            raise MpsError(f"another MPS daemon answers at {other} on the node: stop that daemon first")
        if self._exclusive:
            await self._control.set_compute_mode(self.uuid, EXCLUSIVE)
        process = self._process = await self._control.start(self.uuid)
        try:
            async with asyncio.timeout(self._timing.start):
                while not await self._control.answers(self.uuid):
                    if not runs(process):
                        said = self._control.last_output(self.uuid)
                        raise MpsError(f"the MPS daemon exited immediately{f': {said}' if said else ''}")
                    await asyncio.sleep(self._timing.first_poll_s)
        except TimeoutError as error:
            raise MpsError(f"the MPS daemon did not answer within {self._timing.start:g} s") from error
        log.info("Started an MPS daemon", uuid=self.uuid, pid=process)
        return process

    async def _watch(self, process: int) -> str:
        """Why it is no use any more, once it is none."""
        self._set_state(True, "")
        end, servers, in_fault = asyncio.ensure_future(ended(process)), MpsServers(), set[int]()
        try:
            while True:
                gone = servers.take_ended()
                found = await self._servers()  # after that the daemon has logged how they ended
                if end.done() or not runs(process):
                    return "the daemon's process exited"
                if found is None:
                    return "the daemon no longer answers"
                for server in gone:
                    if server in in_fault or self._control.exited_cleanly(self.uuid, server):
                        continue
                    log.warning("An MPS server exited, so its clients fail", uuid=self.uuid, pid=server)
                    self._hooks.server_lost(self.uuid, server)
                servers.watch(found)
                in_fault = await self._report_faults(found, in_fault.difference(gone))
                self._control.trim_logs(self.uuid)
                await asyncio.wait(
                    {end, *servers.ends}, timeout=self._timing.health, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            servers.close()
            end.cancel()

    async def _report_faults(self, servers: frozenset[int], known: set[int]) -> set[int]:
        """Servers that are in a fault, each reported once as long as that lasts, or were so when they ended."""
        found = {server for server in servers if await self._control.is_in_fault(self.uuid, server)}
        for server in sorted(found - known):
            log.warning("An MPS server has a fatal fault, so its clients fail", uuid=self.uuid, pid=server)
            self._hooks.server_in_fault(self.uuid, server)
        return found | (known - servers)

    async def _servers(self) -> frozenset[int] | None:
        """Processes of its servers; None: it answers neither the first question nor the second."""
        for _ in range(2):
            with contextlib.suppress(MpsError):
                return await self._control.servers(self.uuid)
        return None

    async def _handle_loss(self, why: str) -> None:
        await self._end_leftovers()
        self._set_state(False, f"the MPS daemon failed: {why}")
        log.warning("An MPS daemon failed, so its clients fail", uuid=self.uuid, reason=why)
        self._hooks.lost(self.uuid, why)

    async def _end_leftovers(self) -> None:
        """End what is left of it, if that can be ended; another one is only started once it is."""
        try:
            await self._control.clean(self.uuid)
        except MpsError as error:
            log.warning("Cannot stop an MPS daemon", uuid=self.uuid, error=str(error))
        self._forget()

    def _forget(self) -> None:
        if self._process is not None:
            reap(self._process)
        self._process = None

    def _set_state(self, ready: bool, problem: str) -> None:
        if (ready, problem) != (self.ready, self.problem):
            self.ready, self.problem = ready, problem
            self._hooks.changed(self.uuid, ready, problem)
