"""Processes of MPS by the mark in their environment, and the end of one."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
_NAME = b"nvidia-cuda-mps"
"""Of control daemon and server, as long as the kernel keeps names."""

POLL_S = 1.0
"""Between two looks at a process, where the kernel (before 5.3) cannot say when it ends."""


def find_marked(mark: str) -> tuple[int, ...]:
    """Daemons and servers that were started with this ``NAME=value`` in their environment.

    In the agent's PID namespace alone, for a container's program can have that name and environment as well. By names
    first: the environment of any process may be long in coming, for the kernel reads it in its memory.
    """
    return tuple(pid for pid in _pids() if is_marked(pid, mark))


def is_marked(pid: int, mark: str) -> bool:
    """Whether a process is one of `find_marked`."""
    is_named = _name(pid) == _NAME and _namespace(str(pid)) == _namespace("self")
    return is_named and mark.encode() in _environment(pid)


def kill(pids: tuple[int, ...]) -> None:
    """End them, whatever they do."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        reap(pid)


def reap(pid: int) -> None:
    """Forget a child that has ended; nothing for what is not a child, or runs."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        state = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")


async def ended(pid: int) -> None:
    """Return once a process has ended, whether or not it is a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # the kernel has no such call
        while runs(pid):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        return
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    reap(pid)


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())


def _name(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "comm").read_bytes().strip()
    except OSError:
        return b""


def _namespace(pid: str) -> str:
    """That of a process' pid; empty: it ended meanwhile, or is another user's."""
    try:
        return str((PROC / pid / "ns/pid").readlink())
    except OSError:
        return ""


def _environment(pid: int) -> frozenset[bytes]:
    try:
        return frozenset((PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    except OSError:  # it ended meanwhile, or is another user's
        return frozenset()
