"""What a lab that starts is busy with, for who waits for it."""

import threading
from typing import TextIO

"""Called with the step that begins."""


class Progress:
    """Says on a terminal what is being done, once it has taken ``after_s`` seconds; elsewhere, and of what is quick,
    nothing. By a thread, for whatever keeps the event loop busy is what people wait for."""

    def __init__(self, terminal: TextIO, after_s: float = 1.0) -> None:
        self._terminal = terminal
        self._after_s = after_s
        self._timer: threading.Timer | None = None

    def doing(self, what: str) -> None:
        """The stage before has ended, and this one begins."""
        self.done()
        if self._terminal.isatty():
            self._timer = threading.Timer(self._after_s, self._show_step, (what,))
            self._timer.daemon = True
            self._timer.start()

    def done(self) -> None:
        """Nothing is in progress."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None

    def _show_step(self, what: str) -> None:
        print(f"{what} ...", file=self._terminal, flush=True)
