"""Listening, and that nothing of it is left."""

import asyncio
import contextlib
import socket

import pytest
from aiohttp import web

from purser.lab.ports import free_ports
from purser.telemetry import listening


@pytest.mark.parametrize("steps", range(12))
async def test_nobody_listens_once_it_was_cancelled_however_far_it_had_come(steps):
    [port] = free_ports(1)

    async def serve():
        async with listening(web.Application(), "127.0.0.1", port):
            await asyncio.get_running_loop().create_future()

    serving = asyncio.create_task(serve())
    for _ in range(steps):
        await asyncio.sleep(0)
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
