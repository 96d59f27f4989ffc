"""The files in which kubelet's managers survive a restart, in kubelet's root folder and its exact formats.

What a kubelet does about a file that it cannot use differs: a bad checkpoint of the device manager is logged and
ignored, with a bad state of the CPU or memory manager, or one of another policy, kubelet does not start.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from purser.core.kubelet import cpumanager, devicemanager, memorymanager
from purser.core.kubelet.config import CpuPolicy, MemoryPolicy

try:
    from purser.core.kubelet.cpumanager import checkpoint as cpu_file
except ImportError:
    cpu_file = None
from purser.core.kubelet.devicemanager import checkpoint as device_file
from purser.core.kubelet.errors import CheckpointError, StartError
from purser.core.kubelet.memorymanager import checkpoint as memory_file
from purser.core.kubelet.state import CpuState, DeviceState, MemoryState, Node, NodeState
from purser.core.kubelet.topologymanager import policy_for
from purser.core.kubelet.versions import behaviour

DEVICE_PLUGIN_FOLDER = "device-plugins"
_CONTINUE = "Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date"

State = TypeVar("State")

_log = structlog.get_logger("purser.lab.kubelet")


class StateFiles:
    """The state files of one node. ``folder`` is kubelet's root (``/var/lib/kubelet`` on a real node)."""

    def __init__(self, folder: Path, node: Node) -> None:
        self._node = node
        self._devices = folder / DEVICE_PLUGIN_FOLDER / device_file.FILE_NAME
        self._cpus = folder / "cpu_manager_state"
        self._memory = folder / memory_file.FILE_NAME
        self._saved: NodeState | None = None

    def has_checkpoint(self) -> bool:
        """Whether a kubelet ran here before."""
        return self._devices.exists()

    def load(self, now_s: float) -> NodeState:
        """The state to start with. Raises `StartError` where kubelet would not start; it says what to do about it."""
        policy_for(self._node.config, self._node.machine)
        return NodeState(devices=self._load_devices(now_s), cpus=self._load_cpus(), memory=self._load_memory())

    def save(self, state: NodeState) -> None:
        """Write what changed since the last time, each file whole or not at all."""
        before, self._saved = self._saved, state
        config = self._node.config
        if before is None or not _are_same(before.devices, state.devices):
            _write(self._devices, device_file.encode(state.devices.held, devicemanager.registered(state.devices)))
        if cpu_file and (before is None or state.cpus is not before.cpus):
            _write(self._cpus, cpu_file.encode(config.cpu_policy.value, state.cpus or CpuState(0, 0)))
        has_memory_manager = behaviour(config.parsed_version).has_memory_manager
        if has_memory_manager and (before is None or state.memory is not before.memory):
            _write(self._memory, memory_file.encode(config.memory_policy.value, state.memory or MemoryState({})))

    def _load_devices(self, now_s: float) -> DeviceState:
        try:
            found = device_file.decode(self._devices.read_bytes())
        except FileNotFoundError:
            return DeviceState()
        except CheckpointError as error:
            _log.error(_CONTINUE, file=str(self._devices), error=str(error))
            return DeviceState()
        return devicemanager.restore(found.held, found.registered, now_s)

    def _load_cpus(self) -> CpuState | None:
        policy = self._node.config.cpu_policy
        if cpu_file is None:
            return None
        saved = _load(self._cpus, cpu_file.decode, policy.value, "CPU")
        return cpumanager.start(self._node, saved) if policy is CpuPolicy.STATIC else None

    def _load_memory(self) -> MemoryState | None:
        policy = self._node.config.memory_policy
        saved = _load(self._memory, memory_file.decode, policy.value, "memory")
        return memorymanager.start(self._node, saved) if policy is MemoryPolicy.STATIC else None


def _are_same(one: DeviceState, other: DeviceState) -> bool:
    return one.held is other.held and one.resources is other.resources


def _load(path: Path, decode: Callable[[bytes], tuple[str, State]], policy: str, manager: str) -> State | None:
    """What a manager saved under its policy. Raises `StartError`."""
    try:
        saved_policy, state = decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        problem = str(error)
    else:
        if saved_policy == policy:
            return state
        problem = f'configured policy "{policy}" differs from state checkpoint policy "{saved_policy}"'
    raise StartError(
        f"could not restore state from checkpoint: {problem}, please drain this node and delete the {manager} manager "
        f'checkpoint file "{path}" before restarting Kubelet'
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)
