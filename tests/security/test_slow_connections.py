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

DEADLINE_S = 30
SHORT = Limits(connections=20, request_s=0.3, idle_s=0.3)
PATIENT = Limits(connections=20, request_s=600, idle_s=600)


class Server:
    def __init__(self, port, tls):
        self.port = port
        self.tls = tls
        self.may_answer = asyncio.Event()
        self.asked = 0

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

    async def slow(request):
        server.asked += 1
        await server.may_answer.wait()
        return web.Response(text=str(len(await request.read())))

    app.add_routes([web.get("/slow", slow), web.post("/slow", slow)])
    async with asyncio.timeout(DEADLINE_S), listening(app, "127.0.0.1", 0, context, limits) as server.port:
        yield server
        server.may_answer.set()


async def is_cut(reader):
    with suppress(ConnectionError):
        await reader.read()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_an_honest_request_is_answered_however_many_connections_say_nothing(secure):
    async with serving(PATIENT, secure=secure) as server:
        silent = [await server.connect(tls=False) for _ in range(200)]
        assert await server.get() == b"HTTP/1.1 200 OK"
        await asyncio.gather(*(is_cut(reader) for reader, _ in silent[:150]))  # the last ones may stay
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
        await asyncio.gather(*(is_cut(reader) for reader, _ in idle[:75]))
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_silent_connections_are_cut(secure):
    async with serving(SHORT, secure=secure) as server:
        reader, writer = await server.connect(tls=False)
        await is_cut(reader)
        writer.close()
        reader, writer = await server.connect()
        await is_cut(reader)
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
async def test_a_byte_now_and_then_wins_no_time(start):
    async with serving(SHORT) as server:
        reader, writer = await server.connect()
        writer.write(start)
        cut = asyncio.create_task(is_cut(reader))
        while not cut.done():
            writer.write(b"a")
            await asyncio.sleep(0.02)
        writer.close()


async def test_an_answer_that_nobody_reads_is_not_kept():
    async with serving(SHORT) as server:
        reader, writer = await server.connect()
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await is_cut(reader)
        writer.close()


async def test_who_waits_for_an_answer_is_not_cut_and_may_ask_again():
    async with serving(SHORT) as server:
        reader, writer = await server.connect()
        for _ in range(2):
            server.may_answer.clear()
            writer.write(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
            await asyncio.sleep(SHORT.request_s * 1.5)
            server.may_answer.set()
            await reader.readuntil(b"\r\n\r\n5")
        writer.close()


async def test_where_all_are_being_answered_a_new_one_is_turned_away_and_they_are_not():
    async with serving(PATIENT) as server:
        waiting = [asyncio.create_task(server.get("/slow")) for _ in range(PATIENT.connections)]
        while server.asked < PATIENT.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        reader, writer = await server.connect()
        await is_cut(reader)
        writer.close()
        server.may_answer.set()
        assert set(await asyncio.gather(*waiting)) == {b"HTTP/1.1 200 OK"}
        assert await server.get() == b"HTTP/1.1 200 OK"


async def test_garbage_in_place_of_a_handshake_leaves_nothing_behind():
    async with serving(PATIENT, secure=True) as server:
        for _ in range(30):
            reader, writer = await server.connect(tls=False)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await is_cut(reader)
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
