"""A terminal that a command runs in: a pty, and what its screen shows by then.

As much of xterm as the command uses: moving the cursor, erasing, the alternate screen, no wrapping.
"""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.cells import cell_len

_SEQUENCE = re.compile(rb"\x1b\[(\??)([0-9;]*)([A-Za-z])|\x1b\\")
DEADLINE_S = 60.0


class EmulatedScreen:
    """What bytes leave on a screen."""

    def __init__(self, cells: int, lines: int) -> None:
        self.cells, self.lines = cells, lines
        self.is_alternate = False
        self.has_cursor = True
        self.seen: set[str] = set()
        """Codes of colours and the like."""
        self.strange = b""
        """What is none of the sequences that are known."""
        self._rows: dict[int, str] = {}
        self._at = (1, 1)
        self._rest = b""

    def feed(self, data: bytes) -> None:
        data, self._rest = self._rest + data, b""
        at = 0
        while at < len(data):
            if data[at] != 0x1B:
                end = data.find(b"\x1b", at)
                self._write(data[at : end if end >= 0 else len(data)])
                at = end if end >= 0 else len(data)
            elif (found := _SEQUENCE.match(data, at)) is not None:
                self._do(found)
                at = found.end()
            elif len(data) - at < 16:
                self._rest = data[at:]
                return
            else:
                self.strange += data[at : at + 16]
                at += 1

    @property
    def text(self) -> list[str]:
        return [self._rows.get(line, "").rstrip() for line in range(1, self.lines + 1)]

    def _write(self, data: bytes) -> None:
        text = data.decode(errors="replace")
        if not self.is_alternate:
            return
        if not text.isprintable():
            self.strange += data
        line, column = self._at
        before = self._rows.get(line, "").ljust(column - 1)[: column - 1]
        self._rows[line] = before + text
        assert cell_len(self._rows[line]) <= self.cells, self._rows[line]
        self._at = (line, column + len(text))

    def _do(self, found: re.Match[bytes]) -> None:
        private, numbers, letter = (each or b"" for each in found.groups())
        if private:
            is_on = letter == b"h"
            if numbers == b"1049":
                self.is_alternate = is_on
            elif numbers == b"25":
                self.has_cursor = is_on
        elif letter == b"H":
            line, _, column = numbers.partition(b";")
            self._at = (int(line or 1), int(column or 1))
            assert self._at[0] <= self.lines
        elif letter == b"J":
            self._rows.clear()
        elif letter == b"K":
            line, column = self._at
            self._rows[line] = self._rows.get(line, "")[: column - 1]
        elif letter == b"m":
            self.seen.add(numbers.decode())
        elif letter:
            self.strange += found.group()


class InTerminal:
    """A command in a terminal of its own; an async context manager."""

    def __init__(
        self, *command: object, cells: int = 100, lines: int = 24, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = [str(each) for each in command]
        self._environment = {**os.environ, "TERM": "xterm-256color", **(environment or {})}
        self.screen = EmulatedScreen(cells, lines)
        self.raw = b""

    async def __aenter__(self) -> "InTerminal":
        self._leader, follower = pty.openpty()
        self._set_size()
        self.before = termios.tcgetattr(follower)
        self.process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=self._environment,
            start_new_session=True,
        )
        self.follower = follower
        os.set_blocking(self._leader, False)
        asyncio.get_running_loop().add_reader(self._leader, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._leader)
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        os.close(self._leader)
        os.close(self.follower)

    def press(self, keys: str | bytes) -> None:
        os.write(self._leader, keys.encode() if isinstance(keys, str) else keys)

    def resize(self, cells: int, lines: int) -> None:
        self.screen.cells, self.screen.lines = cells, lines
        self._set_size()
        os.kill(self.process.pid, signal.SIGWINCH)

    def stop_reading(self) -> None:
        asyncio.get_running_loop().remove_reader(self._leader)

    async def shows(self, what: Callable[[str], bool] | str) -> str:
        """Wait for a screen with this on it; that screen."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    text = "\n".join(self.screen.text)
                    if what in text if isinstance(what, str) else what(text):
                        return text
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{what} is not on the screen:\n{text}\n{self.raw[-2000:]!r}") from None

    async def ends(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            code = await self.process.wait()
        self._read()
        return code

    @property
    def is_as_before(self) -> bool:
        """Whether the shell gets its terminal back as it was."""
        is_screen = not self.screen.is_alternate and self.screen.has_cursor
        return is_screen and termios.tcgetattr(self.follower) == self.before

    def _read(self) -> None:
        try:
            data = os.read(self._leader, 65536)
        except OSError:
            return
        self.raw += data
        self.screen.feed(data)

    def _set_size(self) -> None:
        size = struct.pack("HHHH", self.screen.lines, self.screen.cells, 0, 0)
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, size)


def purser(*words: object) -> list[object]:
    """The command, as it is installed beside this Python."""
    return [Path(sys.executable).with_name("purser"), *words]
