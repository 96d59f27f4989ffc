"""When rounds come, and what becomes of those that fail."""

import asyncio

import pytest

from purser.kube import ApiUnavailableError, ServerError, run_workers
from purser.operator import rounds as module
from purser.operator.metrics import OperatorMetrics
from purser.operator.model import Outcome, PatchNode, Say, Snapshot
from purser.operator.rounds import Rounds

PATCH = PatchNode(node="a", labels={"x": "y"})
SAY = Say("Node", "a", "u", "DriverFails", "it crashes", warning=True)


class World:
    """Everything around `Rounds`, played."""

    def __init__(self, monkeypatch, apart_s=0.01):
        self.outcome = Outcome()
        self.errors = []
        self.began, self.said, self.written, self.refreshed = [], [], [], 0
        self.leads = True
        self.takes_s = 0.0
        self.metrics = OperatorMetrics()
        self.rounds = Rounds(self, self, self, self.metrics, apart_s=apart_s, may_write=lambda: self.leads)
        monkeypatch.setattr(module, "reconcile", lambda snapshot: self.outcome)

    async def refresh(self):
        self.refreshed += 1

    async def snapshot(self, look_into):
        self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes_s)
        if self.errors:
            raise self.errors.pop()
        return Snapshot(now=0, namespace="n", purser_image="i")

    async def do(self, action):
        if self.errors:
            raise self.errors.pop()
        self.written.append(action)

    def event(self, about, reason, message, type="Normal"):
        self.said.append((about.kind, about.name, reason, type))

    def failed(self):
        return self.metrics.registry.get_sample_value("gpu_operator_reconciliation_failed_total")


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


async def work(world, seconds):
    task = asyncio.create_task(run_workers(world.rounds.queue, world.rounds.round))
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_burst_of_changes_is_one_round_or_two_and_rounds_keep_their_distance(monkeypatch):
    world = World(monkeypatch, apart_s=0.05)
    world.takes_s = 0.02

    async def changes():
        while True:
            world.rounds.trigger()
            await asyncio.sleep(0.001)

    task = asyncio.create_task(changes())
    await work(world, 0.4)
    task.cancel()
    gaps = [later - earlier for earlier, later in zip(world.began, world.began[1:], strict=False)]
    assert gaps
    assert min(gaps) >= 0.069, "the length of a round, and the pause after it"


async def test_a_change_during_a_round_leads_to_another(world):
    world.takes_s = 0.03
    world.rounds.trigger()
    asyncio.get_running_loop().call_later(0.015, world.rounds.trigger)
    await work(world, 0.2)
    assert len(world.began) == 2


async def test_time_alone_brings_a_round_where_the_kernel_asks_for_it(world):
    world.outcome = Outcome(look_again_s=0.03)
    world.rounds.trigger()
    await work(world, 0.3)
    assert len(world.began) >= 3


async def test_who_does_not_lead_does_nothing(world):
    world.leads = False
    world.rounds.trigger()
    await work(world, 0.05)
    assert world.began == []


async def test_who_begins_to_lead_looks_anew_first(world):
    world.rounds.leads(True)
    await work(world, 0.05)
    assert (world.refreshed, len(world.began)) == (1, 1)
    world.rounds = Rounds(world, world, world, world.metrics, apart_s=0.01, may_write=lambda: True)
    world.rounds.trigger()
    await work(world, 0.05)
    world.rounds.leads(False)
    assert world.refreshed == 2


@pytest.mark.parametrize("error", [ApiUnavailableError("away"), RuntimeError("a bug")], ids=str)
async def test_a_round_that_fails_is_tried_again_and_counted(world, error):
    world.errors = [error]
    world.rounds.trigger()
    await work(world, 0.4)
    assert len(world.began) == 2
    assert world.failed() == 1


async def test_a_write_that_fails_brings_another_round(world):
    world.outcome = Outcome(actions=(PATCH,))
    world.takes_s = 0.001

    async def do(action):
        if not world.written:
            world.written.append("failed")
            raise ServerError(500, "", "no")
        world.written.append(action)

    world.do = do
    world.rounds.trigger()
    await work(world, 0.4)
    assert world.written == ["failed", PATCH]
    assert world.failed() == 1


async def test_an_event_is_said_when_it_becomes_so_and_not_in_each_round(world):
    world.outcome = Outcome(events=(SAY,))
    for _ in range(3):
        await world.rounds.round()
    assert world.said == [("Node", "a", "DriverFails", "Warning")]
    world.outcome = Outcome()
    await world.rounds.round()
    world.outcome = Outcome(events=(SAY,))
    await world.rounds.round()
    assert len(world.said) == 2
