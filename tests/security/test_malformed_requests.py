"""Requests that make no sense fill neither the log nor the memory, and are answered or cut."""

import asyncio
import logging
from contextlib import suppress

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from purser.connections import Limits
from purser.telemetry import listening, telemetry_app

PATIENT = Limits(connections=20, request_s=600, idle_s=600)
HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


async def failing(request):
    raise RuntimeError("this is Purser's own")


@pytest.fixture
async def port():
    app = telemetry_app(CollectorRegistry(), list)
    app.add_routes([web.get("/failing", failing)])
    async with listening(app, "127.0.0.1", 0, None, PATIENT) as port:
        yield port


async def say(port, text):
    """The answer to it, empty where there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with suppress(ConnectionError):
        writer.write(text)
        answer = await asyncio.wait_for(reader.read(1000), 10)
    writer.close()
    return answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "text",
    [
        b"\0\xff\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD + b"a: " + b"b" * 10_000 + b"\r\n\r\n",
        HEAD + b"".join(b"a%d: b\r\n" % number for number in range(200)) + b"\r\n",
        CHUNKED + b"0\r\n" + b"".join(b"a%d: b\r\n" % number for number in range(200)) + b"\r\n",
        CHUNKED + b"zz\r\n",
        HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + b"x" * 1000,
    ],
    ids=["bytes", "HTTP/2", "length", "two lengths", "header", "headers", "trailers", "chunk", "upgrade"],
)
async def test_they_leave_no_traceback_in_the_log(port, text, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        await say(port, text)
        assert await say(port, HEAD + b"\r\n") == b"HTTP/1.1 200 OK"
    assert [record for record in caplog.records if record.name.startswith("aiohttp")] == []
    assert "Traceback" not in "".join(capfd.readouterr())


async def test_what_fails_in_purser_itself_is_logged(port, capfd):
    assert (await say(port, HEAD.replace(b"healthz", b"failing") + b"\r\n")).startswith(b"HTTP/1.1 500")
    assert "this is Purser's own" in "".join(capfd.readouterr())


async def test_requests_that_are_sent_while_no_answer_is_read_stop_being_taken(port):
    """aiohttp kept all of them until 3.14.1."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write((HEAD + b"\r\n") * 500_000)
    left, before = writer.transport.get_write_buffer_size(), 0
    while left != before:  # what the sockets between them hold is taken first
        before = left
        for _ in range(20):  # time in which requests are read
            assert await say(port, HEAD + b"\r\n") == b"HTTP/1.1 200 OK"
        left = writer.transport.get_write_buffer_size()
    assert left
    writer.transport.abort()
