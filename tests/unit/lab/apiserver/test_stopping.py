"""A server that stops while clients connect leaves nothing open, at whichever step a connection is."""

import asyncio
import gc
import socket
import threading

import pytest

from purser.lab.apiserver import ApiServer


def connect_until(ended: threading.Event, port: int, made: list[socket.socket]) -> None:
    while not ended.is_set() and len(made) < 400:
        try:
            made.append(socket.create_connection(("127.0.0.1", port), timeout=1))
        except OSError:
            continue


@pytest.mark.gate
@pytest.mark.parametrize("tls", [True, False])
async def test_no_connection_is_left_open_by_a_server_that_stops(tls: bool) -> None:
    for _ in range(2):
        server, ended = ApiServer(tls=tls), threading.Event()
        made: list[socket.socket] = []
        async with server:
            port = int(server.url.rpartition(":")[2])
            connecting = asyncio.create_task(asyncio.to_thread(connect_until, ended, port, made))
            while not made:  # noqa: ASYNC110
                await asyncio.sleep(0)
        ended.set()
        await connecting
        for each in made:
            each.close()
    gc.collect()  # a transport that nobody closed warns of itself, which fails the test
