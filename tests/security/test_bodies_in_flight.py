"""Large bodies, held open by many, neither fill the memory nor keep out whoever is honest."""

import asyncio
import gzip
import json
from contextlib import asynccontextmanager

import pytest

from purser.scheduler.bodies import BodyLimits
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.server import webhook_app
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.validation import Validation
from purser.telemetry import listening
from tests.unit.scheduler.reviews import container, pod, review

KIB = 1024
LIMITS = BodyLimits(per_body=256 * KIB, in_total=1024 * KIB)
HONEST = json.dumps(review(pod(container(limits={"nvidia.com/gpu": 1})))).encode()


class Server:
    def __init__(self):
        self.metrics = SchedulerMetrics()
        self.port = 0

    async def begin(self, announced, *sent, headers=()):
        """A request of which so much is announced and something is sent; reader and writer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        length = ["Transfer-Encoding: chunked"] if announced is None else [f"Content-Length: {announced}"]
        writer.write("\r\n".join(["POST /mutate HTTP/1.1", "Host: x", *length, *headers, "", ""]).encode())
        for data in sent:
            writer.write(data)
        await writer.drain()
        return reader, writer

    async def ask(self, body, headers=()):
        """Status and all that was answered."""
        reader, writer = await self.begin(len(body), body, headers=headers)
        answered = await answer(reader)
        writer.close()
        return answered


async def answer(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split()[1]), head


@pytest.fixture
async def server():
    async with serving() as it:
        yield it


@asynccontextmanager
async def serving():
    server = Server()
    app = webhook_app(Mutation(), Validation(), server.metrics, bodies=LIMITS)
    async with asyncio.timeout(30), listening(app, "127.0.0.1", 0) as server.port:
        yield server


async def test_bodies_that_are_held_back_give_way_and_honest_requests_are_answered(server):
    held = [await server.begin(200 * KIB, b" " * (200 * KIB - 1)) for _ in range(20)]
    refused = [asyncio.create_task(answer(reader)) for reader, _ in held]
    assert (await server.ask(HONEST))[0] == 200
    while sum(task.done() for task in refused) < 15:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for task in refused:
        if task.done():
            status, head = task.result()
            assert status == 503
            assert b"Retry-After: 1\r\n" in head
        task.cancel()
    assert (await server.ask(HONEST))[0] == 200
    assert b'outcome="turned-away",verb="mutate"' in server.metrics.exposition()
    for _, writer in held:
        writer.close()


async def test_announcing_much_takes_nothing_from_others(server):
    held = [await server.begin(256 * KIB) for _ in range(50)]
    assert (await server.ask(HONEST))[0] == 200
    for _, writer in held:
        writer.close()


async def test_what_was_held_is_free_again_once_it_is_answered_or_given_up(server):
    for _ in range(20):
        assert (await server.ask(b" " * (256 * KIB)))[0] == 400
        _, writer = await server.begin(256 * KIB, b" " * (200 * KIB))
        writer.close()
    assert (await server.ask(HONEST))[0] == 200


async def test_a_body_of_unknown_length_has_the_same_bound(server):
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    reader, writer = await server.begin(None, *[chunk] * 5)
    assert (await answer(reader))[0] == 413
    writer.close()


async def test_what_is_packed_is_not_unpacked(server):
    bomb = gzip.compress(b" " * (64 * 1024 * KIB))
    assert (await server.ask(bomb, headers=["Content-Encoding: gzip"]))[0] == 400


async def test_a_truncated_body_logs_no_error(server, caplog):
    reader, writer = await server.begin(100, b"hello", headers=["Expect: 100-continue"])
    assert (await answer(reader))[0] == 100, "it waits for the rest"
    writer.close()
    while b'outcome="turned-away"' not in server.metrics.exposition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert (await server.ask(HONEST))[0] == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
