"""Who connects and says nothing, or says it slowly, keeps nobody else from being answered."""

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from purser.connections import Connections, Limits
from purser.scheduler.certificates_keeper import CertificateKeeper, MemoryStore
from purser.telemetry import listening, telemetry_app

DEADLINE_S = 250
SHORT = Limits(connections=20, request_s=10, idle_s=10)
"""Of a `LoopTime`, so that machines may be as slow as they like."""
PATIENT = Limits(connections=20, request_s=600, idle_s=600)


class LoopTime:
    """The time of the running event loop, which passes as a test says."""

    def __init__(self, now):
        self.now = now

    async def passes(self, seconds):
        """Return when all that is due by then has been called."""
        self.now += seconds
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
async def clock(monkeypatch):
    loop = asyncio.get_running_loop()
    clock = LoopTime(loop.time())
    monkeypatch.setattr(loop, "time", lambda: clock.now)
    return clock


class NotedConnections(Connections):
    """Counts the bytes that its clients have sent."""

    def __init__(self, *args):
        super().__init__(*args)
        self.heard = 0

    def __call__(self):
        connection = super().__call__()
        take = connection.data_received

        def noted(data):
            self.heard += len(data)
            take(data)

        connection.data_received = noted
        return connection


async def until(check):
    """Polls without time, which may stand still."""
    while not check():  # noqa: ASYNC110
        await asyncio.sleep(0)


class Server:
    def __init__(self, port, tls):
        self.port = port
        self.tls = tls
        self.may_answer = asyncio.Event()
        self.asked = 0
        self.connections = None

    @property
    def open(self):
        return len(self.connections._open)

    async def hears(self, writer, data):
        """Send, and return once it has arrived, or the connection has been cut."""
        before = self.connections.heard
        writer.write(data)
        await until(lambda: self.connections.heard >= before + len(data) or not self.open)

    async def connect(self, *, tls=True):
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls if tls else None)

    async def get(self, path="/healthz"):
        """As an honest client does: by a connection of its own."""
        reader, writer = await self.connect()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer.split(b"\r\n")[0]


@asynccontextmanager
async def serving(limits, *, secure=False):
    app = telemetry_app(CollectorRegistry(), list)
    context = trust = None
    if secure:
        keeper = CertificateKeeper(MemoryStore(), ["127.0.0.1"])
        await keeper.refresh()
        context, trust = keeper.new_context(), ssl.create_default_context(cadata=keeper.ca_bundle.decode())
    server = Server(0, trust)

    def connections(*args):
        server.connections = NotedConnections(*args)
        return server.connections

    async def slow(request):
        server.asked += 1
        await server.may_answer.wait()
        return web.Response(text=str(len(await request.read())))

    app.add_routes([web.get("/slow", slow), web.post("/slow", slow)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("purser.telemetry.Connections", connections)
        async with asyncio.timeout(DEADLINE_S), listening(app, "127.0.0.1", 0, context, limits) as server.port:
            try:
                yield server
            except BaseException:
                server.connections.close()  # in a time that stands still, they would be waited for
                raise
            finally:
                server.may_answer.set()


async def is_partitioned(reader):
    with suppress(ConnectionError):
        await reader.read()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_an_honest_request_is_answered_however_many_connections_say_nothing(secure):
    async with serving(PATIENT, secure=secure) as server:
        silent = [await server.connect(tls=False) for _ in range(200)]
        assert await server.get() == b"HTTP/1.1 200 OK"
        await asyncio.gather(*(is_partitioned(reader) for reader, _ in silent[:150]))  # the last ones may stay
        for _, writer in silent:
            writer.close()


async def test_connections_that_were_answered_once_and_stay_make_room_as_well():
    async with serving(PATIENT) as server:
        idle = []
        for _ in range(100):
            reader, writer = await server.connect()
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"ok\n")
            idle.append((reader, writer))
        assert await server.get() == b"HTTP/1.1 200 OK"
        await asyncio.gather(*(is_partitioned(reader) for reader, _ in idle[:75]))
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("shakes_hands", [False, True], ids=["silent from the start", "silent after the handshake"])
async def test_silent_connections_are_cut(clock, secure, shakes_hands):
    async with serving(SHORT, secure=secure) as server:
        reader, writer = await server.connect(tls=shakes_hands)
        await until(lambda: server.open)
        await clock.passes(SHORT.request_s - 1)
        assert server.open == 1
        await clock.passes(1)
        assert server.open == 0
        await is_partitioned(reader)
        writer.close()


@pytest.mark.parametrize(
    "start",
    [
        b"GET /healthz HTTP/1.1\r\nX: ",
        b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n",
        b"POST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nX: ",
    ],
    ids=["head", "body", "chunk", "second request"],
)
async def test_a_byte_now_and_then_wins_no_time(clock, start):
    async with serving(SHORT) as server:
        reader, writer = await server.connect()
        await until(lambda: server.open)
        await server.hears(writer, start)
        for _ in range(25):  # twice the longer of both limits, and more
            await server.hears(writer, b"a")
            await clock.passes(SHORT.request_s / 10)
            if not server.open:
                break
        assert server.open == 0
        await is_partitioned(reader)
        writer.close()


async def test_an_answer_that_nobody_reads_is_not_kept(clock):
    async with serving(SHORT) as server:
        reader, writer = await server.connect()
        await until(lambda: server.open)
        (connection,) = server.connections._open.values()
        await server.hears(writer, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: connection._is_idle)
        await clock.passes(SHORT.idle_s)
        assert server.open == 0
        await is_partitioned(reader)
        writer.close()


async def test_who_waits_for_an_answer_is_not_cut_and_may_ask_again(clock):
    async with serving(SHORT) as server:
        reader, writer = await server.connect()
        await until(lambda: server.open)
        for asked in (1, 2):
            server.may_answer.clear()
            await server.hears(writer, b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
            await until(lambda asked=asked: server.asked == asked)
            await clock.passes(SHORT.request_s * 1.5)
            assert server.open == 1
            server.may_answer.set()
            await reader.readuntil(b"\r\n\r\n5")
        writer.close()


async def test_where_all_are_being_answered_a_new_one_is_turned_away_and_they_are_not():
    async with serving(PATIENT) as server:
        waiting = [asyncio.create_task(server.get("/slow")) for _ in range(PATIENT.connections)]
        while server.asked < PATIENT.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        reader, writer = await server.connect()
        await is_partitioned(reader)
        writer.close()
        server.may_answer.set()
        assert set(await asyncio.gather(*waiting)) == {b"HTTP/1.1 200 OK"}
        assert await server.get() == b"HTTP/1.1 200 OK"


async def test_garbage_in_place_of_a_handshake_leaves_nothing_behind():
    async with serving(PATIENT, secure=True) as server:
        for _ in range(30):
            reader, writer = await server.connect(tls=False)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await is_partitioned(reader)
            writer.close()
        assert await server.get() == b"HTTP/1.1 200 OK"


async def test_who_was_accepted_as_the_server_ended_is_cut_off():
    """The loop makes it known a turn later: nobody else would close it."""
    connections = Connections(asyncio.Protocol, PATIENT, None)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    _, before = await asyncio.open_connection(*server.sockets[0].getsockname())
    made = connections._open.copy()
    server.close()
    connections.close()
    ours, theirs = socket.socketpair()
    with theirs:
        await asyncio.get_running_loop().connect_accepted_socket(connections, ours)
        await asyncio.sleep(0)
        assert made
        assert connections._open == {}
        assert ours.fileno() == -1
    before.close()
