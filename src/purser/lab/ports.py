"""TCP ports of the loopback address for servers that others must know before they listen, or that come back."""

import contextlib
import random
import socket
from pathlib import Path

from purser.core.wording import counted

_LOOPBACK = "127.0.0.1"
_FIRST_PORT = 20_000
"""Well-known servers of a cluster's machine (etcd, API server, kubelet, exporters) have theirs below."""
_MIN_PORTS = 1_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Distinct unused ports.

    They are outside of the kernel's range for connections: a port assigned to an empty bind may be a client's by the
    time that its server listens, or listens again. Raises OSError where there are not enough.
    """
    candidates = server_ports(_RANGE.read_text() if _RANGE.exists() else "")
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            if not candidates:
                raise OSError(f"cannot find {counted(count, 'free TCP port')} on {_LOOPBACK}")
            any_place = random.randrange(len(candidates))
            candidates[any_place], candidates[-1] = candidates[-1], candidates[any_place]
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind((_LOOPBACK, candidates.pop(random.randrange(len(candidates)))))
                found.append(one.getsockname()[1])
        return found


def server_ports(local_port_range: str) -> list[int]:
    """Ports that the kernel gives to no connection, by the text of ip_local_port_range (empty: Linux' default).

    Where an administrator left too few of them all are 0: any port that the kernel gives.
    """
    first, last = (int(word) for word in (local_port_range or "32768 60999").split())
    apart = [*range(_FIRST_PORT, first), *range(max(last + 1, _FIRST_PORT), 65_536)]
    return apart if len(apart) >= _MIN_PORTS else [0] * _MIN_PORTS
