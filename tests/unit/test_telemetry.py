"""Listening, and that nothing of it is left."""

import asyncio
import contextlib
import gc
import socket

import pytest
from aiohttp import web

from purser.lab.ports import free_ports
from purser.telemetry import MetricsPage, listening


@pytest.mark.parametrize("more_steps", range(-1, 6))
@pytest.mark.parametrize("steps", range(12))
async def test_nobody_listens_once_it_was_cancelled_however_far_it_had_come(steps, more_steps):
    """Nor where it was cancelled once more while it ended: a socket that nobody closed warns, which fails the test."""
    [port] = free_ports(1)

    async def serve():
        async with listening(web.Application(), "127.0.0.1", port):
            await asyncio.get_running_loop().create_future()

    serving = asyncio.create_task(serve())
    for _ in range(steps):
        await asyncio.sleep(0)
    serving.cancel()
    for _ in range(more_steps):
        await asyncio.sleep(0)
    if more_steps >= 0:
        serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    del serving
    gc.collect()


async def test_requests_that_wait_share_a_page_that_is_made_after_they_came():
    made = []

    def render():
        made.append(len(made))
        return b"%d" % made[-1]

    page = MetricsPage(render)
    given_up = asyncio.ensure_future(page.text())
    waiting = [asyncio.ensure_future(page.text()) for _ in range(10)]
    await asyncio.sleep(0)
    given_up.cancel()
    assert await asyncio.gather(*waiting) == [b"0"] * 10
    assert [await page.text() for _ in range(2)] == [b"1", b"2"], "who asks later gets what is so later"


async def test_an_error_is_that_pages_alone():
    results = [ValueError(), b"page"]

    def render():
        if isinstance(found := results.pop(0), Exception):
            raise found
        return found

    page = MetricsPage(render)
    errors = await asyncio.gather(page.text(), page.text(), return_exceptions=True)
    assert [type(each) for each in errors] == [ValueError, ValueError]
    assert await page.text() == b"page"
