"""The file with what of GPUs' health outlives the agent (`purser.core.health.memory`)."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from purser.agent.host.files import read_head, replace_file
from purser.agent.settings import AgentSettings
from purser.core.decoding import JsonReader, UnreadableError
from purser.core.health.machine import GpuHealth
from purser.core.health.memory import RememberedHealth, remembered_xids, restore_health

log = structlog.get_logger("purser.agent")

BOOT_ID = Path("proc/sys/kernel/random/boot_id")
"""Below the host's root."""

MAX_HEALTH_FILE_BYTES = 64 * 1024
"""Far more than the sentences of a node's GPUs."""

health_file = JsonReader(RememberedHealth, "the GPU health file", max_bytes=MAX_HEALTH_FILE_BYTES)


class HealthMemory:
    """Of one node. Without the boot's id nothing is remembered, because a reboot could not be detected."""

    def __init__(self, path: Path, boot_id: str) -> None:
        """Reads the file; one that is not usable is reported in the log, and is as none."""
        self._path = path
        self._boot_id = boot_id
        self._written = RememberedHealth(boot_id)
        self._awaited: dict[str, GpuHealth] = {}
        """Of GPUs that the driver has not listed yet."""
        if self._boot_id:
            self._read()

    @classmethod
    def of(cls, settings: AgentSettings) -> "HealthMemory":
        """That of an agent's node."""
        return cls(settings.health_file, boot_id(settings))

    def recall(self, uuid: str) -> GpuHealth:
        """What a GPU starts with when it is seen for the first time; healthy where nothing is known."""
        return self._awaited.pop(uuid, GpuHealth())

    def forget(self) -> None:
        """GPUs that have not been seen yet are to start as healthy."""
        self._awaited.clear()

    def keep(self, gpus: Mapping[str, GpuHealth]) -> None:
        """Write what is to be known of these GPUs by the next agent, if that is not what was written last."""
        found = RememberedHealth(self._boot_id, remembered_xids({**self._awaited, **gpus}))
        if not self._boot_id or found == self._written:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, msgspec.json.encode(found))
        except OSError as error:
            log.warning("Cannot store GPU health", path=str(self._path), error=str(error))
            return
        self._written = found

    def _read(self) -> None:
        try:
            found = health_file.read(read_head(self._path, MAX_HEALTH_FILE_BYTES + 1))
        except FileNotFoundError:
            return
        except (OSError, UnreadableError) as error:
            log.warning("The stored GPU health cannot be used", path=str(self._path), error=str(error))
            return
        if found.boot_id == self._boot_id:
            self._written, self._awaited = found, restore_health(found.xids)


def boot_id(settings: AgentSettings) -> str:
    """Of the node's kernel; empty: it cannot be read."""
    try:
        return read_head(settings.host_root / BOOT_ID, 64).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""
