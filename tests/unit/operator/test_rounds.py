"""When rounds come, and what becomes of those that fail."""

import asyncio
from contextlib import suppress

import pytest
from tests.unit.kube.servers import ManualClock

from purser.kube import (
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    ServerError,
    TooManyRequestsError,
    run_workers,
)
from purser.kube.failures import ObjectFailures
from purser.operator import running as module
from purser.operator.metrics import OperatorMetrics
from purser.operator.model import (
    Apply,
    EmitEvent,
    Evict,
    Gauge,
    IsolatedNode,
    NodeView,
    NodeWorkload,
    PatchNode,
    RoundOutcome,
    Snapshot,
)
from purser.operator.running import RoundError, Rounds

PATCH = PatchNode(node="a", labels={"x": "y"})
SAY = EmitEvent("Node", "a", "u", "DriverFails", "it crashes", warning=True)


class World:
    """Everything around `Rounds`, played."""

    def __init__(self, monkeypatch, apart_s=0.01):
        self.outcome = RoundOutcome()
        self.errors = []
        self.began, self.said, self.written, self.refreshed = [], [], [], 0
        self.refusals = []
        """As each round saw them."""
        self.leads = True
        self.takes_s = 0.0
        self.metrics, self.clock = OperatorMetrics(), ManualClock()
        self.rounds = self.new_rounds(apart_s)
        monkeypatch.setattr(module, "reconcile", self.decide)

    def new_rounds(self, apart_s=0.01):
        return Rounds(self, self, self, self.metrics, apart_s=apart_s, may_write=lambda: self.leads, clock=self.clock)

    def decide(self, snapshot):
        self.refusals.append([(str(each.key), each.why) for each in snapshot.refusals])
        return self.outcome

    async def refresh(self):
        self.refreshed += 1

    async def snapshot(self, inspect):
        self.began.append(self.clock.monotonic())
        await self.clock.sleep(self.takes_s)
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


STEP_S = 0.005
TURNS = 20
"""Of the loop: more than a round takes beside its pauses."""


async def work(world, seconds):
    """Of the world's clock."""
    task = asyncio.create_task(run_workers(world.rounds.queue, world.rounds.round))
    for _ in range(round(seconds / STEP_S)):
        for _ in range(TURNS):
            await asyncio.sleep(0)
        world.clock.advance(STEP_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_burst_of_changes_is_one_round_or_two_and_rounds_keep_their_distance(monkeypatch):
    world = World(monkeypatch, apart_s=0.05)
    world.takes_s = 0.02

    async def changes():
        while True:
            world.rounds.trigger()
            await world.clock.sleep(STEP_S)

    task = asyncio.create_task(changes())
    await work(world, 0.4)
    task.cancel()
    gaps = [later - earlier for earlier, later in zip(world.began, world.began[1:], strict=False)]
    assert gaps
    assert min(gaps) == pytest.approx(0.07), "the length of a round, and the pause after it"


async def test_a_change_during_a_round_leads_to_another(world):
    look = world.snapshot

    async def snapshot(inspect):
        if not world.began:
            asyncio.get_running_loop().call_soon(world.rounds.trigger)
        return await look(inspect)

    world.snapshot, world.takes_s = snapshot, 0.03
    world.rounds.trigger()
    await work(world, 0.2)
    assert len(world.began) == 2


async def test_time_alone_brings_a_round_where_the_kernel_asks_for_it(world):
    world.outcome = RoundOutcome(requeue_after_s=0.03)
    world.rounds.trigger()
    await work(world, 0.3)
    assert len(world.began) >= 3


async def test_who_does_not_lead_does_nothing(world):
    world.leads = False
    world.rounds.trigger()
    await work(world, 0.05)
    assert world.began == []


async def test_who_begins_to_lead_looks_again_first(world):
    world.rounds.leads(True)
    await work(world, 0.05)
    assert (world.refreshed, len(world.began)) == (1, 1)
    world.rounds = world.new_rounds()
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
    world.outcome = RoundOutcome(actions=(PATCH,))
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


NO = ForbiddenError(403, "Forbidden", "PodSecurity says no")
TOLD = ("DaemonSet n/d", "PodSecurity says no (403 Forbidden)")
APPLY = Apply({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"namespace": "n", "name": "d"}}, "created")


def answers(world, *errors):
    """To the writes of rounds to come, None: it is taken; the last answer stands for all further ones."""
    left = list(errors)

    async def do(action):
        error = left.pop(0) if len(left) > 1 else left[0]
        if error is not None:
            raise error
        world.written.append(action)

    world.do = do


async def test_a_write_that_is_refused_is_known_to_the_next_rounds_for_as_long_as_it_is(world):
    world.outcome = RoundOutcome(actions=(APPLY,))
    answers(world, NO, NO, ServerError(500, "", "webhook down"), ApiUnavailableError("timeout"), NO, None)
    for _ in range(5):
        with pytest.raises(RoundError):
            await world.rounds.round()
    assert world.refusals == [[], [TOLD], [TOLD], [TOLD], [TOLD]], "what passes is not what is wrong"
    await world.rounds.round()
    await world.rounds.round()
    assert world.refusals[5:] == [[TOLD], []]


async def test_that_a_write_is_taken_after_all_brings_a_round_that_says_so(world):
    world.outcome = RoundOutcome(actions=(APPLY,))
    answers(world, NO, None)
    world.rounds.trigger()
    await work(world, 0.5)
    assert world.refusals == [[], [TOLD], []]


async def test_a_leader_has_no_old_refusals_when_it_leads_again(world):
    world.outcome = RoundOutcome(actions=(APPLY,))
    answers(world, NO)
    with pytest.raises(RoundError):
        await world.rounds.round()
    world.rounds.leads(False)
    with pytest.raises(RoundError):
        await world.rounds.round()
    assert world.refusals == [[], []]


async def test_a_node_that_changed_meanwhile_is_decided_again_and_nothing_has_failed(world):
    world.outcome = RoundOutcome(actions=(PATCH,))
    answers(world, ConflictError(409, "Conflict", "changed"), None)
    world.rounds.trigger()
    await work(world, 0.2)
    assert (world.written, world.failed(), world.refusals) == ([PATCH], 0, [[], []])


async def test_an_eviction_that_a_budget_refuses_is_asked_for_when_the_kernel_says(world):
    evict = Evict(NodeWorkload(namespace="n", name="w", uid="u", node="a"), "upgrade")
    world.outcome = RoundOutcome(actions=(evict,), requeue_after_s=60.0)
    answers(world, TooManyRequestsError(429, "TooManyRequests", "budget"))
    world.rounds.trigger()
    await work(world, 0.2)
    assert (len(world.began), world.failed()) == (1, 0)


@pytest.mark.parametrize("fails", [False, True], ids=["a round that ends", "a round that fails"])
async def test_a_round_in_which_the_lease_was_lost_sets_no_gauges(world, fails):
    world.outcome = RoundOutcome(actions=(PATCH,), gauges={Gauge.GPU_NODES: 3.0})
    await world.rounds.round()
    assert world.metrics.registry.get_sample_value("gpu_operator_gpu_nodes_total") == 3.0

    async def lose(inspect):
        world.leads = False
        world.rounds.leads(False)
        if fails:
            raise ApiUnavailableError("away")
        return Snapshot(now=0, namespace="n", purser_image="i")

    world.snapshot = lose
    with suppress(ApiUnavailableError):
        await world.rounds.round()
    for name in ("gpu_nodes_total", "reconciliation_status"):
        assert world.metrics.registry.get_sample_value(f"gpu_operator_{name}") is None


async def test_an_event_is_emitted_at_its_change_and_not_in_each_round(world):
    world.outcome = RoundOutcome(events=(SAY,))
    for _ in range(3):
        await world.rounds.round()
    assert world.said == [("Node", "a", "DriverFails", "Warning")]
    world.outcome = RoundOutcome()
    await world.rounds.round()
    world.outcome = RoundOutcome(events=(SAY,))
    await world.rounds.round()
    assert len(world.said) == 2


async def test_a_node_that_is_left_out_is_reported_and_tried_last_in_the_next_round(monkeypatch):
    world = World(monkeypatch)
    told, suspects = [], []
    monkeypatch.setattr(ObjectFailures, "failed", lambda _, resource, about, error: told.append((about.name, error)))
    error = KeyError("x")
    unsure, bad = (
        IsolatedNode(node=NodeView(name="b"), why="?"),
        IsolatedNode(node=NodeView(name="a"), why="!", error=error),
    )
    world.outcome = RoundOutcome(actions=(PATCH,), isolated=(bad, unsure))
    decide = module.reconcile
    monkeypatch.setattr(module, "reconcile", lambda seen: (suspects.append(seen.suspects), decide(seen))[1])
    await world.rounds.round()
    await world.rounds.round()
    assert told == [("a", error)] * 2
    assert suspects == [(), ("b", "a")]
    assert world.written == [PATCH, PATCH]
