"""Requests that wait for a change of the state, asked over HTTP, with the lab's API server behind the scheduler."""

import asyncio
import time
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs
from tests.unit.scheduler.extender_world import replica, server

from purser.core.state import StateReplica
from purser.kube import SystemClock
from purser.kube.resources import NAMESPACES
from purser.lab.apiserver import User
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.read_api import AccessControl, StatePage, access, documents, read_api_app, serving, waiting
from purser.telemetry import listening

WHOLE, PART, EMPTY = "/v1/state", "/v1/namespaces/default/state", "/v1/namespaces/empty/state"
SOON_S = 0.02


class Page(StatePage):
    """Counts how often somebody looks at the state."""

    looks = 0

    async def current(self, scope=None):
        self.looks += 1
        return await super().current(scope)


class World:
    """A scheduler that makes its documents anew often, and those who ask it; each has the name of its token."""

    def __init__(self, api, inner, page, metrics, url):
        self.api, self.inner, self._page, self._metrics, self.url = api, inner, page, metrics, url
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self.running = []

    async def get(self, path=WHOLE, tag="", token="jane"):
        """Status, tag and text."""
        headers = {"Authorization": f"Bearer {token}"} | ({"If-None-Match": tag} if tag else {})
        async with self.session.get(self.url + path, headers=headers) as response:
            return response.status, response.headers.get("ETag", ""), await response.text()

    def start(self, *words, **options):
        """The same, beside what follows."""
        self.running.append(asyncio.ensure_future(self.get(*words, **options)))
        return self.running[-1]

    async def looked(self, times=5):
        """Once those who wait have looked at the state so often."""
        goal = self._page.looks + times
        while self._page.looks < goal:  # noqa: ASYNC110
            await asyncio.sleep(SOON_S)

    async def tag(self, path=WHOLE, token="jane"):
        return (await self.get(path, token=token))[1]

    def counted(self, code):
        name = "purser_scheduler_read_api_requests_total"
        return self._metrics.registry.get_sample_value(name, {"code": str(code)}) or 0

    async def end(self):
        for each in self.running:
            each.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        await self.session.close()


@asynccontextmanager
async def asked():
    async with server() as api, replica(api) as inner:
        await inner.client.create(NAMESPACES, {"metadata": {"name": "empty"}})
        for name in ("jane", "joe", "kim"):
            api.add_user(name, User(name))
        clock = SystemClock()
        inner.extender.attach(inner.pods)
        page = Page(inner.cache, inner.extender.pending, lambda: StateReplica("p", True, "p"), clock)
        metrics = SchedulerMetrics()
        control = AccessControl(inner.client, clock)
        app = read_api_app(control, page, None, None, None, None, metrics)
        async with asyncio.timeout(40), listening(app, "127.0.0.1", 0) as port:
            world = World(api, inner, page, metrics, f"http://127.0.0.1:{port}")
            try:
                yield world
            finally:
                await world.end()


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(waiting, "LOOK_PERIOD_S", SOON_S)
    monkeypatch.setattr(documents, "MIN_DOCUMENT_AGE_S", SOON_S)


@pytest.fixture
async def it():
    async with asked() as made:
        yield made


async def test_the_answer_comes_with_the_change_and_not_before(it):
    tags = {path: await it.tag(path) for path in (WHOLE, PART, EMPTY)}
    waits = {path: it.start(f"{path}?wait=30", tag) for path, tag in tags.items()}
    await it.looked(20)
    assert not any(each.done() for each in waits.values())
    await it.inner.add_pod("new")
    for path in (WHOLE, PART):
        status, tag, text = await waits[path]
        assert (status, tag != tags[path], '"pod":"new"' in text) == (200, True, True)
    await it.looked()
    assert not waits[EMPTY].done(), "that was a change of another namespace"


async def test_without_a_change_it_is_said_after_the_time_and_who_knows_nothing_does_not_wait(it):
    tag, began = await it.tag(), time.monotonic()
    assert (await it.get("/v1/state?wait=1", tag))[:2] == (304, tag)
    assert time.monotonic() - began >= 1
    for path, known in (("?wait=30", ""), ("?wait=30", '"other"'), ("?wait=0", tag), ("", tag)):
        async with asyncio.timeout(5):
            assert (await it.get(f"{WHOLE}{path}", known))[0] == (304 if known == tag else 200)


TAGS = {
    "as it is": "{0}",
    "weak": "W/{0}",
    "a list": '"older", {0}',
    "a list of weak ones": 'W/"older",W/{0} , "newer"',
    "any": "*",
}


@pytest.mark.parametrize("known", TAGS.values(), ids=TAGS)
async def test_whoever_knows_the_document_waits_however_that_is_written(it, known):
    header = known.format(await it.tag())
    assert (await it.get(WHOLE, header))[0] == 304
    waits = it.start("/v1/state?wait=30", header)
    await it.looked()
    assert not waits.done()
    if known != "*":
        await it.inner.add_pod("new")
        assert (await waits)[0] == 200


@pytest.mark.parametrize("other", ['"other"', 'W/"a", "b"', "x", '"', "W/*", '"*"'])
async def test_whoever_knows_another_document_does_not_wait(it, other):
    async with asyncio.timeout(5):
        assert (await it.get("/v1/state?wait=30", other))[0] == 200


async def test_tags_may_be_in_several_lines(it):
    tag = await it.tag()
    headers = [("Authorization", "Bearer jane"), ("If-None-Match", '"older"'), ("If-None-Match", tag)]
    async with it.session.get(it.url + WHOLE, headers=headers) as response:
        assert response.status == 304


@pytest.mark.parametrize("path", ["/v1/state", "/v1/nodes", "/v1/namespaces/default/waiting", "/v1/rollout"])
async def test_other_times_are_refused_of_all_documents_and_of_those_who_know_none(it, path):
    status, _, text = await it.get(f"{path}?wait=99")
    assert (status, text) == (400, "wait must be a whole number of seconds from 0 to 30\n")


@pytest.mark.parametrize("odd", ["31", "-1", "1.5", "", "x", "٣", "9999999999"])
async def test_other_times_are_refused(it, odd):
    status, _, text = await it.get(f"/v1/state?wait={odd}", '"any"')
    assert (status, text) == (400, "wait must be a whole number of seconds from 0 to 30\n")


async def test_who_may_not_read_any_more_is_told_nothing(it, monkeypatch):
    monkeypatch.setattr(access, "VERDICT_TTL_S", 5 * SOON_S)
    waits = it.start("/v1/state?wait=30", await it.tag())
    others = it.start("/v1/state?wait=30", await it.tag(token="joe"), "joe")
    await it.looked()
    it.api.add_user("jane", User("jane", has_rights=False))
    status, _, text = await waits
    assert (status, "is not allowed" in text) == (403, True)
    assert not others.done()


async def test_nothing_is_told_while_the_api_server_cannot_say_who_may_read(it, monkeypatch):
    monkeypatch.setattr(access, "VERDICT_TTL_S", SOON_S)
    is_away, refused = True, 0

    async def away(request):
        nonlocal refused
        if not is_away or not request.path.endswith(("tokenreviews", "subjectaccessreviews")):
            return None
        refused += 1
        return web.Response(status=500)

    async def was_refused(times):
        goal = refused + times
        while refused < goal:  # noqa: ASYNC110
            await asyncio.sleep(SOON_S)

    tag = await it.tag()
    waits = it.start("/v1/state?wait=30", tag)
    await it.looked()
    it.api.intercept(away)
    await was_refused(2)
    await it.inner.add_node("n1")
    await was_refused(4)
    assert not waits.done()
    is_away = False
    assert (await waits)[0] == 200


async def test_who_waits_keeps_no_answers_from_others_and_only_so_many_wait(monkeypatch):
    monkeypatch.setattr(serving, "MAX_WAITS", serving.MAX_WAITS_OF_A_USER + 1)
    async with asked() as it:
        tag = await it.tag()
        of_jane = [it.start("/v1/state?wait=30", tag) for _ in range(serving.MAX_WAITS_OF_A_USER)]
        await it.looked(20)
        status, _, text = await it.get("/v1/state?wait=30", tag)
        assert (status, text.startswith("4 of your requests are waiting for a change")) == (429, True)
        assert [(await it.get())[0] for _ in range(3)] == [200] * 3
        tags = {name: await it.tag(token=name) for name in ("joe", "kim")}
        it.start("/v1/state?wait=30", tags["joe"], "joe")
        await it.looked(20)
        assert (await it.get("/v1/state?wait=30", tags["kim"], "kim"))[0] == 503
        assert (await it.get(token="kim"))[0] == 200
        assert not any(each.done() for each in of_jane)

        of_jane[0].cancel()  # its connection is closed
        async with asyncio.timeout(10):
            while (await it.get("/v1/state?wait=1", tags["kim"], "kim"))[0] == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_of_a_client_that_leaves_the_number_is_counted_and_nothing_is_logged(it):
    waits = it.start("/v1/state?wait=30", await it.tag())
    with capture_logs() as logged:
        await it.looked()
        waits.cancel()
        async with asyncio.timeout(10):
            while it.counted(serving.CLIENT_GONE) < 1:  # noqa: ASYNC110
                await asyncio.sleep(SOON_S)
    assert (logged, it.counted(200), it.counted(304)) == ([], 1, 0)


async def test_a_server_that_ends_lets_them_go():
    async with asked() as it:
        waits = it.start("/v1/state?wait=30", await it.tag())
        await it.looked()
        assert not waits.done()
        it.end = lambda: asyncio.sleep(0)
        began = time.monotonic()
    assert time.monotonic() - began < 4, "the server gives requests 5 s to end"
    assert (await waits)[0] in (304, 503)
    await it.session.close()
