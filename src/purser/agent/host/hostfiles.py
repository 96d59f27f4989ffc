"""Folders on the host that containers are given: of HAMi-core one per container for its accounting, and one lock for
all; those of MPS daemons."""

import contextlib
import errno
import os
import secrets
import stat
import time
from pathlib import Path

import structlog

from purser.agent.settings import AgentSettings

log = structlog.get_logger("purser.agent")

REMOVE_TIMEOUT_S = 10.0
"""How long is spent on a folder that is to go."""


def on_host(settings: AgentSettings, path: Path) -> Path:
    """Where the agent itself finds a path of the host."""
    return settings.host_root / path.relative_to("/")


def make_shared_dir(settings: AgentSettings, path: Path) -> None:
    """Make a folder of the host that containers of any user can write to. Raises OSError, also for a link in its place:
    every user of the host may write to ``/tmp``, and what the link leads to would be every container's to write."""
    folder = on_host(settings, path)
    folder.mkdir(parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(opened, 0o777)
    finally:
        os.close(opened)


def make_own_dir(path: Path, mode: int) -> None:
    """Create a folder and its parent, owned by the agent, safely in folders that others can write. Raises OSError."""
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    for folder in (path.parent, path):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(0o755)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "the agent's folder was replaced by another one", str(folder))
    path.chmod(mode)


def remove_dir(settings: AgentSettings, path: Path) -> None:
    """Remove a folder of the host with all in it, if it is there; containers wrote it, so nothing in it is followed.

    Blocks, for `REMOVE_TIMEOUT_S` at most: who has it still can write faster than is removed. Its place is free at
    once; what is left then lies beside it, hidden.
    """
    folder = on_host(settings, path)
    if not folder.is_dir() or folder.is_symlink():
        return
    renamed = folder.with_name(f".{secrets.token_hex(8)}")
    try:
        folder.rename(renamed)
        _empty(renamed, time.monotonic() + REMOVE_TIMEOUT_S)
        renamed.rmdir()
    except OSError as error:
        log.warning("Cannot remove a folder", path=str(folder), error=str(error))


def _empty(folder: Path, deadline: float) -> None:
    """A container may have created deeply nested folders: each is moved to the top, then emptied, which needs neither
    stack nor long paths. Raises OSError, also once the monotonic ``deadline`` is over."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    top = os.open(folder, flags)
    try:
        while names := os.listdir(top):  # noqa: PTH208  a path has no descriptor
            for name in names:
                if _try_unlink(name, top, deadline):
                    continue
                inner = os.open(name, flags, dir_fd=top)
                try:
                    for each in os.listdir(inner):  # noqa: PTH208
                        if not _try_unlink(each, inner, deadline):
                            os.rename(each, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _try_unlink(name: str, folder: int, deadline: float) -> bool:
    """Remove what is not a folder; False for one that is."""
    if time.monotonic() > deadline:
        raise OSError(errno.EBUSY, "the folder contains too many files, or another process keeps writing to it")
    try:
        os.unlink(name, dir_fd=folder)
    except (IsADirectoryError, PermissionError):
        return False
    return True
