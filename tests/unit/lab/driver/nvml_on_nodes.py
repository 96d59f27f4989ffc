"""pynvml's functions on simulated nodes, and what they give as plain values."""

import ctypes
from collections.abc import Callable
from typing import Any

from purser.agent.nvml.calls import load_nvml
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.python_nvml import PythonNvml

OpenNvml = Callable[[SimulatedDriver, DriverKind], Any]


def opened_nvml(node: SimulatedDriver, kind: DriverKind) -> Any:
    """Initialised."""
    opened = PythonNvml(node.folder / "node.json") if kind is DriverKind.PYTHON else load_nvml(str(node.library))
    opened.nvmlInit()
    return opened


def plain(value: Any) -> Any:
    """Structs as their fields, without handles."""
    if isinstance(value, ctypes.Structure):
        kept = [name for name, kind, *_ in value._fields_ if not hasattr(kind, "contents")]
        found = {name: getattr(value, name) for name in kept}
        return {
            name: [plain(part) for part in each] if isinstance(each, ctypes.Array) else plain(each)
            for name, each in found.items()
        }
    return value.value if isinstance(value, ctypes._SimpleCData) else value


def told(nvml: Any, call: str, *arguments: object) -> Any:
    """What a call gives, or the error's number."""
    try:
        return plain(getattr(nvml, call)(*arguments))
    except nvml.NVMLError as error:
        return f"error {error.value}"
