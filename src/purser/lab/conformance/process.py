"""The plugin as a process of the kit's own: started, watched, ended by its process id."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from purser.lab.conformance.check import CannotRun, one_line

_LAST_WORDS_BYTES = 600


class PluginProcess:
    """One run of the command; its output is appended to ``log``."""

    def __init__(self, child: asyncio.subprocess.Process, log: Path) -> None:
        self._child = child
        self._log = log

    @classmethod
    async def start(cls, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> "PluginProcess":
        """Start it, in a session of its own: a Ctrl-C on the terminal is for the kit. Raises `CannotRun`."""
        try:
            with log.open("ab") as output:
                child = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **environment},
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise CannotRun(f"cannot start {argv[0]}: {error}") from error
        return cls(child, log)

    @property
    def ended(self) -> str | None:
        """How it ended, if it did."""
        code = self._child.returncode
        if code is None:
            return None
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        return f"{how}{self._last_output() if code else ''}"

    async def wait(self) -> None:
        """Until it ends."""
        await self._child.wait()

    def terminate(self) -> None:
        """SIGTERM, to the process alone: so a container's runtime does it."""
        with contextlib.suppress(ProcessLookupError):
            self._child.terminate()

    async def kill(self) -> None:
        """SIGKILL, to everything it started too."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        await self._child.wait()

    async def end(self, grace_s: float) -> None:
        """SIGTERM, SIGKILL after the grace time."""
        self.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.wait()
        await self.kill()

    def _last_output(self) -> str:
        with contextlib.suppress(OSError):
            text = self._log.read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace")
            lines = [line for line in text.splitlines() if line.strip()]
            if lines:
                return f'; last line of output: "{one_line(lines[-1])}"'
        return ""
