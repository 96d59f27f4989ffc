"""The instances of all GPUs of a node that are cut on demand, as the rest of the agent asks for them.

Each GPU is on its own: one whose calls hang or fail keeps none of the others waiting. Leftovers are looked for when
pods, grants or GPUs change. Only for the end of processes, which no driver reports, is asked again after a while.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
import structlog

from purser.agent.host.threads import run_in_thread
from purser.agent.instances.cutting import GpuPartitioner, GpuPartitioning
from purser.agent.instances.devices import on_demand_kind
from purser.agent.instances.planning import BlockedError
from purser.agent.inventory.building import UngrantedInstances
from purser.agent.nvml.driver import Driver, Gpu, MigCallError
from purser.core.device.gpus import NodeMigDevice
from purser.core.mig import MigGeometryError, MigKind, MigPlacement
from purser.core.model import ContainerGrant
from purser.core.sharing import MigStrategy
from purser.kube.clock import Clock
from purser.kube.failures import ObjectFailures

log = structlog.get_logger("purser.agent")

NVML_TIMEOUT_S = 10.0
"""For all calls about one GPU's instances: kubelet admits no other pod meanwhile."""

IDLE_S = 10.0
"""How long an instance stays when no grant names it any more: that is not always known here at once."""

BUSY_CHECK_PERIOD_S = 5.0
"""Between two tries to remove an instance on which processes run still."""

RETRY_PERIOD_S = 30.0
"""After NVML refused, or does not answer."""


NO_ANSWER = "NVML did not answer in time"

NONE: frozenset[MigPlacement] = frozenset()

PartitionerCall: TypeAlias = Callable[[GpuPartitioner], GpuPartitioning]
"""Blocks."""


class InstanceError(Exception):
    """A container's instances are not there; the message says why."""


Placements = Mapping[str, frozenset[MigPlacement]]
"""By the uuid of the GPU."""


class InstanceUsers(Protocol):
    """Who has instances, or is about to."""

    def granted(self, besides: tuple[str, str] | None = None) -> Placements:
        """Those of containers that were given their devices, but for one of them: a pod's uid, and its name."""
        ...

    def kept(self) -> Placements | None:
        """Those of pods that are not admitted yet; None: not known yet."""
        ...

    async def is_held_without_grant(self, gpu: str) -> bool:
        """Whether kubelet lists a pod with the GPU whose grant is not known."""
        ...


class _GpuState:
    """One GPU."""

    def __init__(self, kind: MigKind) -> None:
        self.kind = kind
        self.turn = asyncio.Lock()
        self.look = asyncio.Event()
        self.cut: GpuPartitioning | None = None
        """None: not looked yet."""
        self.problem = ""
        self.pending: asyncio.Future[GpuPartitioning] | None = None
        self.idle_since: dict[MigPlacement, float] = {}
        self.is_stale = True
        """The GPU may be cut otherwise by now."""


class InstanceManager:
    """Makes and removes the instances of one node's GPUs."""

    def __init__(
        self,
        state_dir: Path,
        driver: Callable[[], Driver],
        users: InstanceUsers,
        on_partitioned: Callable[[str, GpuPartitioning | None], None],
        failures: ObjectFailures,
        clock: Clock,
    ) -> None:
        """``on_partitioned``: how a GPU is cut now; None: that is not known."""
        self._state_dir = state_dir
        self._driver = driver
        self._users = users
        self._on_partitioned = on_partitioned
        self._failures = failures
        self._clock = clock
        self._gpus: dict[str, _GpuState] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._has_learned = False

    # What is known

    def ungranted(self) -> dict[str, UngrantedInstances]:
        """What is on each GPU that was looked at and no grant's: the administrator's, and what cannot be removed."""
        return {
            uuid: state.problem or tuple(sorted({*state.cut.foreign, *state.cut.busy} if state.cut else ()))
            for uuid, state in self._gpus.items()
            if state.cut is not None or state.problem
        }

    def follows(self, uuid: str) -> bool:
        """Whether a GPU is cut on demand now."""
        return uuid in self._gpus

    @property
    def devices(self) -> dict[tuple[str, MigPlacement], str]:
        """The agent's own instances that are there, with their MIG devices."""
        return {
            (uuid, placement): device
            for uuid, state in self._gpus.items()
            if state.cut is not None
            for placement, device in state.cut.devices.items()
            if device
        }

    # What is asked

    async def ensure(self, uuid: str, wanted: Collection[MigPlacement], to: tuple[str, str] | None) -> None:
        """Have these instances on a GPU. ``to``: the pod's uid and the container that are given them now; None: they
        were given them before. Raises `InstanceError`."""
        state = self._gpus.get(uuid)
        if state is None:
            raise InstanceError(
                f"GPU {uuid} is no longer partitioned on demand: MIG was disabled, the MIG strategy changed, or the "
                "driver no longer lists the GPU"
            )

        def prepare() -> PartitionerCall:
            granted = self._users.granted(besides=to).get(uuid, NONE)
            return lambda cutter: cutter.ensure(wanted, granted)

        try:
            await self._ask(uuid, state, prepare)
        except InstanceError:
            state.is_stale = True
            state.look.set()
            raise

    def follow(self, gpus: Collection[Gpu], strategy: MigStrategy) -> None:
        """These are the node's GPUs now."""
        kinds = {gpu.uuid: on_demand_kind(gpu, strategy) for gpu in gpus if gpu.uuid}
        found = {uuid: kind for uuid, kind in kinds.items() if kind is not None}
        for uuid in self._gpus.keys() - found.keys():
            del self._gpus[uuid]
            if (task := self._tasks.pop(uuid, None)) is not None:
                task.cancel()
        for uuid, kind in found.items():
            if uuid not in self._gpus:
                self._gpus[uuid] = _GpuState(kind)
        for gpu in gpus:
            state = self._gpus.get(gpu.uuid or "")
            if state is not None and (state.cut is None or _uuids(state.cut.migs) != _uuids(gpu.migs)):
                state.is_stale = True
                state.look.set()
        self._changed.set()

    def grants_changed(self) -> None:
        """Pods came, went, or were given devices."""
        if self._gpus:
            self._changed.set()

    def look_again(self) -> None:
        """The book has learned from kubelet what pods hold: without a record, instances of theirs are the agent's."""
        self._has_learned = True
        for state in self._gpus.values():
            state.is_stale = True
            state.look.set()

    # What is done by itself

    async def run(self) -> None:
        """Remove leftovers until cancelled."""
        before: tuple[Placements, Placements | None] = ({}, None)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for uuid in self._gpus.keys() - self._tasks.keys():
                    work = self._failures.keep_going("GPU instances", partial(self._follow, uuid))
                    self._tasks[uuid] = asyncio.create_task(work)
                now = self._users.granted(), self._users.kept()
                for uuid, state in self._gpus.items():
                    if _placements_of_gpu(uuid, now) != _placements_of_gpu(uuid, before):
                        state.look.set()
                before = now
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._tasks.clear()

    async def _follow(self, uuid: str) -> None:
        while (state := self._gpus.get(uuid)) is not None:
            state.look.clear()
            try:
                pause = await self._remove_leftovers(uuid, state)
            except InstanceError as error:
                log.warning("Cannot remove leftover GPU instances", gpu=uuid, error=str(error))
                pause = RETRY_PERIOD_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await state.look.wait()

    async def _remove_leftovers(self, uuid: str, state: _GpuState) -> float | None:
        """Remove what has been left for long enough. In how many seconds there may be more; None: not before something
        changes. Raises `InstanceError`."""
        if state.is_stale:
            await self._ask(
                uuid, state, lambda: partial(_read_partitioning, granted=self._users.granted().get(uuid, NONE))
            )
        kept = self._users.kept()
        if kept is None or state.cut is None:
            return None
        now = self._clock.monotonic()
        left = state.cut.devices.keys() - self._users.granted().get(uuid, NONE) - kept.get(uuid, NONE)
        state.idle_since = {placement: state.idle_since.get(placement, now) for placement in left}
        due = frozenset(each for each, since in state.idle_since.items() if now - since >= IDLE_S)
        if due:
            if await self._users.is_held_without_grant(uuid):
                return BUSY_CHECK_PERIOD_S
            await self._ask(uuid, state, lambda: self._sweep(uuid, due))
        waits = [IDLE_S - (now - since) for each, since in state.idle_since.items() if each not in due]
        return min([*waits, *([BUSY_CHECK_PERIOD_S] if state.cut.busy else [])], default=None)

    def _sweep(self, uuid: str, due: frozenset[MigPlacement]) -> PartitionerCall:
        """As grants are at this moment."""
        granted, kept = self._users.granted().get(uuid, NONE), (self._users.kept() or {}).get(uuid, NONE)
        return lambda cutter: cutter.sweep(granted, due - granted - kept)

    async def _ask(self, uuid: str, state: _GpuState, prepare: Callable[[], PartitionerCall]) -> None:
        """Do something on a GPU, and take what it is then. Raises `InstanceError`."""
        async with state.turn:
            if state.pending is not None:
                raise InstanceError(NO_ANSWER)
            cutter = GpuPartitioner(self._driver(), self._state_dir, uuid, state.kind, has_learned=self._has_learned)
            work = prepare()
            state.pending = future = run_in_thread(lambda: work(cutter), f"purser-mig-{uuid[-4:]}")
            future.add_done_callback(partial(self._finish, uuid, state))
            done, _ = await asyncio.wait({future}, timeout=NVML_TIMEOUT_S)
            if not done:
                future.add_done_callback(lambda _: state.look.set())
                self._note_failure(uuid, state, NO_ANSWER)
                raise InstanceError(NO_ANSWER)
            try:
                future.result()
            except (BlockedError, MigCallError, MigGeometryError, OSError) as error:
                raise InstanceError(str(error)) from error

    def _finish(self, uuid: str, state: _GpuState, done: "asyncio.Future[GpuPartitioning]") -> None:
        """Also of a call without a waiter."""
        state.pending = None
        if self._gpus.get(uuid) is not state or done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._store_state(uuid, state, done.result())
            return
        if state.cut is None or state.problem:
            self._note_failure(uuid, state, str(error))
        state.is_stale = True

    def _store_state(self, uuid: str, state: _GpuState, cut: GpuPartitioning) -> None:
        if state.cut is not None:  # what could not be removed is reported until it is gone or in use
            granted = self._users.granted().get(uuid, NONE)
            busy = {each for each in state.cut.busy if each in cut.devices and each not in granted}
            cut = msgspec.structs.replace(cut, busy=cut.busy | busy)
        state.cut, state.problem, state.is_stale = cut, "", False
        self._on_partitioned(uuid, cut)

    def _note_failure(self, uuid: str, state: _GpuState, problem: str) -> None:
        if problem != state.problem:
            log.error("Cannot determine a GPU's instances", gpu=uuid, error=problem)
            state.problem = problem
            self._on_partitioned(uuid, None)


def _read_partitioning(cutter: GpuPartitioner, *, granted: Collection[MigPlacement]) -> GpuPartitioning:
    return cutter.look(granted)


def _placements_of_gpu(uuid: str, known: tuple[Placements, Placements | None]) -> object:
    granted, kept = known
    return granted.get(uuid, NONE), None if kept is None else kept.get(uuid, NONE)


def _uuids(migs: Iterable[NodeMigDevice]) -> set[str]:
    return {each.uuid for each in migs}


def placements_of(parts: Iterable[ContainerGrant]) -> Placements:
    """The instances of some containers, by GPU."""
    found: dict[str, set[MigPlacement]] = {}
    for share in (share for part in parts for share in part.shares):
        if share.mig is not None:
            found.setdefault(share.uuid, set()).add(share.mig)
    return {uuid: frozenset(those) for uuid, those in found.items()}
