"""One child process with its own log file, stopped by its process id."""

import contextlib
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class ProcessStartError(ChildProcessError):
    """A process did not become ready; the message ends with the tail of its log."""


class Process:
    """A program that runs until it is stopped. `start` may be called again after `stop` or `kill`."""

    def __init__(self, name: str, argv: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = folder / f"{name}.log"
        self._env = {**os.environ, **(env or {})}
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        # Read once: `wait_ready` in one thread may meet `stop` in another.
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def start(self) -> None:
        """Start it; its output is appended to the log."""
        if self.pid is not None:
            raise RuntimeError(f"{self.name} is already running as process {self.pid}")
        with self.log.open("ab") as log:
            # A session of its own: a Ctrl-C in the terminal is for this process, which then stops the others in order.
            self._child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )

    def stop(self, grace_seconds: float = 10) -> None:
        """SIGTERM to the process group, SIGKILL after the grace time."""
        self._signal(signal.SIGTERM)
        try:
            self._wait_for_exit(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL at once, as a crash would end it."""
        self._signal(signal.SIGKILL)
        self._wait_for_exit(10)

    def tail(self, lines: int = 40) -> str:
        """The last lines of the log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, probe: Callable[[], bool], timeout_seconds: float = 60) -> None:
        """Poll `probe`; raises StartError when the process ends or the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while not probe():
            if self.pid is None:
                raise ProcessStartError(f"{self.name} exited during startup. Last lines of {self.log}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessStartError(
                    f"{self.name} is not ready after {timeout_seconds} s. Last lines of {self.log}:\n{self.tail()}"
                )
            time.sleep(0.1)

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def _wait_for_exit(self, timeout_seconds: float) -> None:
        if self._child is not None:
            self._child.wait(timeout_seconds)
            self._child = None


def is_answering(url: str, ca_file: Path | None = None, token: str | None = None) -> bool:
    """Whether a GET is answered with 200."""
    context = ssl.create_default_context(cafile=ca_file) if url.startswith("https") else None
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as response:
            return bool(response.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False
