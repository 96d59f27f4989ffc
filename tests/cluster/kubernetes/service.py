"""A program that is started again where it ends by itself, as systemd and kubelet do it on a real node."""

import threading
from collections.abc import Sequence
from pathlib import Path

from purser.lab.controlplane.process import Process

PAUSE_S = 1.0
"""Long enough for `wait_ready` to see a program that cannot start."""

ended: list[str] = []
"""What ended by itself in this process's clusters, and with which status."""


class Service(Process):
    """A `Process` that comes back.

    kubelet before 1.24 can panic (kubernetes#103838: "assignment to entry in nil map" in devicemanager's
    removeContainerAllocatedResources) where it admits a pod while it allocates again for one that was deleted before
    its containers started. A real node restarts it then, and is not lost for all tests that follow.
    """

    def __init__(self, name: str, argv: Sequence[str], folder: Path) -> None:
        super().__init__(name, argv, folder)
        self._stopped = threading.Event()
        self._changing = threading.Lock()

    def start(self) -> None:
        """Start it, and keep it running until `stop` or `kill`."""
        self._let_go()
        super().start()
        self._stopped = threading.Event()
        threading.Thread(target=self._keep, args=(self._stopped,), daemon=True).start()

    def stop(self, grace_seconds: float = 10) -> None:
        """As `Process.stop`, for good."""
        self._let_go()
        super().stop(grace_seconds)

    def kill(self) -> None:
        """As `Process.kill`, for good."""
        self._let_go()
        super().kill()

    def _keep(self, stopped: threading.Event) -> None:
        while child := self._child:
            status = child.wait()
            if stopped.wait(PAUSE_S):
                return
            ended.append(f"{self.name} with status {status}")
            with self._changing:
                if stopped.is_set():
                    return
                super().start()

    def _let_go(self) -> None:
        with self._changing:
            self._stopped.set()
