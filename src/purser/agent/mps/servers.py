"""The servers of one GPU's MPS daemon: processes that the daemon starts for its clients, and that can end without it.

The control daemon starts another server for the next client by itself (NVIDIA's "Multi-Process Service"), so nothing
has to be started here. Programs that were clients of the server that ended have lost their GPU.
"""

import asyncio

from purser.agent.mps.processes import ended


class MpsServers:
    """The servers of one daemon, each watched until it ends."""

    def __init__(self) -> None:
        self._ends: dict[int, asyncio.Future[None]] = {}

    @property
    def ends(self) -> frozenset[asyncio.Future[None]]:
        """What is done once a server has ended."""
        return frozenset(self._ends.values())

    def watch(self, pids: frozenset[int]) -> None:
        """Watch these as well."""
        for pid in pids - self._ends.keys():
            self._ends[pid] = asyncio.ensure_future(ended(pid))

    def take_ended(self) -> tuple[int, ...]:
        """Those that have ended, each once."""
        found = tuple(pid for pid, end in self._ends.items() if end.done())
        for pid in found:
            del self._ends[pid]
        return found

    def close(self) -> None:
        """Watch none any more."""
        for end in self._ends.values():
            end.cancel()
        self._ends.clear()
