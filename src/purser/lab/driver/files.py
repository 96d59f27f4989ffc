"""The files of a simulated node that change: who writes one has the lock, and replaces it in one step."""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from purser.lab.driver.mig import MIG_FILE, MigState, read_mig, write_mig
from purser.lab.driver.state import DriverState
from purser.lab.driver.statefile import render

STATE_FILE = "node.state"
TRUTH_FILE = "node.json"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else changes the node meanwhile."""
    with (folder / "node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def load(folder: Path) -> DriverState:
    """What the driver reports."""
    return msgspec.json.decode((folder / TRUTH_FILE).read_bytes(), type=DriverState)


def save(folder: Path, state: DriverState) -> None:
    """The same, and what the C library reads of it."""
    write_atomically(folder / TRUTH_FILE, msgspec.json.encode(state))
    write_atomically(folder / STATE_FILE, render(state).encode())


def load_mig(folder: Path, gpus: int) -> tuple[MigState, ...]:
    """MIG on each of so many GPUs."""
    try:
        return read_mig((folder / MIG_FILE).read_text(encoding="ascii"), gpus)
    except FileNotFoundError:
        return (MigState(),) * gpus


def save_mig(folder: Path, states: Sequence[MigState]) -> None:
    """The same."""
    write_atomically(folder / MIG_FILE, write_mig(states).encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: others may read it, or run in it.

    Its modification time is new even within one tick of the file system's clock.
    """
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(content)
    now = time.time_ns()
    os.utime(temporary, ns=(now, now))
    temporary.replace(path)
