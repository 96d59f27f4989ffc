"""Random creations and destructions on the simulated driver, with an agent that is killed between any two steps."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tiers import IS_LONG, TIER, Tier

from purser.agent.instances import cutting
from purser.agent.instances.cutting import GpuPartitioner
from purser.agent.instances.planning import BlockedError
from purser.agent.instances.records import read_record, record_path
from purser.agent.nvml import Driver, MigCallError
from purser.core.mig import MIG_KINDS, MigGeometry, MigKind, MigPlacement, free_starts
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.mig import MigRefusedError
from purser.lab.driver.node_mig import create_mig, destroy_mig, mig_states, set_mig
from purser.lab.driver.parts import ProcessLoad

KIND = MIG_KINDS["A100-40GB"]
STEPS = {Tier.FAST: 100, Tier.GATE: 3_000, Tier.SOAK: 10_000}[TIER]


class Killed(BaseException):
    """The agent dies here: nothing of it runs any more, not even what handles errors."""


class Mortal:
    """Passes calls on until the one at which the agent is to die: before it, or after."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.is_risky = False

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def risky(*arguments: Any) -> Any:
            if self.is_risky and self.choose.random() < 0.05:
                raise Killed
            result = call(*arguments)
            if self.is_risky and self.choose.random() < 0.05:
                raise Killed
            return result

        return risky


class World:
    """One GPU, what pods were granted on it, and what an administrator made."""

    def __init__(self, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.choose = random.Random(seed)
        self.node = SimulatedDriver.create(folder / "driver", "n", "a100-40gb-8", kind=DriverKind.PYTHON)
        set_mig(self.node.folder, 0, enabled=True)
        self.uuid = self.node.uuids[0]
        self.state = folder / "state"
        self.mortal = Mortal(self.choose)
        monkeypatch.setattr(cutting, "write_record", self.mortal.around(cutting.write_record))
        self.driver: Driver = self.node.open()
        self.driver.scan()
        for call in ("create_instance", "fill_instance", "destroy_instance"):
            # What NVML does in one call to the driver's kernel module is two here: between them one may die as well.
            monkeypatch.setattr(self.driver, call, self.mortal.around(getattr(self.driver, call)))
        nvml: Any = self.driver._nvml  # type: ignore[attr-defined]
        for call in ("nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy", "nvmlGpuInstanceCreateComputeInstance"):
            monkeypatch.setattr(nvml, call, self.mortal.around(getattr(nvml, call)), raising=False)
        self.granted: dict[MigPlacement, str] = {}
        """With their MIG devices; empty: not answered yet."""
        self.theirs: dict[MigPlacement, str] = {}
        self.running: dict[int, str] = {}
        self.deaths = self.given = self.refused = 0

    def cutter(self) -> GpuPartitioner:
        return GpuPartitioner(self.driver, self.state, self.uuid, KIND)

    def allocate(self) -> None:
        taken = MigGeometry.of(KIND, [*self.granted, *self.theirs]).mask
        profile = self.choose.choice(KIND.profiles)
        free = free_starts(KIND, profile, taken)
        if not free:
            return
        placement = MigPlacement(profile.name, self.choose.choice(free))
        try:
            cut = self.cutter().ensure((placement,), frozenset(self.granted))
        except BlockedError as error:  # by a process on what no grant names any more
            raise AssertionError(f"{placement} was granted on {self.granted} and {self.theirs}: {error}") from error
        except MigCallError:
            self.refused += 1
            assert self.running, "nothing else is in the way"
            return
        self.granted[placement] = cut.devices[placement]
        assert cut.devices[placement].startswith("MIG-")
        assert all(cut.devices[each] == device for each, device in self.granted.items()), "the others have theirs still"
        self.given += 1

    def end(self) -> None:
        if self.granted:
            del self.granted[self.choose.choice(sorted(self.granted))]

    def sweep(self) -> None:
        cut = self.cutter().look(frozenset(self.granted))
        left = frozenset(cut.devices) - set(self.granted)
        cut = self.cutter().sweep(frozenset(self.granted), left)
        assert set(cut.devices) == {*self.granted, *cut.busy}
        assert cut.foreign == tuple(sorted(self.theirs))
        assert not cut.busy or self.running

    def start_process(self) -> None:
        pid = self.choose.randrange(1, 1 << 20)
        there = [device for device in (*self.granted.values(), *self.theirs.values()) if device]
        if there and pid not in self.running:
            self.running[pid] = self.choose.choice(there)
            self.node.add_process(self.running[pid], pid, ProcessLoad(memory_mib=1))

    def end_process(self) -> None:
        if self.running:
            pid = self.choose.choice(sorted(self.running))
            del self.running[pid]
            self.node.remove_process(0, pid)

    def administrate(self) -> None:
        """Somebody else makes and removes instances of his own."""
        if self.theirs and self.choose.random() < 0.6:
            placement = self.choose.choice(sorted(self.theirs))
            if self.theirs[placement] not in self.running.values():
                destroy_mig(self.node.folder, self.theirs.pop(placement))
            return
        profile = self.choose.choice(KIND.profiles)
        free = free_starts(KIND, profile, MigGeometry.of(KIND, [*self.granted, *self.theirs]).mask)
        if free and len(self.theirs) < 2:
            placement = MigPlacement(profile.name, self.choose.choice(free))
            owned = read_record(record_path(self.state, self.uuid), self.uuid) or {}
            if placement in owned:  # he makes what the agent is about to remove: nobody could tell
                return
            try:
                self.theirs[placement] = create_mig(self.node.folder, 0, profile.name, start=placement.start)
            except MigRefusedError:
                return  # something that is left over is there

    def check(self) -> None:
        """No two instances overlap, and each is a pod's, an administrator's or in the record."""
        there = [
            _placement(KIND, each.profile, each.start) for each in mig_states(self.node.folder)[0].instances.values()
        ]
        MigGeometry.of(KIND, there)
        owned = read_record(record_path(self.state, self.uuid), self.uuid) or {}
        assert set(there) <= {*owned, *self.theirs}, "an instance that nobody owns"
        assert not set(owned) & set(self.theirs), "what is an administrator's is not the agent's"
        assert set(self.granted) <= set(there), "pods keep what they were given"


def _placement(kind: MigKind, number: int, start: int) -> MigPlacement:
    return MigPlacement(next(each.name for each in kind.profiles if each.number == number), start)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(tmp_path, 20_26, monkeypatch)
    yield world
    world.driver.close()


@pytest.mark.timeout(900)  # thousands of steps, each with calls of the driver and files
def test_nothing_overlaps_and_nothing_leaks_whenever_the_agent_dies(world: World) -> None:
    acts = [world.allocate] * 4 + [world.end] * 3 + [world.sweep] * 2
    acts += [world.start_process, world.end_process, world.end_process, world.administrate]
    for _ in range(STEPS):
        act = world.choose.choice(acts)
        world.mortal.is_risky = act in (world.allocate, world.sweep)
        try:
            act()
        except Killed:
            world.deaths += 1
        world.mortal.is_risky = False
        world.check()
    for pid in list(world.running):
        world.node.remove_process(0, pid)
    world.running.clear()
    world.granted.clear()
    world.sweep()
    assert len(mig_states(world.node.folder)[0].instances) == len(world.theirs)
    assert read_record(record_path(world.state, world.uuid), world.uuid) == {}
    assert min(world.deaths, world.given) > STEPS // 20
    assert world.refused or not IS_LONG
