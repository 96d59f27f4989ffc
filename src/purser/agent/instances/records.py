"""Which GPU instances are the agent's own: a small file per GPU, and the lock under which a GPU is cut.

An instance is in its file from before its creation until after its destruction, so that an agent that is killed
meanwhile leaves none without an owner. A recorded instance that is not on the GPU was never created, or was destroyed
by others. MIG cannot distinguish an instance from a later one in the same place with the same profile: neither can
this.
"""

import fcntl
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog

from purser.agent.host.files import read_head, replace_file
from purser.core.decoding import JsonReader, UnreadableError
from purser.core.mig import MigPlacement

log = structlog.get_logger("purser.agent")

FOLDER = "mig"
"""In the agent's state folder."""

VERSION = 1
MAX_RECORD_BYTES = 64 * 1024
"""Hundreds of instances; a GPU has 8 at most."""


class OwnedInstance(msgspec.Struct, frozen=True):
    """One of the agent's own."""

    placement: MigPlacement
    device: str = ""
    """uuid of its MIG device, once it was made."""


class GpuRecord(msgspec.Struct, frozen=True):
    """The file."""

    gpu: str
    instances: tuple[OwnedInstance, ...] = ()
    version: int = VERSION

    @property
    def devices(self) -> dict[MigPlacement, str]:
        """What it says, by placement."""
        return {each.placement: each.device for each in self.instances}


record_file = JsonReader(GpuRecord, "the record of GPU instances", max_bytes=MAX_RECORD_BYTES)
"""Reads such a file."""


def record_path(state_dir: Path, gpu: str) -> Path:
    """Of the file of one GPU, by its uuid."""
    return state_dir / FOLDER / f"{gpu}.json"


def read_record(path: Path, gpu: str) -> dict[MigPlacement, str] | None:
    """The agent's own instances, with their devices; None where there is no file, or one that cannot be used."""
    try:
        record = record_file.read(read_head(path, MAX_RECORD_BYTES + 1))
    except FileNotFoundError:
        return None
    except (OSError, UnreadableError) as error:
        log.error("The record of GPU instances cannot be used", path=str(path), error=str(error))
        return None
    if record.version != VERSION or record.gpu != gpu:
        log.error(
            "Ignoring a record of GPU instances with another format version or of another GPU",
            path=str(path),
            gpu=record.gpu,
        )
        return None
    return record.devices


def write_record(path: Path, gpu: str, devices: dict[MigPlacement, str]) -> None:
    """Replace the file. Raises OSError."""
    owned = tuple(OwnedInstance(placement, device) for placement, device in sorted(devices.items()))
    replace_file(path, msgspec.json.encode(GpuRecord(gpu, owned)))


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """An exclusive lock of this GPU against other agents on the node. Waits for its holder. Raises OSError.

    Where the file system has no locks, this goes on without one, as the agent does without its node's lock
    (`purser.agent.host.node_lock`): within the agent, calls for one GPU wait for one another anyway.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:  # ENOLCK, EOPNOTSUPP: NFS without its lock daemon, some FUSE file systems
            _log_missing_locks(path.parent, str(error))
        yield
    finally:
        os.close(lock)


@functools.cache
def _log_missing_locks(folder: Path, error: str) -> None:
    """Once: GPUs are looked at every few seconds."""
    log.warning(
        "The file system that holds the records of GPU instances does not support locks, so a second agent could "
        "partition the same GPU. Move the agent's state folder to a local file system",
        path=str(folder),
        error=error,
    )
