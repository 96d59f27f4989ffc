"""People who log in with tokens of their own: what each sees, and that nobody sees what is another's."""

import asyncio
import base64
import random
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import quote

import msgspec
import pytest
from aiohttp import ClientSession, CookieJar
from structlog.testing import capture_logs
from tests import waiting
from tests.unit.top.states import cluster, details, gpu, grant, node
from tests.unit.top.states import waiting as waiting_pod
from yarl import URL

from purser.core.state import NodeDetails
from purser.kube import KubeError
from purser.telemetry import listening
from purser.top.asking import ReadRefusedError
from purser.web import streaming, viewers
from purser.web.access import LOCAL_ADDRESS
from purser.web.logins import MAX_TOKEN_CHARACTERS, LoginAccess
from purser.web.pages import Pages
from purser.web.serving import WEB_LIMITS, web_app
from purser.web.viewers import Viewer, Viewers

from .pages import PageClock, Source, unread


def named(pod, namespace):
    return msgspec.structs.replace(pod, namespace=namespace)


WHOLE = cluster(
    (node("n", gpu(held=100)),), (named(grant("theirs"), "team-b"),), (named(waiting_pod("big"), "team-a"),)
)
PART = cluster((), (), (named(waiting_pod("big"), "team-a"),))


class ReadApi:
    """Who may read what."""

    def __init__(self, **allowed):
        self.sources = {tuple(key.split("__")) if "__" in key else (key, ""): Source(s) for key, s in allowed.items()}
        self.known = {token for token, _ in self.sources}
        self.is_away = False
        self.opened = []
        self.closed = asyncio.Event()

    @asynccontextmanager
    async def open_state_source(self, viewer: Viewer):
        self.opened.append(viewer)
        try:
            if self.is_away:
                raise KubeError("https://read-api cannot be reached")
            source = self.sources.get((viewer.token, viewer.namespace.replace("-", "")))
            if source is None:
                raise ReadRefusedError("no", 403 if viewer.token in self.known else 401)
            yield source
        finally:
            self.closed.set()


@asynccontextmanager
async def server(api, clock=None):
    pages = Pages(PageClock())
    app = web_app(pages, LoginAccess(Viewers(api.open_state_source, clock or PageClock()), pages))
    async with listening(app, LOCAL_ADDRESS, 0, limits=WEB_LIMITS) as port:
        yield f"http://{LOCAL_ADDRESS}:{port}"


@asynccontextmanager
async def browser(url, **headers):
    jar = CookieJar(unsafe=True, treat_as_secure_origin=URL(url))  # as browsers treat http://localhost
    async with ClientSession(url, cookie_jar=jar, headers=headers) as client:
        yield client


async def log_in(client, token="", namespace="", then="/"):
    form = {"token": token, "namespace": namespace, "next": then}
    async with client.post("/login", data=form, allow_redirects=False) as response:
        return response.status, response.headers.get("Location"), await response.text()


async def get(client, path):
    async with client.get(path, allow_redirects=False) as response:
        return response.status, response.headers.get("Location"), await response.text()


@pytest.mark.parametrize("path", ["/", "/nodes", "/nodes/n", "/pods/team-b/theirs", "/waiting?x=1", "/nothing"])
async def test_without_a_token_everything_leads_to_the_form(path):
    async with server(ReadApi(admin=WHOLE)) as url, browser(url) as client:
        status, location, text = await get(client, path)
        assert (status, location) == (303, f"/login?next={quote(path, safe='')}")
        assert "theirs" not in text
        assert (await get(client, "/login"))[0] == 200


async def test_streams_without_a_token_are_refused_and_probes_are_answered():
    async with server(ReadApi(admin=WHOLE)) as url, browser(url) as client:
        assert (await get(client, "/events"))[0] == 401
        for path in ("/healthz", "/readyz", "/metrics", "/static/style.css"):
            assert (await get(client, path))[0] == 200


async def test_a_token_shows_what_it_may_read_until_its_user_logs_out():
    async with server(ReadApi(admin=WHOLE)) as url, browser(url) as client:
        assert (await log_in(client, "admin", then="/nodes/n"))[:2] == (303, "/nodes/n")
        status, _, text = await get(client, "/nodes/n")
        assert status == 200 and "team-b/theirs" in text and "Log out" in text
        async with client.post("/logout", allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/login")
        assert (await get(client, "/nodes/n"))[0] == 303


async def test_cookies_are_for_this_server_alone():
    async with server(ReadApi(admin=WHOLE)) as url, ClientSession(url) as client:
        form = {"token": "admin"}
        async with client.post("/login", data=form, allow_redirects=False) as response:
            for cookie in response.headers.getall("Set-Cookie"):
                assert "HttpOnly" in cookie and "Secure" in cookie and "SameSite=Strict" in cookie


@pytest.mark.parametrize(
    ("token", "namespace", "status", "message"),
    [
        ("nobody", "", 401, "is not known, has expired"),
        ("viewer", "", 403, "Enter a namespace in which"),
        ("viewer", "team-b", 403, "Enter a namespace in which"),
        ("", "", 400, "Enter a token: ASCII characters without spaces."),
        ("two words", "", 400, "Enter a token: ASCII characters without spaces."),
        ("new\nline", "", 400, "Enter a token: ASCII characters without spaces."),
        ("viewer", "../x", 400, "RFC 1123 label"),
        ("x" * (MAX_TOKEN_CHARACTERS + 1), "", 400, "too long for a cookie"),
        ("x" * 30_000, "", 413, ""),
    ],
)
async def test_what_is_refused_says_why_and_leaves_no_cookie(token, namespace, status, message):
    async with server(ReadApi(viewer__teama=PART)) as url, browser(url) as client:
        found, _, text = await log_in(client, token, namespace)
        assert found == status and message in text
        assert not list(client.cookie_jar)
        assert "big" not in text


async def test_a_viewer_of_a_namespace_sees_its_part():
    async with server(ReadApi(viewer__teama=PART)) as url, browser(url) as client:
        assert (await log_in(client, "viewer", "team-a"))[0] == 303
        _, _, text = await get(client, "/waiting")
        assert "team-a/big" in text and "Namespace team-a" in text


async def test_a_proxy_in_front_sends_the_token():
    api = ReadApi(viewer__teama=PART)
    async with server(api) as url, browser(url, Authorization="Bearer viewer") as client:
        status, location, _ = await get(client, "/waiting")
        assert (status, location) == (303, "/login?next=%2Fwaiting&refused=403")
        _, _, form = await get(client, location)
        assert "Enter a namespace in which" in form and 'name="token"' not in form
        assert (await log_in(client, namespace="team-a", then="/waiting"))[:2] == (303, "/waiting")
        assert [cookie.key for cookie in client.cookie_jar] == ["purser-namespace"]
        _, _, text = await get(client, "/waiting")
        assert "team-a/big" in text and "Log out" not in text


@pytest.mark.parametrize(
    "then", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "", "/a\nb"]
)
async def test_nobody_is_led_elsewhere(then):
    async with server(ReadApi(admin=WHOLE)) as url, browser(url) as client:
        assert (await log_in(client, "admin", then=then))[:2] == (303, "/")
        _, _, form = await get(client, f"/login?next={quote(then, safe='')}")
        assert 'name="next" value="/"' in form


async def test_forms_of_other_sites_are_refused():
    async with server(ReadApi(admin=WHOLE)) as url, browser(url, Origin="https://evil.example") as client:
        assert (await log_in(client, "admin"))[0] == 403
        async with client.post("/logout", allow_redirects=False) as response:
            assert response.status == 403
        assert not list(client.cookie_jar)


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("http://gpus.example.com", "gpus.example.com", 400),
        ("https://gpus.example.com", "gpus.example.com", 303),
        ("http://localhost:8480", "localhost:8480", 303),
    ],
)
async def test_where_a_browser_would_lose_the_cookie_the_form_says_so(origin, host, status):
    async with server(ReadApi(chief=WHOLE)) as url, browser(url, Origin=origin, Host=host) as client:
        found, _, text = await log_in(client, "chief")
        assert (found, "proxy with TLS" in text) == (status, status == 400)


async def test_a_token_that_is_refused_later_ends_its_streams_and_shows_nothing_more():
    api = ReadApi(admin=WHOLE)
    async with server(api) as url, browser(url) as client:
        await log_in(client, "admin")
        async with client.get("/events") as stream:
            await stream.content.readuntil(b"event: status")
            source = api.sources.pop(("admin", ""))
            source.fail(ReadRefusedError("expired", 401))
            async with waiting.limit():
                await stream.content.read()
        status, location, text = await get(client, "/nodes/n")
        assert (status, location) == (303, "/login?next=%2Fnodes%2Fn&refused=403")
        assert "theirs" not in text


async def test_where_the_scheduler_is_away_pages_say_so_and_work_again_afterwards():
    api = ReadApi(admin=WHOLE)
    api.is_away = True
    async with server(api) as url, browser(url) as client:
        status, _, text = await log_in(client, "admin")
        assert status == 503 and "read API is unavailable" in text and "https://read-api" not in text
        api.is_away = False
        assert (await log_in(client, "admin"))[0] == 303


async def test_what_nobody_looks_at_is_forgotten(monkeypatch):
    monkeypatch.setattr(viewers, "IDLE_S", 0.0)
    monkeypatch.setattr(viewers, "_IDLE_CHECK_S", 0.01)
    api = ReadApi(admin=WHOLE)
    async with server(api) as url, browser(url) as client:
        await log_in(client, "admin")
        async with waiting.limit():
            await api.closed.wait()
        assert (await get(client, "/nodes"))[0] == 200
        assert len(api.opened) == 2


async def test_strangers_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(viewers, "MAX_VIEWERS", 2)
    monkeypatch.setattr(viewers, "MAX_STARTING", 2)
    api = ReadApi(one=WHOLE, two=WHOLE, three=WHOLE)
    async with server(api) as url, browser(url) as one, browser(url) as two, browser(url) as three:
        await log_in(one, "one")
        for number in range(5):
            assert (await log_in(three, f"stranger-{number}"))[0] == 401
        assert (await log_in(two, "two"))[0] == 303
        status, _, text = await log_in(three, "three")
        assert status == 503 and "Too many viewers" in text
        assert (await get(one, "/nodes"))[0] == 200


def jwt(subject, number):
    claims = {"iss": "https://kubernetes.default.svc", "sub": subject, "jti": str(number)}
    return f"e30.{base64.urlsafe_b64encode(msgspec.json.encode(claims)).decode().rstrip('=')}.c2ln"


async def test_one_person_with_many_tokens_keeps_nobody_out(monkeypatch):
    monkeypatch.setattr(viewers, "MAX_VIEWERS", 3)
    greedy, others = [jwt("greedy", number) for number in range(6)], [jwt(name, 0) for name in ("b", "c", "d")]
    api = ReadApi(**dict.fromkeys((*greedy, *others), WHOLE))
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(server(api))

        async def logged_in(token):
            client = await stack.enter_async_context(browser(url))
            return (await log_in(client, token))[0], client

        for token in (*greedy, *others[:2], greedy[0]):
            assert (await logged_in(token))[0] == 303
        status, client = await logged_in(others[2])
        assert (status, "Too many viewers" in (await log_in(client, others[2]))[2]) == (503, True)


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", "a.%.c", f"a.{'e30'}.c", "a.WzFd.c", "a." + "A" * 30_000])
def test_a_token_that_does_not_say_whose_it_is_is_a_person_of_its_own(token):
    assert Viewer(token, "").person == Viewer(token, "").key
    assert Viewer(jwt("x", 1), "").person == Viewer(jwt("x", 2), "team-a").person != Viewer(jwt("y", 1), "").person


async def test_each_viewer_sees_their_own_namespace_and_no_name_of_another():
    """At random: pods of three teams, whose viewers open pages and streams of everybody."""
    teams = ("alpha", "bravo", "carol")
    dice = random.Random(7)
    parts = {}
    for team in teams:
        grants = tuple(named(grant(f"{team}-pod-{number}"), team) for number in range(dice.randint(1, 4)))
        waits = msgspec.structs.replace(named(waiting_pod(f"{team}-waits"), team), suggestion=f"{team} asks for less")
        parts[team] = cluster((node("n", gpu(held=900)),), grants, (waits,))
    api = ReadApi(**{f"{team}token__{team}": part for team, part in parts.items()})
    for (_, team), source in api.sources.items():
        (seen,) = details("n", 1).gpus
        source.nodes["n"] = NodeDetails("n", (msgspec.structs.replace(seen, pci_bus_id=team),), (), None)
    paths = ["/", "/nodes", "/nodes/n", "/gpus/GPU-0", "/waiting", "/use", "/operator", "/events"]
    paths += [f"/pods/{team}/{team}-{what}" for team in teams for what in ("pod-0", "waits")]
    async with server(api) as url, browser(url) as alpha, browser(url) as bravo, browser(url) as carol:
        clients = dict(zip(teams, (alpha, bravo, carol), strict=True))
        for team, client in clients.items():
            assert (await log_in(client, f"{team}token", team))[0] == 303
        for _ in range(150):
            team, path = dice.choice(teams), dice.choice(paths)
            async with clients[team].get(path) as response:
                if path == "/events":
                    text = (await response.content.readuntil(b"event: status")).decode()
                else:
                    text = await response.text()
            others = [other for other in teams if other != team and other not in path]
            assert [other for other in others if other in text] == [], (team, path)
            assert response.status in (200, 404)
            if path == "/waiting":
                assert f"{team}-waits" in text and f"{team} asks for less" in text
            if path == "/nodes/n":
                assert f"<td>{team}</td>" in text


async def test_a_proxy_that_asks_for_passwords_leaves_the_token_to_the_form():
    async with server(ReadApi(admin=WHOLE)) as url, browser(url, Authorization="Basic YTpi") as client:
        assert 'name="token"' in (await get(client, "/login"))[2]
        assert (await log_in(client, "admin"))[0] == 303
        _, _, text = await get(client, "/nodes/n")
        assert "team-b/theirs" in text and "Log out" in text


async def test_whoever_logs_out_ends_the_streams_of_their_other_tabs():
    async with server(ReadApi(admin=WHOLE)) as url, browser(url) as client:
        await log_in(client, "admin")
        async with client.get("/events") as stream:
            await stream.content.readuntil(b"event: status")
            async with client.post("/logout", allow_redirects=False) as response:
                assert response.status == 303
            async with waiting.limit():
                await stream.content.read()
        assert (await log_in(client, "admin"))[0] == 303


async def test_who_has_most_streams_gives_one_up_for_another_viewer(monkeypatch):
    monkeypatch.setattr(streaming, "MAX_STREAMS", 4)
    api = ReadApi(greedy=WHOLE, modest=WHOLE)
    async with server(api) as url, browser(url) as greedy, browser(url) as modest, AsyncExitStack() as streams:
        assert [(await log_in(client, token))[0] for client, token in ((greedy, "greedy"), (modest, "modest"))] == [
            303
        ] * 2

        async def opened(client):
            response = await streams.enter_async_context(client.get("/events?changes"))
            return response.status, response

        first, second, *_ = [(await opened(greedy))[1] for _ in range(4)]
        assert (await opened(greedy))[0] == 200  # in the place of the first of its own
        assert b"event: displaced" in await first.read()
        theirs = [await opened(modest) for _ in range(3)]
        assert [status for status, _ in theirs] == [200] * 3
        assert b"event: displaced" in await second.read()
        assert b"event: displaced" in await theirs[0][1].read()  # nobody has more than they
        assert (await opened(greedy))[0] == 200


async def test_streams_that_one_viewer_does_not_read_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(streaming, "MAX_STREAMS", 16)
    monkeypatch.setattr(streaming, "MAX_STREAMS_OF_A_VIEWER", 8)
    api = ReadApi(greedy=WHOLE, modest=WHOLE)
    async with server(api) as url, browser(url) as greedy, browser(url) as modest:
        for client, token in ((greedy, "greedy"), (modest, "modest")):
            assert (await log_in(client, token))[0] == 303
        async with modest.get("/events") as kept:
            cookies = "; ".join(f"{each.key}={each.value}" for each in greedy.cookie_jar)
            async with unread(URL(url).port, 64, f"Cookie: {cookies}\r\n"):
                for client in (greedy, modest):
                    async with client.get("/events") as response:
                        assert response.status == 200
                        await response.content.readuntil(b"event: status")
            assert not kept.content.at_eof()


async def test_an_error_of_the_source_itself_is_answered_and_does_not_last():
    api = ReadApi(admin=WHOLE)
    source = api.sources["admin", ""]
    source.state = None
    source.fail(ValueError("a defect"))
    with capture_logs() as logs:
        async with server(api) as url, browser(url) as client, waiting.limit():
            status, _, text = await log_in(client, "admin")
            assert status == 500 and "Error in Purser" in text
            api.sources["admin", ""] = Source(WHOLE)
            assert (await log_in(client, "admin"))[0] == 303
    assert "Failed to follow the read API for a viewer" in [each["event"] for each in logs]


async def test_a_refused_viewer_sees_nothing_while_the_source_closes():
    api, closing = ReadApi(admin=WHOLE), asyncio.Event()

    @asynccontextmanager
    async def slowly_closed(viewer):
        async with api.open_state_source(viewer) as source:
            try:
                yield source
            finally:
                await closing.wait()

    found = Viewers(slowly_closed, PageClock())
    async with waiting.limit():
        feed = await found.feed_of(Viewer("admin", ""))
        source = api.sources.pop(("admin", ""))
        source.fail(ReadRefusedError("expired", 401))
        await feed.wait_for_newer(feed.version)  # it ends
        asyncio.get_running_loop().call_later(0.05, closing.set)
        with pytest.raises(ReadRefusedError):
            await found.feed_of(Viewer("admin", ""))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", b"token=\xff\xfe"),
        ("application/x-www-form-urlencoded; charset=nothing", b"token=a"),
        ("multipart/form-data", b"token"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n--x--"),
    ],
)
async def test_forms_that_make_no_sense_are_no_errors_of_the_server(kind, body):
    with capture_logs() as logs:
        async with server(ReadApi(admin=WHOLE)) as url, browser(url, **{"Content-Type": kind}) as client:
            async with client.post("/login", data=body) as response:
                assert response.status in (400, 401)
            async with client.post("/login", data=body, headers={"Origin": "http://["}) as response:
                assert response.status == 403
    assert [each for each in logs if each["log_level"] == "error"] == []
