"""Helm's own program, and a registry for it as a company has one: charts are pushed to it and installed from it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from purser.lab.controlplane.process import Process, is_answering
from purser.lab.ports import free_ports

from .kubernetes import Binaries

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "purser"


class Helm:
    """Finds the checkout's charts under the names that they have there; what it writes is in a folder of its own."""

    def __init__(self, binaries: Binaries, folder: Path) -> None:
        """Raises MissingBinariesError."""
        self.folder = folder
        self._program = binaries.path("helm")
        (folder / "deploy").symlink_to(ROOT / "deploy")

    def __call__(self, *arguments: str) -> str:
        """What it prints; raises RuntimeError with all that it said."""
        # The registry has no certificate, which users' registries have: no page shows this option in its commands.
        speaks_to_registry = arguments[0] == "push" or any(each.startswith("oci://") for each in arguments)
        command = [self._program, *arguments, *(["--plain-http"] if speaks_to_registry else [])]
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"]}
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=400, env=environment)
        if done.returncode != 0:
            raise RuntimeError(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout


@contextmanager
def registry(binaries: Binaries, folder: Path) -> Iterator[str]:
    """The address of an empty registry, for as long as the block runs. Raises MissingBinariesError."""
    [port] = free_ports(1)
    address = f"localhost:{port}"
    process = Process("registry", [binaries.path("registry"), f"--port={port}"], folder)
    process.start()
    try:
        process.wait_ready(lambda: is_answering(f"http://{address}/v2/"))
        yield address
    finally:
        process.stop()
