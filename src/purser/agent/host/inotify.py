"""A wake-up when something in one folder is added or removed: inotify(7) by ctypes, polling where there is none.

It does not say what happened: the waiter looks itself, so nothing is lost when events are merged or dropped.
"""

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path

_CREATE, _DELETE, _MOVED_FROM, _MOVED_TO = 0x100, 0x200, 0x40, 0x80
_DELETE_SELF, _MOVE_SELF, _ATTRIB = 0x400, 0x800, 0x4
_MASK = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO | _DELETE_SELF | _MOVE_SELF | _ATTRIB
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC

NOT_WATCHED = -1

UNWATCHED_POLL_PERIOD_S = 1.0
"""Between two looks where the folder cannot be watched: no inotify, no more watches, or no such folder yet."""

WATCHED_POLL_PERIOD_S = 10.0
"""Between two looks where it is watched, in case a watch is lost with a mount."""


class FolderWatch:
    """Watches one folder while entered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._happened = asyncio.Event()
        self._fd = -1
        self._watched = NOT_WATCHED

    def __enter__(self) -> "FolderWatch":
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.inotify_init1(_FLAGS)
        except (OSError, AttributeError):
            self._fd = -1
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._drain)
            self._watch()
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    async def changed(self) -> None:
        """Return when something happened since the last call, or when it is time to look anyway."""
        before = self._watched
        self._watch()  # each time: the folder may be another one by now, and watching the same one twice is once
        if self._watched not in (before, NOT_WATCHED):
            return  # newly watched: what happened before that can only be seen by looking
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                UNWATCHED_POLL_PERIOD_S if self._watched == NOT_WATCHED else WATCHED_POLL_PERIOD_S
            ):
                await self._happened.wait()
        self._happened.clear()

    def _watch(self) -> None:
        if self._fd < 0:
            return
        watch: int = self._libc.inotify_add_watch(self._fd, os.fsencode(self._folder), _MASK)
        self._watched = max(watch, NOT_WATCHED)

    def _drain(self) -> None:
        """Events are not read one by one: only their occurrence counts."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 65536):
                pass
        self._happened.set()
