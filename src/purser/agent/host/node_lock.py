"""One agent on a node: two would fight over kubelet's sockets, CDI specifications and labels.

The lock is a flock on a file of the host, so the kernel releases it with its process, however that ends: a crashed
agent, or one that was killed, leaves nothing behind.
"""

import asyncio
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from purser.agent.host.files import read_head
from purser.agent.settings import AgentSettings
from purser.core.decoding import brief

log = structlog.get_logger("purser.agent")

LOCK_FILE = "agent.lock"
"""In `AgentSettings.state_dir`. It has the holder's name, for people."""

LOCK_WAIT_S = 45.0
"""How long an agent waits for the one before it. A pod that is deleted with force leaves its containers running for up
to 30 s, the termination grace period; kubelet's liveness probe lets a container start for 60 s."""

LOCK_RETRY_PERIOD_S = 0.5


class SecondAgentError(OSError):
    """Another agent serves this node."""


async def lock_node(settings: AgentSettings, stop: asyncio.Event) -> int | None:
    """Become the only agent of this node, once the one before has ended: the lock's file descriptor, which is held
    until it is closed. None: ``stop`` was set meanwhile, or there is no place for the file, or its file system has no
    locks, which is reported.

    Raises:
        SecondAgentError: another agent still serves the node after `LOCK_WAIT_S`.
    """
    path = settings.state_dir / LOCK_FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)  # not inherited by what the agent starts
    except OSError as error:
        log.warning("Cannot acquire the node's lock", path=str(path), error=str(error))
        return None
    try:
        if await _lock(lock, path, stop):
            held, lock = lock, -1
            _record_holder(held, f"{settings.namespace}/{socket.gethostname()}")
            return held
        return None
    finally:
        if lock >= 0:
            os.close(lock)


@contextmanager
def held(lock: int | None) -> Iterator[None]:
    """Releases the lock at the end."""
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


async def _lock(lock: int, path: Path, stop: asyncio.Event) -> bool:
    loop = asyncio.get_running_loop()
    deadline, is_first = loop.time() + LOCK_WAIT_S, True
    while not stop.is_set():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            problem = f"another Purser agent serves this node ({_holder(path)}): uninstall one of them"
        except OSError as error:  # ENOLCK, EOPNOTSUPP: NFS without its lock daemon, some FUSE file systems
            log.warning(
                "The state folder's file system does not support locks, so a second agent could run on this node. "
                "Move the state folder to a local file system",
                path=str(path),
                error=str(error),
            )
            return False
        if loop.time() >= deadline:
            raise SecondAgentError(problem)
        if is_first:
            log.warning("Waiting for another agent on this node to stop", agent=_holder(path), wait_s=LOCK_WAIT_S)
            is_first = False
        try:
            async with asyncio.timeout(LOCK_RETRY_PERIOD_S):
                await stop.wait()
        except TimeoutError:
            continue
    return False


def _record_holder(lock: int, name: str) -> None:
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, name.encode(), 0)
    except OSError as error:
        log.warning("Cannot record the holder of the node's lock", error=str(error))


def _holder(path: Path) -> str:
    """As namespace/pod."""
    try:
        return brief(read_head(path, 512).decode(errors="replace")) or "name unknown"
    except OSError:
        return "name unknown"
