"""Many who ask why a pod waits, over HTTP, with the lab's API server behind the scheduler."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from structlog.testing import capture_logs
from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.core.state import StateReplica
from purser.kube import SystemClock
from purser.lab.apiserver import User
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.read_api import AccessControl, SharedReads, StatePage, WhyPage, clients, read_api_app, serving
from purser.telemetry import listening

USERS = ("jane", "joe", "kim", "lee", "mia")


class World:
    """A scheduler, and those who ask it; each has the name of its token."""

    def __init__(self, inner, metrics, url):
        self.inner, self.searches, self.turn = inner, inner.extender.searches, inner.extender.searches._one_by_one
        self._metrics, self._url, self._running = metrics, url, []
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def get(self, path, token):
        """Status, text and headers."""
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.get(self._url + path, headers=headers) as response:
            return response.status, await response.text(), response.headers

    async def why(self, pod, token):
        return await self.get(f"/v1/namespaces/default/pods/p{pod}/why", token)

    async def start(self, pod, token):
        """The same, once it waits for its turn."""
        before = self.queued
        asked = asyncio.ensure_future(self.why(pod, token))
        self._running.append(asked)
        await eventually(lambda: self.queued > before)
        return asked

    @property
    def queued(self):
        """How many searches wait for their turn."""
        return len([each for each in self.turn._waiters or () if not each.done()])

    def counted(self, code):
        name = "purser_scheduler_read_api_requests_total"
        return self._metrics.registry.get_sample_value(name, {"code": str(code)}) or 0

    async def end(self):
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._session.close()


@pytest.fixture
async def it(monkeypatch):
    monkeypatch.setattr(clients, "LOOK_PERIOD_S", 0.02)
    async with asked() as made:
        yield made


@asynccontextmanager
async def asked():
    async with server() as api, replica(api) as inner:
        for name in USERS:
            api.add_user(name, User(name))
        await inner.add_node("n1")
        for number in range(serving.MAX_SEARCHES + 1):
            await inner.add_pod(f"p{number}", 9000)
        clock, extender, metrics = SystemClock(), inner.extender, SchedulerMetrics()
        app = read_api_app(
            AccessControl(inner.client, clock),
            StatePage(inner.cache, extender.pending, lambda: StateReplica("p", True, "p"), clock),
            None,
            None,
            WhyPage(
                inner.client, inner.cache, extender.pending, extender.searches.search, lambda: True, SharedReads(clock)
            ),
            None,
            metrics,
        )
        async with asyncio.timeout(40), listening(app, "127.0.0.1", 0) as port:
            world = World(inner, metrics, f"http://127.0.0.1:{port}")
            try:
                yield world
            finally:
                await world.end()


async def test_who_waits_for_a_search_keeps_no_answers_from_others_and_only_so_many_wait(it):
    await it.turn.acquire()
    waits = [await it.start(number, USERS[number // 2]) for number in range(serving.MAX_SEARCHES)]
    for token in USERS:
        assert (await it.get("/v1/state", token))[0] == 200
    status, text, headers = await it.why(8, "jane")
    assert (status, headers["Retry-After"]) == (429, "1")
    assert text == "2 of your requests about why a pod waits are still being answered: wait until one has ended\n"
    status, text, headers = await it.why(8, "mia")
    assert (status, headers["Retry-After"]) == (503, "1")
    assert text == "too many requests about why a pod waits are still being answered: try again\n"

    waits[0].cancel()  # its connection is closed
    await eventually(lambda: it.queued == serving.MAX_SEARCHES - 1)
    waits[0] = await it.start(8, "mia")
    assert not any(each.done() for each in waits)
    it.turn.release()
    for each in waits:
        assert (await each)[0] in (200, 503)
    assert (await waits[1])[0] == 200, "it was the first in the queue"


async def test_a_search_goes_on_while_one_of_those_who_asked_for_it_is_there(it):
    await it.turn.acquire()
    first = await it.start(0, "jane")
    second = asyncio.ensure_future(it.why(0, "joe"))
    await it.start(1, "kim")
    first.cancel()
    await eventually(lambda: it.counted(serving.CLIENT_GONE) == 1)
    await eventually(lambda: it.queued == 2)
    it.turn.release()
    assert (await second)[0] == 200


async def test_a_pod_that_nobody_waited_for_any_more_is_searched_for_when_somebody_asks_again(it):
    await it.turn.acquire()
    with capture_logs() as logged:
        (await it.start(0, "jane")).cancel()
        await eventually(lambda: it.queued == 0)
    assert logged == []
    again = await it.start(0, "jane")
    it.turn.release()
    status, text, _ = await again
    assert (status, '"suggestions":[{' in text) == (200, True)


async def test_who_would_have_to_wait_for_too_long_is_told_for_how_long(it):
    it.searches._next_at = it.inner.cache.clock.monotonic() + 7.5
    status, text, headers = await it.why(0, "jane")
    assert (status, headers["Retry-After"]) == (503, "8")
    assert text == ("the scheduler did not search for this pod: earlier searches will take more than 2 s: try again\n")
