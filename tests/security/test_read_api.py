"""The read API: who is let in, and how little those who are can take from others."""

import asyncio
import base64
import ssl
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import aiohttp.web
import pytest
from structlog.testing import capture_logs

from purser.connections import Limits
from purser.kube import Client, ClusterConfig
from purser.kube.clock import SystemClock
from purser.kube.resources import MUTATING_WEBHOOKS, NAMESPACES
from purser.lab.apiserver import ApiServer, User
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.read_api import AccessControl, NodePage, ObjectPage, SharedReads, read_api_app, serving
from purser.scheduler.read_api.documents import EncodedState
from purser.telemetry import listening
from tests.unit.scheduler.test_server_run import NAMESPACE, SETTINGS, World

SERVED = replace(SETTINGS, server=replace(SETTINGS.server, read_api_address="127.0.0.1", read_api_port=0))
LARGE = EncodedState('"large"', (b"x" * (1 << 20),) * 64)


async def test_a_scheduler_answers_those_whom_the_api_server_vouches_for():
    async with ApiServer() as api:
        api.add_user("viewer", User("jane"))
        api.add_user("nobody", User("joe", has_rights=False))
        config = ClusterConfig.insecure(api.url, api.admin_token)
        async with Client(config) as client:
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            world = World(api, config, client)
            async with world.scheduler(SERVED) as addresses:
                (webhooks,) = (await client.list(MUTATING_WEBHOOKS)).items
                trust = ssl.create_default_context(cadata=_ca_of(webhooks))
                url = f"https://localhost:{addresses.read_api}"

                async def get(path="/v1/state", method="GET", **headers):
                    connector = aiohttp.TCPConnector(ssl=trust)
                    async with (
                        aiohttp.ClientSession(connector=connector) as session,
                        session.request(method, url + path, headers=headers) as response,
                    ):
                        return response.status, response.headers, await response.text()

                status, headers, _ = await get()
                assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
                assert (await get(Authorization="Bearer wrong"))[0] == 401
                status, _, said = await get(Authorization="Bearer nobody")
                assert (status, said.count("\n")) == (403, 1)
                assert 'user "joe" is not allowed to get /v1/state' in said
                status, headers, said = await get(Authorization="Bearer viewer")
                assert (status, headers["Content-Type"]) == (200, "application/json")
                assert '"places_pods":true' in said
                known = {"Authorization": "Bearer viewer", "If-None-Match": headers["ETag"]}
                assert (await get(**known))[::2] == (304, "")
                status, _, said = await get("/v1/rollout", Authorization="Bearer viewer")
                assert (status, said) == (200, '{"version":"v1","policies":[],"nodes":[],"problems":[]}')
                assert (await get("/v1/rollout"))[0] == 401
                assert (await get("/v1/rollout", Authorization="Bearer nobody"))[0] == 403
                part = f"/v1/namespaces/{NAMESPACE}/state"
                status, _, said = await get(part, Authorization="Bearer viewer")
                assert (status, '"name":"","places_pods":true' in said) == (200, True)
                assert (await get(part))[0] == 401
                assert (await get(part, Authorization="Bearer nobody"))[0] == 403
                for odd in ("", "A", "a%2Fb", "a%20b", "a" * 64):
                    for rest in ("state", "nodes/n"):
                        path = f"/v1/namespaces/{odd}/{rest}"
                        assert (await get(path, Authorization="Bearer viewer"))[0] == 404, path
                for path in ("/v1/nodes/n%2F1", f"/v1/namespaces/{NAMESPACE}/nodes/n"):
                    assert (await get(path))[0] == 401
                    assert (await get(path, Authorization="Bearer nobody"))[0] == 403
                    status, _, said = await get(path, Authorization="Bearer viewer")
                    assert (status, "no node with this name" in said) == (404, True)
                part = f"/v1/namespaces/{NAMESPACE}"
                for path in ("pods/p", "pods/p/why", "events?uid=u"):
                    assert (await get(f"{part}/{path}"))[0] == 401
                    assert (await get(f"{part}/{path}", Authorization="Bearer nobody"))[0] == 403
                assert (await get(f"{part}/pods/p", Authorization="Bearer viewer"))[0] == 404
                assert (await get(f"{part}/pods/p/why", Authorization="Bearer viewer"))[0] == 404
                assert (await get(f"{part}/pods/P%2Fq", Authorization="Bearer viewer"))[0] == 404
                found = await get(f"{part}/events?kind=Pod&name=p", Authorization="Bearer viewer")
                assert found[::2] == (200, '{"events":[],"api_version":"v1"}')
                for query in ("", "?other=x", "?name=", "?uid=u,involvedObject.name=p", "?name=a%3Db"):
                    status, _, said = await get(f"{part}/events{query}", Authorization="Bearer viewer")
                    assert (status, "specify the object" in said) == (400, True), query
                for query in ("limit=0", "limit=501", "continue=%0A", "continue=a%2Fb%2Fc"):
                    status, _, said = await get(f"/v1/nodes?{query}", Authorization="Bearer viewer")
                    assert (status, said.startswith(f"{query.partition('=')[0]} must be ")) == (400, True)
                empty = '{"items":[],"continue":"","notes":[],"api_version":"v1"}'
                for kind in ("nodes", "grants", "waiting"):
                    for path in (f"/v1/{kind}", f"{part}/{kind}?limit=1"):
                        status, headers, said = await get(path, Authorization="Bearer viewer")
                        assert (status, said) == (200, empty), path
                        known = {"Authorization": "Bearer viewer", "If-None-Match": headers["ETag"]}
                        assert (await get(path, **known))[0] == 304
                assert (await get("/v1/other", Authorization="Bearer viewer"))[0] == 404
                assert (await get(method="POST", Authorization="Bearer viewer"))[0] == 405
                assert any("subjectaccessreviews" in path for _, path in world.writes)


class Answers:
    """In the place of all pages: there is a document for whoever is let in."""

    async def current(self, scope=None):
        return EncodedState('"any"', (b"{}",))

    def of(self, name, scope=None):
        return EncodedState('"any"', (b"{}",))

    async def pod(self, *_):
        return self.of("")

    events = listed = pod


class AnyWhy:
    async def of(self, *_):
        return EncodedState('"any"', (b"{}",))


WHOLE, PODS_OF_A, EVENTS_OF_A, PODS_OF_B = "/v1/state", "pods of a", "events of a", "pods of b"
RIGHTS_BY_PATH = {
    "/v1/state": {WHOLE},
    "/v1/rollout": {WHOLE},
    "/v1/nodes/n": {WHOLE},
    "/v1/nodes": {WHOLE},
    "/v1/grants": {WHOLE},
    "/v1/waiting": {WHOLE},
    "/v1/namespaces/a/nodes": {WHOLE, PODS_OF_A},
    "/v1/namespaces/a/grants": {WHOLE, PODS_OF_A},
    "/v1/namespaces/a/waiting": {WHOLE, PODS_OF_A},
    "/v1/namespaces/a/state": {WHOLE, PODS_OF_A},
    "/v1/namespaces/a/nodes/n": {WHOLE, PODS_OF_A},
    "/v1/namespaces/a/pods/p": {WHOLE, PODS_OF_A},
    "/v1/namespaces/a/pods/p/why": {WHOLE, PODS_OF_A},
    "/v1/namespaces/a/events?uid=u": {EVENTS_OF_A},
}
"""Each of the rights suffices."""


@pytest.mark.parametrize("right", [WHOLE, PODS_OF_A, EVENTS_OF_A, PODS_OF_B])
async def test_each_path_is_for_those_with_the_right_to_it(right):
    async def review(request):
        if not request.path.endswith("/subjectaccessreviews"):
            return None
        spec = (await request.json())["spec"]
        of_path, of_kind = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
        asked = of_path["path"] if of_path else f"{of_kind['resource']} of {of_kind['namespace']}"
        return aiohttp.web.json_response({"status": {"allowed": asked == right}}, status=201)

    async with ApiServer(tls=False) as api:
        api.add_user("viewer", User("jane"))
        api.intercept(review)
        async with Client(ClusterConfig.insecure(api.url, api.admin_token)) as client:
            every = Answers()
            app = read_api_app(
                AccessControl(client, SystemClock()), every, every, every, AnyWhy(), every, SchedulerMetrics()
            )
            routes = {route.resource.canonical for route in app.router.routes()}
            assert len(routes) == len(RIGHTS_BY_PATH), "a path is missing in the table above"
            headers = {"Authorization": "Bearer viewer"}
            async with listening(app, "127.0.0.1", 0) as port, aiohttp.ClientSession(headers=headers) as session:
                found = {}
                for path in RIGHTS_BY_PATH:
                    async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                        found[path] = response.status
            assert found == {path: 200 if right in rights else 403 for path, rights in RIGHTS_BY_PATH.items()}


def _ca_of(configuration):
    return base64.b64decode(configuration["webhooks"][0]["clientConfig"]["caBundle"]).decode()


class LargePage:
    async def current(self, scope=None):
        return LARGE


class Server:
    """Clients read the head of their answers, and no more."""

    def __init__(self, port, metrics):
        self.port, self._metrics = port, metrics
        self.writers = []

    async def ask(self, token):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1024)
        self.writers.append(writer)
        writer.write(f"GET /v1/state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        return int((await reader.readline()).split()[1]), reader

    def counted(self, code):
        name = "purser_scheduler_read_api_requests_total"
        return self._metrics.registry.get_sample_value(name, {"code": str(code)}) or 0

    async def close(self):
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self.writers), return_exceptions=True)


@asynccontextmanager
async def large():
    async with ApiServer(tls=False) as api:
        for number in range(9):
            api.add_user(f"t{number}", User(f"user-{number}"))
        async with Client(ClusterConfig.insecure(api.url, api.admin_token)) as client:
            metrics = SchedulerMetrics()
            app = read_api_app(
                AccessControl(client, SystemClock()),
                LargePage(),
                NodePage(None),
                ObjectPage(client, None, SharedReads(SystemClock())),
                None,
                LargePage(),
                metrics,
            )
            async with asyncio.timeout(60), listening(app, "127.0.0.1", 0, None, Limits(connections=30)) as port:
                server = Server(port, metrics)
                try:
                    yield server
                finally:
                    await server.close()


async def test_clients_that_do_not_read_keep_a_piece_each_and_only_so_many_answers():
    async with large() as server:
        slow = [(await server.ask("t0"))[0] for _ in range(3)]
        assert slow == [200, 200, 429]
        for number in (1, 2, 3):
            slow += [(await server.ask(f"t{number}"))[0] for _ in range(2)]
        assert slow.count(200) == serving.MAX_CONCURRENT_ANSWERS
        assert (await server.ask("t4"))[0] == 503
        server.writers[0].transport.abort()
        while (await server.ask("t4"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_clients_that_leave_before_they_have_all_write_nothing_into_the_log():
    with capture_logs() as logged:
        async with large() as server:
            for _ in range(2):
                assert (await server.ask("t0"))[0] == 200
                server.writers[-1].transport.abort()
            while server.counted(serving.CLIENT_GONE) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert server.counted(200) == 0
    assert [each for each in logged if each["log_level"] == "error"] == []


async def test_an_answer_that_is_read_too_slowly_is_given_up(monkeypatch):
    monkeypatch.setattr(serving, "SEND_TIMEOUT_S", 0.3)
    async with large() as server:
        status, reader = await server.ask("t0")
        assert (status, (await server.ask("t0"))[0]) == (200, 200)
        while (await server.ask("t0"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(LARGE.length)
