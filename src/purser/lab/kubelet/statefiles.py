"""The files in which kubelet's managers survive a restart, in kubelet's root folder and its exact formats.

What a kubelet does about a file that it cannot use differs: a bad checkpoint of the device manager is logged and
ignored, with a bad state of the CPU or memory manager, or one of another policy, kubelet does not start.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from purser.core.kubelet import cpumanager, devicemanager, memorymanager
from purser.core.kubelet.config import MemoryPolicy
from purser.core.kubelet.cpumanager import checkpoint as cpu_file
from purser.core.kubelet.devicemanager import checkpoint as device_file
from purser.core.kubelet.errors import CheckpointError, KubeletStartError
from purser.core.kubelet.memorymanager import checkpoint as memory_file
from purser.core.kubelet.state import CpuState, DeviceManagerState, KubeletNode, KubeletState, MemoryState
from purser.core.kubelet.topologymanager import policy_for
from purser.core.kubelet.versions import behaviour

DEVICE_PLUGIN_FOLDER = "device-plugins"
_CONTINUE_MESSAGE = "Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date"

State = TypeVar("State")

log = structlog.get_logger("purser.lab.kubelet")


class StateFiles:
    """The state files of one node. ``folder`` is kubelet's root (``/var/lib/kubelet`` on a real node)."""

    def __init__(self, folder: Path, node: KubeletNode) -> None:
        self._node = node
        self._devices = folder / DEVICE_PLUGIN_FOLDER / device_file.FILE_NAME
        self._cpus = folder / cpu_file.FILE_NAME
        self._memory = folder / memory_file.FILE_NAME
        self._saved: KubeletState | None = None

    def has_previous_kubelet(self) -> bool:
        """Whether a kubelet was here before, checkpoint or not. The real one takes any file in the folder for a
        checkpoint when it asks whether there is one, and of every kubelet at least the socket stays behind."""
        return self._devices.parent.exists()

    def load(self, now_s: float) -> KubeletState:
        """The state to start with.

        Raises `KubeletStartError` where kubelet would not start; it says what to do about it.
        """
        check_start(self._node)
        return KubeletState(devices=self._load_devices(now_s), cpus=self._load_cpus(), memory=self._load_memory())

    def save_devices(self, devices: DeviceManagerState) -> None:
        """Write the checkpoint of the device manager, whole or not at all. When is the caller's concern."""
        _write(self._devices, device_file.encode(devices.held, devicemanager.registered(devices)))

    def save(self, state: KubeletState) -> None:
        """Write what changed of CPUs and memory since the last time, each file whole or not at all."""
        before, self._saved = self._saved, state
        config = self._node.config
        switches = behaviour(config.parsed_version)
        with_data = switches.adds_data_to_state_files
        if before is None or state.cpus is not before.cpus:
            _write(self._cpus, cpu_file.encode(state.cpus, with_data=with_data))
        if switches.has_memory_manager and (before is None or state.memory is not before.memory):
            memory = state.memory or MemoryState({})
            _write(self._memory, memory_file.encode(config.memory_policy.value, memory, with_data=with_data))

    def _load_devices(self, now_s: float) -> DeviceManagerState:
        try:
            found = device_file.decode(self._devices.read_bytes())
        except FileNotFoundError:
            return DeviceManagerState()
        except CheckpointError as error:
            log.error(_CONTINUE_MESSAGE, file=str(self._devices), error=str(error))
            return DeviceManagerState()
        return devicemanager.restore(found.held, found.registered, now_s)

    def _load_cpus(self) -> CpuState | None:
        saved = _load(self._cpus, "CPU", lambda text: cpu_file.decode(text, self._node.config.cpu_policy.value))
        return _start_manager(self._cpus, lambda: cpumanager.start(self._node, saved))

    def _load_memory(self) -> MemoryState | None:
        policy = self._node.config.memory_policy
        saved = _load(self._memory, "memory", lambda text: _decode_memory(text, policy.value))
        if policy is MemoryPolicy.NONE:
            return None
        return _start_manager(self._memory, lambda: memorymanager.start(self._node, saved))


def check_start(node: KubeletNode) -> None:
    """Whether a kubelet with an empty folder would start. Raises `KubeletStartError` with kubelet's message."""
    policy_for(node.config, node.machine)
    cpumanager.start(node)
    if node.config.memory_policy is MemoryPolicy.STATIC:
        memorymanager.start(node)


def _decode_memory(text: str, policy: str) -> MemoryState:
    saved_policy, state = memory_file.decode(text)
    if saved_policy != policy:
        raise CheckpointError(f'configured policy "{policy}" differs from state checkpoint policy "{saved_policy}"')
    return state


def _load(path: Path, manager: str, decode: Callable[[str], State]) -> State | None:
    """What a manager saved; None where there is no file. Raises `KubeletStartError`."""
    try:
        return decode(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        raise KubeletStartError(
            f"could not restore state from checkpoint: {error}, please drain this node and delete the {manager} "
            f'manager checkpoint file "{path}" before restarting Kubelet'
        ) from error


def _start_manager(path: Path, start: Callable[[], State]) -> State:
    try:
        return start()
    except KubeletStartError as error:
        raise KubeletStartError(f'{error}: please drain this node and remove the policy state file "{path}"') from error


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
