"""Whose a token is, and what that is remembered for."""

import asyncio

import pytest
from aiohttp import web
from tests.unit.kube.servers import StandingClock

from purser.kube import Client, ClusterConfig, KubeError
from purser.kube.resources import EVENTS, PODS
from purser.lab.apiserver import ApiServer, User
from purser.lab.apiserver.cluster import API_AUDIENCE
from purser.scheduler.read_api.access import MAX_KNOWN, MAX_UNKNOWN_TOKENS, READ_AUDIENCE, VERDICT_TTL_S, AccessControl

NOBODY = User("system:serviceaccount:default:nobody", ("system:authenticated",), has_rights=False)


class World:
    def __init__(self, api, client):
        self.api, self.clock = api, StandingClock()
        self.access = AccessControl(client, self.clock)
        self.asked, self.audiences = [], []
        self.hold = None
        self.is_away = False
        self.rights = None
        """What reviews allow: a namespace, "nodes" or a path; None: as the lab's API server says."""
        api.intercept(self._look)

    async def _look(self, request):
        self.asked.append(request.path.rpartition("/")[2])
        if self.asked[-1] == "tokenreviews":
            self.audiences.append((await request.json())["spec"].get("audiences"))
        if self.hold is not None:
            await self.hold.wait()
        if self.is_away:
            return web.json_response({"kind": "Status", "code": 403, "message": "no"}, status=403)
        if self.rights is not None and self.asked[-1] == "subjectaccessreviews":
            spec = (await request.json())["spec"]
            return web.json_response({"status": {"allowed": _asked_for(spec) in self.rights}}, status=201)
        return None

    async def status(self, token, namespace=None, listed=PODS):
        return (await self.access.verdict(f"Bearer {token}", namespace, listed)).status


def _asked_for(spec):
    if (path := spec.get("nonResourceAttributes")) is not None:
        assert path["verb"] == "get"
        return path["path"]
    wanted = spec["resourceAttributes"]
    assert (wanted["group"], wanted["version"], wanted["verb"]) == ("", "v1", "list")
    namespace = wanted["namespace"]
    return {"pods": namespace, "nodes": "nodes", "events": f"events of {namespace}"}[wanted["resource"]]


@pytest.fixture
async def it():
    async with ApiServer(tls=False) as api:
        api.add_user("reader", User("jane"))
        api.add_user("nobody", NOBODY)
        async with Client(ClusterConfig.insecure(api.url, api.admin_token)) as client:
            yield World(api, client)


async def test_the_api_server_says_whose_a_token_is_and_what_it_may_and_is_not_asked_again_soon(it):
    for _ in range(3):
        verdict = await it.access.verdict("bearer  reader")
        assert (verdict.status, verdict.user) == (200, "jane")
    assert it.asked == ["tokenreviews", "tokenreviews", "subjectaccessreviews"]
    verdict = await it.access.verdict("Bearer nobody")
    assert verdict.status == 403
    assert verdict.message == (
        f'user "{NOBODY.name}" is not allowed to get /v1/state: bind the user to the ClusterRole purser-view'
    )
    assert [await it.status("wrong") for _ in range(3)] == [401] * 3
    assert len(it.asked) == 8


@pytest.mark.parametrize(
    ("audiences", "status", "asked_of"),
    [
        ((READ_AUDIENCE,), 200, [[READ_AUDIENCE]]),
        ((READ_AUDIENCE, API_AUDIENCE), 200, [[READ_AUDIENCE]]),
        ((API_AUDIENCE,), 200, [[READ_AUDIENCE], None]),
        (("vault",), 401, [[READ_AUDIENCE], None]),
    ],
)
async def test_a_token_is_for_the_read_api_or_for_the_api_server(it, audiences, status, asked_of):
    it.api.add_user("made", User("jane", audiences=audiences))
    assert await it.status("made") == status
    assert it.audiences == asked_of


async def test_an_answer_that_names_no_audience_is_not_one_for_the_read_api(it):
    """Of a server that passes over the question, by the meaning of TokenReviewStatus."""

    async def answer(request):
        if "tokenreviews" not in request.path or "audiences" not in (await request.json())["spec"]:
            return await it._look(request)
        user = {"username": "jane"}
        return web.json_response({"status": {"authenticated": True, "user": user}}, status=201)

    it.api.intercept(answer)
    assert await it.status("stolen") == 401
    assert it.audiences == [None], "the API server itself is asked"


async def test_a_token_for_the_read_api_is_nobodys_at_the_api_server(it):
    it.api.add_user("made", User("jane", audiences=(READ_AUDIENCE,)))
    async with Client(ClusterConfig.insecure(it.api.url, "made")) as client:
        with pytest.raises(KubeError, match="Unauthorized"):
            await client.list(PODS)


@pytest.mark.parametrize(
    ("rights", "status", "sees_nodes"),
    [
        ((), 403, False),
        (("team-b", "nodes"), 403, False),
        (("team-a",), 200, False),
        (("team-a", "nodes"), 200, True),
        (("/v1/state",), 200, True),
    ],
)
async def test_a_namespace_is_for_those_who_may_list_its_pods_or_read_the_whole(it, rights, status, sees_nodes):
    it.rights = rights
    for _ in range(2):
        verdict = await it.access.verdict("Bearer reader", "team-a")
        assert (verdict.status, verdict.sees_nodes) == (status, sees_nodes)
    assert it.asked.count("tokenreviews") == 2, "one for each audience"
    assert status == 200 or verdict.message == 'user "jane" is not allowed to list pods in namespace "team-a"'


async def test_what_is_known_of_one_namespace_says_nothing_of_another_or_of_the_whole(it):
    it.rights = ("team-a",)
    assert [await it.status("reader", each) for each in ("team-a", "team-b", None, "team-a")] == [200, 403, 403, 200]
    it.rights = ("team-b",)
    assert [await it.status("reader", each) for each in ("team-a", "team-b")] == [200, 403], "as remembered"
    it.clock.ahead_s = VERDICT_TTL_S
    assert [await it.status("reader", each) for each in ("team-a", "team-b")] == [403, 200]


async def test_a_token_that_has_expired_counts_for_some_seconds_at_most(it):
    assert await it.status("reader") == 200
    it.api.remove_token("reader")
    assert await it.status("reader") == 200
    it.clock.ahead_s = VERDICT_TTL_S
    assert await it.status("reader") == 401
    it.api.add_user("reader", User("jane"))
    it.clock.ahead_s *= 2
    assert await it.status("reader") == 200


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic eA==", "Bearer a b", "Bearer \x00", "Bearer é", "Bearer " + "a" * 20000]
)
async def test_what_is_no_token_is_not_asked_about(it, header):
    assert (await it.access.verdict(header)).status == 401
    assert it.asked == []


async def test_an_api_server_that_gives_no_answer_is_asked_again(it):
    it.is_away = True
    assert await it.status("reader") == 503
    it.is_away = False
    assert await it.status("reader") == 200


async def test_a_flood_of_unknown_tokens_keeps_out_nobody_who_is_known(it):
    assert await it.status("reader") == 200
    it.clock.ahead_s = VERDICT_TTL_S
    it.hold = asyncio.Event()
    flood = [asyncio.ensure_future(it.status(f"t{number}")) for number in range(50)]
    twice = [asyncio.ensure_future(it.status("reader")) for _ in range(2)]
    given_up = asyncio.ensure_future(it.status("reader"))
    while sum(each.done() for each in flood) < 50 - MAX_UNKNOWN_TOKENS:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    given_up.cancel()
    it.hold.set()
    assert await asyncio.gather(*twice) == [200, 200]
    found = await asyncio.gather(*flood)
    assert (found.count(401), found.count(503)) == (MAX_UNKNOWN_TOKENS, 50 - MAX_UNKNOWN_TOKENS)
    asked = len(it.asked)
    for number in range(MAX_KNOWN + 10):
        await it.status(f"u{number}")
    assert len(it.access._refused) == MAX_KNOWN
    assert await it.status("reader") == 200
    assert len(it.asked) == asked + 2 * (MAX_KNOWN + 10)


@pytest.mark.parametrize(
    ("rights", "pods", "events"),
    [
        ({"/v1/state", "team-a"}, 200, 403),
        ({"events of team-a"}, 403, 200),
        ({"events of team-b", "team-a"}, 200, 403),
        (set(), 403, 403),
    ],
)
async def test_events_are_for_those_who_may_list_them_whatever_else_they_may_read(it, rights, pods, events):
    it.rights = rights
    for _ in range(2):  # neither answer is remembered as the other
        assert await it.status("reader", "team-a", EVENTS) == events
        assert await it.status("reader", "team-a") == pods
