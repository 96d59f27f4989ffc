"""Ports for servers: distinct, and none that the kernel gives to a connection."""

import socket

import pytest

from purser.lab import ports as lab_ports
from purser.lab.apiserver import ApiServer
from purser.lab.ports import free_ports, server_ports


def test_ports_are_distinct_and_can_be_had() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_is_not_given_again_before_its_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    [other] = free_ports(1)
    socket.create_server(("127.0.0.1", other)).close()
    monkeypatch.setattr(lab_ports, "server_ports", lambda _: [port])
    with pytest.raises(OSError, match="cannot find 1 free TCP port"):
        free_ports(1)


def test_no_port_is_one_that_a_connection_may_be_given() -> None:
    ports = server_ports("32768\t60999\n")
    assert ports[0] == 20_000
    assert ports[-1] == 65_535
    assert not set(ports) & set(range(32_768, 61_000))
    assert server_ports("") == ports


@pytest.mark.parametrize("everything", ["1024 65535", "15000 65535", "20000 64999"])
def test_where_the_kernel_may_give_any_it_is_asked(everything: str) -> None:
    assert set(server_ports(everything)) == {0}


async def test_a_lab_api_server_comes_back_where_no_connection_can_have_its_port() -> None:
    async with ApiServer() as server:
        assert int(server.url.rsplit(":", 1)[1]) in server_ports("")
