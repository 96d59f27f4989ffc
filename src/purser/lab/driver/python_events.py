"""NVML's calls for events in Python, which are Xids: a part of `python_nvml`."""

import ctypes
import time
from types import SimpleNamespace

import pynvml

from purser.lab.driver.python_state import POLL_SECONDS, PythonState, slot_of
from purser.lab.driver.state import number_or_none


class _EventSet:
    def __init__(self) -> None:
        self.cursor = 0
        self.since: dict[int, int] = {}


class PythonEvents:
    """The calls on one node's GPUs."""

    def __init__(self, node: PythonState) -> None:
        self._node = node

    def nvmlEventSetCreate(self) -> _EventSet:
        """As in NVML."""
        self._node.started()
        return _EventSet()

    def nvmlEventSetFree(self, event_set: _EventSet) -> None:
        """As in NVML."""
        event_set.since.clear()

    def nvmlDeviceGetSupportedEventTypes(self, handle: ctypes.c_void_p) -> int:
        """As in NVML: Xids are."""
        self._node.gpu(handle, "nvmlDeviceGetSupportedEventTypes")
        return int(pynvml.nvmlEventTypeXidCriticalError)

    def nvmlDeviceRegisterEvents(self, handle: ctypes.c_void_p, _types: int, event_set: _EventSet) -> None:
        """As in NVML: what happened before is not delivered."""
        self._node.gpu(handle, "nvmlDeviceRegisterEvents")
        events = self._node.started().events
        event_set.since.setdefault(slot_of(handle), events[-1].sequence if events else 0)

    def nvmlEventSetWait_v2(self, event_set: _EventSet, timeout_ms: int) -> SimpleNamespace:
        """As in NVML, by looking at the state again and again."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            for event in self._node.started().events:
                if event.sequence <= event_set.cursor:
                    continue
                event_set.cursor = event.sequence
                if event.sequence > event_set.since.get(event.gpu, event.sequence):
                    return SimpleNamespace(
                        device=ctypes.c_void_p(event.gpu + 1),
                        eventType=pynvml.nvmlEventTypeXidCriticalError,
                        eventData=event.xid,
                        gpuInstanceId=number_or_none(event.gpu_instance),
                        computeInstanceId=number_or_none(event.compute_instance),
                    )
            left = deadline - time.monotonic()
            if left <= 0:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
            time.sleep(min(left, POLL_SECONDS))
