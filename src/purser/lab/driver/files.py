"""The files of a simulated node that change: who writes one has the lock, and replaces it in one step."""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from purser.lab.driver.mig import MIG_FILE, MigState, parse_mig, write_mig
from purser.lab.driver.state import DriverState
from purser.lab.driver.statefile import render

STATE_FILE = "node.state"
TRUTH_FILE = "node.json"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the node's lock: no other thread or process, the C library included, changes the node's files meanwhile.

    Waits for it without limit. Raises OSError where the folder is gone.
    """
    with (folder / "node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def load(folder: Path) -> DriverState:
    """The state of the node's driver, from ``node.json``. Raises OSError where the folder is no simulated node's."""
    return msgspec.json.decode((folder / TRUTH_FILE).read_bytes(), type=DriverState)


def save(folder: Path, state: DriverState) -> None:
    """Write the state of the node's driver: ``node.json``, and ``node.state`` for the C library. Who changes what was
    there holds the lock. Raises OSError."""
    write_atomically(folder / TRUTH_FILE, msgspec.json.encode(state))
    write_atomically(folder / STATE_FILE, render(state).encode())


def load_mig(folder: Path, gpus: int) -> tuple[MigState, ...]:
    """MIG on each of the node's first ``gpus`` GPUs, from ``node.mig``; all have it off where there is no such file."""
    try:
        return parse_mig((folder / MIG_FILE).read_text(encoding="ascii"), gpus)
    except FileNotFoundError:
        return (MigState(),) * gpus


def save_mig(folder: Path, states: Sequence[MigState]) -> None:
    """Write ``node.mig``: MIG on each of the node's GPUs, in the order of the profile. Who changes what was there holds
    the lock. Raises OSError."""
    write_atomically(folder / MIG_FILE, write_mig(states).encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: others may read it, or run in it. Raises OSError.

    Its modification time is new even within one tick of the file system's clock.
    """
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(content)
    now = time.time_ns()
    os.utime(temporary, ns=(now, now))
    temporary.replace(path)
