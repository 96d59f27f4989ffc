"""A server that cannot start."""

import socket

import pytest

from purser.lab.apiserver import ApiServer


async def test_a_port_that_is_taken_is_an_error_and_nothing_is_left_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = ApiServer(port=port)
        with pytest.raises(OSError, match="address already in use"):
            await server.start()
    async with server:
        assert server.url == f"https://127.0.0.1:{port}"
