import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from tests.unit.kube.servers import ManualClock, eventually, line, refuse, running, serving

from purser.kube import Client, ClusterConfig, LeaderElector, LeaseFollower

TURNS = 10
"""Of the event loop, between two moves of the clock: what electors ask for comes a few moves later."""


class LeaseServer:
    """One Lease with optimistic locking; clients named in ``cut_off`` are not answered, as in a partition."""

    def __init__(self):
        self.lease = None
        self.cut_off = set()
        self.refused = set()
        self.version = 100
        self.writes = 0
        self.changed = asyncio.Event()
        self.gate = asyncio.Event()  # requests wait while it is closed
        self.gate.set()
        self.waiting = False

    def write(self, **spec):
        self.version += 1
        metadata = {"name": "leader", "namespace": "ns", "uid": "u", "resourceVersion": str(self.version)}
        self.lease = {"metadata": metadata | {"labels": {"kept": "yes"}}, "spec": spec}
        self.changed.set()
        self.changed = asyncio.Event()

    async def handle(self, request):
        who = request.headers["User-Agent"]
        self.waiting = not self.gate.is_set()
        await self.gate.wait()
        if who in self.cut_off:
            await asyncio.Event().wait()
        if who in self.refused:
            return refuse(503, "ServiceUnavailable")
        if "fieldSelector" in request.query:
            return await self._watch(request) if "watch" in request.query else self._list(request)
        if request.method == "GET":
            return web.json_response(self.lease) if self.lease else refuse(404, "NotFound")
        return self._write(request.method, await request.json())

    def _write(self, method, body):
        self.writes += 1
        if method == "POST" and self.lease:
            return refuse(409, "AlreadyExists")
        if method == "PUT" and body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return refuse(409, "Conflict")
        self.write(**body["spec"])
        return web.json_response(self.lease)

    def _list(self, request):
        assert request.query["fieldSelector"] == "metadata.name=leader"
        items = [self.lease] if self.lease else []
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    async def _watch(self, request):
        response = web.StreamResponse()
        await response.prepare(request)
        sent = int(request.query["resourceVersion"])
        while True:
            changed = self.changed
            if self.version > sent:
                sent = self.version
                await response.write(line("MODIFIED", self.lease))
            await changed.wait()


class Arena:
    """Electors on one lease, each with a client of its own, and one clock."""

    def __init__(self):
        self.server = LeaseServer()
        self.clock = ManualClock()
        self.electors = {}
        self.history = []

    async def __aenter__(self):
        self._stack = AsyncExitStack()
        self.url = await self._stack.enter_async_context(serving(self.server.handle))
        return self

    async def __aexit__(self, *error):
        await self._stack.aclose()

    async def client(self, name):
        config = ClusterConfig.insecure(self.url)
        return await self._stack.enter_async_context(Client(config, user_agent=name))

    async def elector(self, name, **options):
        elector = LeaderElector(await self.client(name), "ns", "leader", name, clock=self.clock, **options)
        elector.add_listener(lambda leading: self.history.append((name, leading)))
        self.electors[name] = elector
        return elector

    def leaders(self):
        return [name for name, elector in self.electors.items() if elector.is_leader]

    async def pass_time(self, seconds, step=0.5):
        """Let time go by in steps, and hold the one promise of leader election at each."""
        for _ in range(int(seconds / step)):
            self.clock.advance(step)
            for _ in range(TURNS):
                await asyncio.sleep(0)
                assert len(self.leaders()) <= 1

    async def until(self, condition, seconds=120):
        for _ in range(seconds):
            if condition():
                return
            await self.pass_time(1)
        raise AssertionError(f"not within {seconds} s of the clock; leaders: {self.leaders()}")


@pytest.fixture
async def arena():
    async with Arena() as found:
        yield found


@asynccontextmanager
async def leading(arena):
    """The elector ``one``, which leads."""
    one = await arena.elector("one")
    async with running(one.run()):
        await arena.until(lambda: one.is_leader)
        yield one


async def test_of_two_electors_one_leads_and_keeps_leading(arena):
    one, two = await arena.elector("one"), await arena.elector("two")
    async with running(one.run(), two.run()):
        await arena.until(arena.leaders)
        (leader,) = arena.leaders()
        await arena.pass_time(60)
        assert arena.leaders() == [leader]
        assert arena.server.lease["spec"]["holderIdentity"] == leader
        assert arena.server.lease["spec"]["leaseTransitions"] == 0
        await asyncio.wait_for(arena.electors[leader].wait_until_acquired(), 5)


@pytest.mark.parametrize("fault", ["cut_off", "refused"])
async def test_a_leader_in_a_partition_steps_down_before_the_other_takes_over(arena, fault):
    async with leading(arena):
        two = await arena.elector("two")
        async with running(two.run()):
            await arena.pass_time(5)
            getattr(arena.server, fault).add("one")
            await arena.until(lambda: two.is_leader)
            assert arena.history == [("one", True), ("one", False), ("two", True)]
            getattr(arena.server, fault).clear()
            await arena.pass_time(30)
            assert arena.leaders() == ["two"]
            spec = arena.server.lease["spec"]
            assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 1)
            assert arena.server.lease["metadata"]["labels"] == {"kept": "yes"}


async def test_a_leader_that_stops_frees_the_lease_after_it_stopped_leading(arena):
    async with leading(arena) as one:
        one.add_listener(lambda leading: leading or arena.history.append(arena.server.lease["spec"]))
    assert arena.history[1] == ("one", False)
    assert arena.history[2]["holderIdentity"] == "one"
    assert arena.server.lease["spec"]["holderIdentity"] == ""
    two = await arena.elector("two")
    async with running(two.run()):
        await arena.until(lambda: two.is_leader, seconds=5)


async def test_a_held_lease_counts_from_when_we_saw_it_however_old_its_timestamps_are(arena):
    arena.server.write(
        holderIdentity="gone", leaseDurationSeconds=15, renewTime="2001-01-01T00:00:00.000000Z", leaseTransitions=4
    )
    one = await arena.elector("one")
    async with running(one.run()):
        await arena.pass_time(14)
        assert not one.is_leader
        await arena.until(lambda: one.is_leader, seconds=10)
    assert arena.server.lease["spec"]["leaseTransitions"] == 5


async def test_a_lease_that_goes_on_being_renewed_is_left_alone_even_with_timestamps_from_the_past(arena):
    one = await arena.elector("one")
    async with running(one.run()):
        for second in range(30):
            arena.server.write(holderIdentity="slow-clock", leaseDurationSeconds=15, renewTime=f"2001 {second}")
            await arena.pass_time(2)
    assert arena.history == []


async def test_a_candidate_says_once_for_whom_it_waits(arena):
    arena.server.write(holderIdentity="gone", leaseDurationSeconds=10)
    a = await arena.elector("a")
    with capture_logs() as logs:
        async with running(a.run()):
            await arena.until(lambda: arena.leaders() == ["a"])
    waits = [each["holder"] for each in logs if each["event"].startswith("Waiting for the lease")]
    assert waits == ["gone"]


async def test_a_leader_that_sees_another_holder_steps_down_at_once(arena):
    async with leading(arena) as one:
        arena.server.write(holderIdentity="usurper", leaseDurationSeconds=15)
        await arena.pass_time(3)
        await asyncio.wait_for(one.lost(), 5)


async def test_a_leader_whose_event_loop_was_held_up_knows_that_its_time_is_over(arena):
    async with leading(arena) as one:
        arena.clock.advance(11)  # and nothing of ours has run since
        assert not one.is_leader


async def test_a_leader_whose_time_was_over_for_a_moment_says_so_to_those_who_left_work_undone(arena, monkeypatch):
    """Its renewal was on the way when its event loop was held up, and succeeded."""
    async with leading(arena) as one:
        replace, began = one._client.replace, arena.clock.monotonic()
        led = []

        async def held_up(*arguments):
            answer = await replace(*arguments)
            monkeypatch.undo()
            arena.clock.advance(9)
            led.append(one.is_leader)
            return answer

        monkeypatch.setattr(one._client, "replace", held_up)
        arena.history.clear()
        await arena.until(lambda: arena.clock.monotonic() > began + 9 and one.is_leader)
        assert led == [False]
        assert arena.history == [("one", False), ("one", True)]


async def test_a_leaders_time_counts_from_before_a_slow_renewal_was_sent(arena):
    async with leading(arena) as one:
        arena.server.gate.clear()
        while not arena.server.waiting:
            await arena.pass_time(0.5)
        sent, before = arena.clock.monotonic(), one._renewed_at
        await arena.pass_time(6)
        arena.server.gate.set()
        await eventually(lambda: one._renewed_at > before)
        arena.server.gate.clear()
        assert one._renewed_at <= sent
        arena.clock.advance(one._renewed_at + 9.9 - arena.clock.monotonic())
        assert one.is_leader
        arena.clock.advance(0.2)
        assert not one.is_leader
        arena.server.gate.set()


async def test_durations_that_would_allow_two_leaders_are_refused(arena):
    with pytest.raises(ValueError, match="lease_duration > renew_deadline"):
        await arena.elector("one", lease_duration=10, renew_deadline=10)


async def test_a_follower_says_whether_the_holder_is_on_its_host(arena):
    follower = LeaseFollower(await arena.client("agent"), "ns", "leader", "host-1", clock=arena.clock)
    told = []
    follower.add_listener(told.append)
    async with running(follower.run()):
        await follower.synced()
        assert not follower.is_held_here
        arena.server.write(holderIdentity="host-1_4711", leaseDurationSeconds=15, renewTime="1")
        await eventually(lambda: told == [True])
        arena.server.write(holderIdentity="host-10_4711", leaseDurationSeconds=15, renewTime="2")
        await eventually(lambda: told == [True, False])
        assert not follower.is_held_here


async def test_a_follower_does_not_count_a_holder_that_stopped_renewing(arena):
    follower = LeaseFollower(await arena.client("agent"), "ns", "leader", "host-1", clock=arena.clock)
    told = []
    follower.add_listener(told.append)
    async with running(follower.run()):
        arena.server.write(holderIdentity="host-1_4711", leaseDurationSeconds=15, renewTime="1")
        await eventually(lambda: follower.is_held_here)
        arena.clock.advance(10)
        arena.server.write(holderIdentity="host-1_4711", leaseDurationSeconds=15, renewTime="2")
        await eventually(lambda: follower._lease.spec.renew_time == "2")
        arena.clock.advance(10)
        assert follower.is_held_here
        arena.clock.advance(5)
        assert not follower.is_held_here
        await eventually(lambda: told == [True, False])
