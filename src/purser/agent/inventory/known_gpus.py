"""The file with the GPUs that the driver listed last.

A GPU that is lost has no identity any more: the driver counts it, and answers nothing about it. An agent that starts
then would leave it out, and the pods that hold it would hold nothing. Within one boot of the node it is the GPU that
had its index, as long as the driver counts as many and all others have the indexes that they had.
"""

from pathlib import Path

import msgspec
import structlog

from purser.agent.host.files import read_head, replace_file
from purser.agent.nvml.driver import Gpu
from purser.core.decoding import JsonReader, UnreadableError

log = structlog.get_logger("purser.agent")

MAX_KNOWN_GPUS_BYTES = 4 << 20
"""A node of 64 GPUs, each with its links to all others, has some 300 KiB."""


class ListedGpus(msgspec.Struct, frozen=True):
    """Of one node."""

    boot_id: str
    gpus: tuple[Gpu, ...] = ()


known_gpus_file = JsonReader(ListedGpus, "the file of known GPUs", max_bytes=MAX_KNOWN_GPUS_BYTES)


class KnownGpus:
    """Of one node. Without the boot's id nothing is known, because a reboot could not be detected."""

    def __init__(self, path: Path, boot_id: str) -> None:
        """Reads the file; one that is not usable is reported in the log, and is as none."""
        self._path, self._boot_id = path, boot_id
        self._written = ListedGpus(boot_id)
        if boot_id:
            self._read()

    def identify(self, listed: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """What the driver lists, with the identity and facts of GPUs that cannot be read any more."""
        by_index = {gpu.index: gpu for gpu in self._written.gpus}
        is_same = len(listed) == len(by_index) and all(
            gpu.index in by_index and gpu.uuid in (None, by_index[gpu.index].uuid) for gpu in listed
        )
        if not is_same:
            return listed
        return tuple(
            # The driver's fault, and without what only its handle could do.
            gpu if gpu.uuid else msgspec.structs.replace(by_index[gpu.index], fault=gpu.fault, watches_xids=False)
            for gpu in listed
        )

    def store(self, gpus: tuple[Gpu, ...]) -> None:
        """All that the driver lists, as it is from now on. None at all are of a driver that is not there (yet)."""
        kept = ListedGpus(self._boot_id, tuple(msgspec.structs.replace(gpu, fault=None) for gpu in gpus))
        if not self._boot_id or not gpus or kept == self._written:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, msgspec.json.encode(kept))
        except OSError as error:
            log.warning("Cannot store the list of GPUs", path=str(self._path), error=str(error))
            return
        self._written = kept

    def _read(self) -> None:
        try:
            found = known_gpus_file.read(read_head(self._path, MAX_KNOWN_GPUS_BYTES + 1))
        except FileNotFoundError:
            return
        except (OSError, UnreadableError) as error:
            log.warning("The stored list of GPUs cannot be used", path=str(self._path), error=str(error))
            return
        if found.boot_id == self._boot_id:
            self._written = found
