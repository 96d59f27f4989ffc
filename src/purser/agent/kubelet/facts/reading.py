"""kubelet's files, read at one moment. Each part stands alone: what cannot be read is a problem."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from purser.agent.host.files import read_head
from purser.agent.kubelet.facts.configfile import parse_config
from purser.agent.kubelet.facts.machine import read_machine
from purser.agent.settings import AgentSettings
from purser.core.kubelet.config import CpuPolicy, KubeletConfig, MemoryPolicy
from purser.core.kubelet.cpumanager import checkpoint as cpu_file
from purser.core.kubelet.devicemanager import checkpoint as device_file
from purser.core.kubelet.gotext import MAX_STATE_BYTES
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.memorymanager import checkpoint as memory_file
from purser.core.kubelet.report import aligns
from purser.core.kubelet.state import CpuState, MemoryState
from purser.core.kubelet.versions import behaviour

T = TypeVar("T")

Signature = tuple[tuple[int, int, int] | None, ...]
"""Of each file its inode, size and time of change; None where there is none."""


SOCKET = -1
"""The place of kubelet's socket in a signature."""


class KubeletSources(msgspec.Struct, frozen=True):
    """Where things are."""

    config: Path
    devices: Path
    cpus: Path
    memory: Path
    socket: Path
    """Another one when kubelet restarted."""
    sysfs: Path

    def signature(self) -> Signature:
        """What changes when any file does."""
        return tuple(_signature(path) for path in (self.config, self.devices, self.cpus, self.memory, self.socket))


class Found(msgspec.Struct, frozen=True):
    """What was read."""

    config: KubeletConfig | None = None
    """None: nothing else was read."""
    machine: Machine | None = None
    devices: device_file.DeviceManagerCheckpoint | None = None
    cpus: CpuState | None = None
    """As saved: without the reserved CPUs."""
    memory: MemoryState | None = None
    problems: Mapping[str, str] = {}
    """What is wrong, by part: ``config``, ``machine``, ``devices``, ``cpus``, ``memory``."""


def sources_of(settings: AgentSettings) -> KubeletSources:
    """The paths that an agent's settings mean."""
    return KubeletSources(
        config=settings.kubelet_config or settings.kubelet_dir / "config.yaml",
        devices=settings.device_plugin_dir / device_file.FILE_NAME,
        cpus=settings.kubelet_dir / cpu_file.FILE_NAME,
        memory=settings.kubelet_dir / memory_file.FILE_NAME,
        socket=settings.kubelet_socket,
        sysfs=settings.sysfs_root,
    )


def read(sources: KubeletSources, version: str, before: Found | None = None) -> Found:
    """Everything that the configuration makes matter. Never raises.

    ``before``: what was found since kubelet started. Configuration and machine are taken from there: kubelet, too,
    looks at them when it starts, and a file that was edited since is not in force.
    """
    reader = _Reader()
    before = before or Found()
    config = before.config or reader.part(
        "config", sources.config, lambda: parse_config(_content(sources.config), version)
    )
    if config is None or not aligns(config):
        return Found(config, problems=reader.problems)
    has_cpus = config.cpu_policy is CpuPolicy.STATIC
    has_memory = config.memory_policy is MemoryPolicy.STATIC and behaviour(config.parsed_version).has_memory_manager
    return Found(
        config=config,
        machine=before.machine or reader.part("machine", sources.sysfs, lambda: read_machine(sources.sysfs)),
        devices=reader.part("devices", sources.devices, lambda: device_file.decode(_content(sources.devices))),
        cpus=reader.part("cpus", sources.cpus, lambda: _cpus(sources.cpus, config)) if has_cpus else None,
        memory=reader.part("memory", sources.memory, lambda: _memory(sources.memory, config)) if has_memory else None,
        problems=reader.problems,
    )


class _Reader:
    """Reads one part after the other and keeps what is wrong."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def part(self, name: str, path: Path, read_part: Callable[[], T]) -> T | None:
        """What is read, None when that fails."""
        try:
            return read_part()
        except OSError as error:
            self.problems[name] = f"cannot read {path}: {error.strerror or error}"
        except (ValueError, RecursionError) as error:
            self.problems[name] = f"{path}: {error}"
        return None


def _content(path: Path) -> bytes:
    content = read_head(path, MAX_STATE_BYTES + 1)
    if len(content) > MAX_STATE_BYTES:
        raise ValueError(f"the file is larger than {MAX_STATE_BYTES} bytes")
    return content


def _cpus(path: Path, config: KubeletConfig) -> CpuState:
    return cpu_file.decode(_content(path), config.cpu_policy.value)


def _memory(path: Path, config: KubeletConfig) -> MemoryState:
    policy, state = memory_file.decode(_content(path))
    if policy != config.memory_policy.value:
        configured = config.memory_policy.value
        raise ValueError(f"it was written under policy {policy!r}, but kubelet's configuration says {configured!r}")
    return state


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
