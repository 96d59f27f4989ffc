"""The terminal: raw keys, the alternate screen, and everything as it was when the command ends, however it does.

Written to by a file of its own, which does not block: a terminal that has stopped reading (a connection over ssh that
hangs) costs frames, and nothing else waits. To set the shell's own file so would change it for the shell, too.
"""

import os
import select
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from purser.top.lines import Line, Style

_ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The alternate screen, no cursor, no wrapping."""
_LEAVE_SCREEN = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

_COLOURS = {
    Style.HEAD: "1",
    Style.TITLE: "1",
    Style.CHOSEN: "7",
    Style.NOTICE: "33",
    Style.BAD: "31",
    Style.FAINT: "2",
}
_WITHOUT_COLOURS = {Style.HEAD: "1", Style.TITLE: "1", Style.CHOSEN: "7", Style.BAD: "1"}

_LEAVE_TIMEOUT_S = 1.0
"""How long a terminal that reads nothing is waited for at the end."""

_MIN_SIZE = (1, 1)
_MAX_SIZE = (1000, 1000)
"""Cells and lines: what a terminal says of itself may be anything."""


class TerminalError(OSError):
    """This is not a terminal on which lines can be addressed; the message says what to do."""


class Terminal:
    """A context manager: inside, keys come one by one and `paint` shows lines."""

    def __init__(self, input_fd: int, output_fd: int, environment: Mapping[str, str], encoding: str = "utf-8") -> None:
        """``input_fd`` and ``output_fd``: file descriptors. Raises `TerminalError`."""
        if input_fd < 0 or output_fd < 0 or not (os.isatty(input_fd) and os.isatty(output_fd)):
            raise TerminalError(
                "standard input or output is not a terminal: use --once, or --once -o json for machine-readable output"
            )
        if environment.get("TERM", "dumb") in ("dumb", "unknown", ""):
            raise TerminalError("TERM specifies a terminal without cursor movement: use --once, or set TERM")
        self.input_fd = input_fd
        self._encoding = encoding
        self._codes = _WITHOUT_COLOURS if environment.get("NO_COLOR") else _COLOURS
        self._before: list[object] = []
        self._output_fd = output_fd
        self._own = -1
        self._painted: list[str] = []
        self._unsent = b""
        self.is_gone = False
        """Whether it has hung up: nothing that is sent is read any more."""

    def __enter__(self) -> "Terminal":
        self._before = termios.tcgetattr(self.input_fd)
        try:
            self._own = os.open(os.ttyname(self._output_fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError:
            self._own = os.dup(self._output_fd)
        changed = termios.tcgetattr(self.input_fd)
        changed[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        changed[0] &= ~(termios.IXON | termios.ICRNL)
        changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
        try:
            termios.tcsetattr(self.input_fd, termios.TCSANOW, changed)
            self._send(_ENTER_SCREEN)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    @property
    def output_fd(self) -> int:
        """What becomes writable once the terminal reads on."""
        return self._own

    @property
    def is_behind(self) -> bool:
        """Whether it has yet to read what was sent: `paint` shows nothing new before it has."""
        return bool(self._unsent)

    def size(self) -> tuple[int, int]:
        """Cells of a line, and lines."""
        try:
            cells, lines = os.get_terminal_size(self._output_fd)
        except OSError:
            cells, lines = 80, 24
        return (
            min(max(cells or 80, _MIN_SIZE[0]), _MAX_SIZE[0]),
            min(max(lines or 24, _MIN_SIZE[1]), _MAX_SIZE[1]),
        )

    def forget(self) -> None:
        """What is on the screen is not what was painted: paint all of it the next time."""
        self._painted = []

    def paint(self, lines: Sequence[Line]) -> bool:
        """Show lines; only what changed is sent. False where the terminal has yet to read what was sent before."""
        if self._unsent and not self.flush():
            return False
        texts = [self._text(line) for line in lines]
        out = [] if self._painted else ["\x1b[0m\x1b[2J"]
        for at, text in enumerate(texts):
            if at >= len(self._painted) or self._painted[at] != text:
                # Erased first: in the last column some terminals would erase what was just written there.
                out.append(f"\x1b[{at + 1};1H\x1b[0m\x1b[K{text}")
        self._painted = texts
        if out:
            self._send("".join(out))
        return True

    def flush(self) -> bool:
        """Send what is left; whether all of it is sent."""
        while self._unsent:
            try:
                self._unsent = self._unsent[os.write(self._own, self._unsent) :]
            except BlockingIOError:
                return False
            except OSError:  # EIO: its window, or its connection, is closed
                self._unsent, self.is_gone = b"", True
        return True

    def _text(self, line: Line) -> str:
        parts = []
        for span in line:
            code = self._codes.get(span.style)
            parts.append(f"\x1b[{code}m{span.text}\x1b[0m" if code else span.text)
        return "".join(parts)

    def _send(self, text: str) -> None:
        self._unsent += text.encode(self._encoding, errors="replace")
        self.flush()

    def _restore(self) -> None:
        own, self._own = self._own, -1
        try:
            # In the middle of a sequence it would be shown as text: an end of one first, which commands nothing.
            select.select([], [own], [], _LEAVE_TIMEOUT_S)
            os.write(own, (("\x1b\\" if self._unsent else "") + _LEAVE_SCREEN).encode())
        except (OSError, ValueError):
            pass  # the terminal is gone, or reads nothing
        finally:
            if own >= 0:
                os.close(own)
        with suppress(OSError, termios.error):
            termios.tcsetattr(self.input_fd, termios.TCSANOW, self._before)  # type: ignore[arg-type]
