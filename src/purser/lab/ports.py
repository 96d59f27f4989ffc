"""TCP ports of the loopback address for servers that others must know before they listen, or that come back."""

import contextlib
import os
import random
import socket
from collections import deque
from pathlib import Path

from purser.core.wording import counted

_LOOPBACK = "127.0.0.1"
_FIRST_PORT = 20_000
"""Well-known servers of a cluster's machine (etcd, API server, kubelet, exporters) have theirs below."""
_MIN_PORTS = 1_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_reserved: deque[int] = deque()
"""File descriptors of UDP sockets that live as long as the process."""
_MAX_RESERVED = 256
"""Open files, of which a process may have 1 024; the servers of the oldest ports listen by then, or never will."""


def free_ports(count: int) -> list[int]:
    """Distinct unused ports, which no other process that calls this is given before their servers listen.

    They are outside of the kernel's range for connections: a port assigned to an empty bind may be a client's by the
    time that its server listens, or listens again. Raises OSError where there are not enough.
    """
    candidates = server_ports(_RANGE.read_text() if _RANGE.exists() else "")
    found: list[int] = []
    while len(found) < count:
        if not candidates:
            raise OSError(f"cannot find {counted(count, 'free TCP port')} on {_LOOPBACK}")
        any_place = random.randrange(len(candidates))
        candidates[any_place], candidates[-1] = candidates[-1], candidates[any_place]
        with contextlib.suppress(OSError):
            found.append(_reserve(candidates.pop()))
    return found


def _reserve(port: int) -> int:
    """The port, or one that the kernel gives for 0. Raises OSError where it is taken or reserved.

    The UDP port of the same number is kept: it tells other processes of Purser that the TCP port has an owner.
    """
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind((_LOOPBACK, port))
        found: int = tcp.getsockname()[1]
        udp.bind((_LOOPBACK, found))
        _reserved.append(udp.detach())
    while len(_reserved) > _MAX_RESERVED:
        os.close(_reserved.popleft())
    return found


def server_ports(local_port_range: str) -> list[int]:
    """Ports that the kernel gives to no connection, by the text of ip_local_port_range (empty: Linux' default).

    Where an administrator left too few of them all are 0: any port that the kernel gives.
    """
    first, last = (int(word) for word in (local_port_range or "32768 60999").split())
    apart = [*range(_FIRST_PORT, first), *range(max(last + 1, _FIRST_PORT), 65_536)]
    return apart if len(apart) >= _MIN_PORTS else [0] * _MIN_PORTS
