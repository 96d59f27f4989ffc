"""The state that NVML's functions in Python answer from, and which of their calls hang or fail: below `python_nvml`."""

import ctypes
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pynvml

from purser.lab.driver.state import DriverState, GpuState

POLL_SECONDS = 0.02
"""From one look at the state to the next, while a call waits for it to change."""


class PythonState:
    """One node's driver, as a process that has loaded the library sees it."""

    def __init__(self, truth: Path) -> None:
        self._truth = truth
        self._stamp: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self.starts = 0
        """How many clients have started the library and not shut it down."""
        self._refresh()

    def _refresh(self) -> DriverState:
        with self._lock:
            status = self._truth.stat()
            stamp = (status.st_ino, status.st_mtime_ns)
            if stamp != self._stamp:
                self._state = msgspec.json.decode(self._truth.read_bytes(), type=DriverState)
                self._stamp = stamp
            return self._state

    def started(self) -> DriverState:
        """The state. Raises NVMLError where no client has started the library."""
        state = self.wait()
        if not self.starts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        return state

    def wait(self, does_hang: Callable[[DriverState], bool] = lambda _: False) -> DriverState:
        """The state, once a call that hangs returns: at the latest when the node's folder is removed."""
        while True:
            try:
                state = self._refresh()
            except FileNotFoundError:
                return self._state
            if not state.hangs and not does_hang(state):
                return state
            time.sleep(POLL_SECONDS)

    def gpu(self, handle: ctypes.c_void_p, call: str) -> GpuState:
        """The GPU of a handle, unless this call on it fails, or is none on whole GPUs. Raises NVMLError."""
        return self.at(slot_of(handle), call)

    def at(self, slot: int, call: str) -> GpuState:
        """The GPU at a place, unless this call on it fails. Raises NVMLError."""
        check_argument(0 <= slot < len(self.started().gpus))
        gpu = self.wait(lambda state: any(_names(each, call) for each in state.gpus[slot].hanging)).gpus[slot]
        if gpu.lost or not gpu.present:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        for failure in gpu.failing:
            if _names(failure.call, call):
                raise pynvml.NVMLError(failure.code)
        return gpu


def slot_of(handle: Any) -> int:
    """The place of a whole GPU; others are at none."""
    return (ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1


def now_us() -> int:
    """The wall clock, as NVML stamps samples."""
    return time.time_ns() // 1000


def check_argument(condition: bool) -> None:
    """Raises NVML's error for an invalid argument unless the condition holds."""
    if not condition:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)


def require_supported(condition: bool) -> None:
    """Raises NVML's error for what a GPU does not support unless the condition holds."""
    if not condition:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _names(name: str, call: str) -> bool:
    """A call is named with or without its version."""
    return name in ("*", call) or name.partition("_v")[0] == call.partition("_v")[0]
