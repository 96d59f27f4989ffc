"""The rim of the binding: a private copy of pynvml, and calls on one device that cannot raise.

Everything untyped stays in this module: what leaves it went through a converter.
"""

import ctypes
import importlib.util
import itertools
import sys
from collections.abc import Callable
from functools import cache
from importlib.abc import InspectLoader
from types import CodeType, ModuleType
from typing import Any, TypeAlias, TypeVar

from purser.agent.nvml.driver import DriverError
from purser.core.health.signs import DeviceFault, FaultKind

T = TypeVar("T")

Nvml: TypeAlias = Any
"""A pynvml module, or whatever has its functions, its error class and its constants."""

_copies = itertools.count(1)


def load_nvml(library: str) -> Nvml:
    """A private copy of pynvml that is bound to this library.

    pynvml keeps its library handle in a module global, so one copy serves one driver; the lab holds several drivers in
    one process. A copy stays in ``sys.modules`` under its own name, where pynvml looks itself up.

    Raises:
        DriverError: the library cannot be loaded.
    """
    try:
        handle = ctypes.CDLL(library)
    except OSError as error:
        raise DriverError(f"cannot be loaded: {error}") from error
    module = ModuleType(f"{__package__}._pynvml_{next(_copies)}")
    code = _pynvml_code()
    sys.modules[module.__name__] = module
    exec(code, module.__dict__)
    module.__dict__["nvmlLib"] = handle
    return module


@cache
def _pynvml_code() -> CodeType:
    """What makes a copy when it is run: half of a copy's cost is to read this."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None:
        raise DriverError("the Python package nvidia-ml-py is not installed")
    code = spec.loader.get_code("pynvml") if isinstance(spec.loader, InspectLoader) else None
    if code is None:
        raise DriverError(f"{spec.origin} is no Python source")
    return code


def unload_nvml(nvml: Nvml) -> None:
    """Forget a private copy (its library stays mapped: nothing tells when no thread runs in it any more)."""
    sys.modules.pop(getattr(nvml, "__name__", ""), None)


def as_is(value: Any) -> Any:
    """The converter for handles, which stay opaque."""
    return value


class DeviceCalls:
    """Calls on one device: what fails becomes None, and the first failure that matters becomes the device's fault."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self.fault: DeviceFault | None = None

    def need(self, convert: Callable[[Any], T], call: str, *arguments: Any) -> T | None:
        """A call without whose answer the device cannot be used: any failure is the device's fault."""
        return self._call(convert, call, arguments, lambda _: True)

    def ask(self, convert: Callable[[Any], T], call: str, *arguments: Any) -> T | None:
        """A call whose answer a healthy device may lack: only a failure of the device itself is its fault."""
        return self._call(convert, call, arguments, self._is_of_device)

    def _call(
        self, convert: Callable[[Any], T], call: str, arguments: tuple[Any, ...], matters: Callable[[int], bool]
    ) -> T | None:
        # One lost GPU is asked once: later calls on it would only repeat the error, some of them slowly.
        if self.fault is not None and self.fault.kind is FaultKind.LOST:
            return None
        function = getattr(self._nvml, call, None)
        if function is None:  # a pynvml that is older than the function
            return None
        try:
            return convert(function(*arguments))
        except self._nvml.NVMLError as error:
            if self.fault is None and matters(error.value):
                self.fault = fault_of(self._nvml, call, error)
        except Exception as error:  # a failing GPU has been seen to answer with rubbish
            if self.fault is None:
                self.fault = DeviceFault(FaultKind.UNKNOWN, call, f"unreadable answer: {error}")
        return None

    def _is_of_device(self, code: int) -> bool:
        nvml = self._nvml
        return code not in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        )


def fault_of(nvml: Nvml, call: str, error: Any) -> DeviceFault:
    """An NVML error of one device as a fault."""
    kinds = {
        nvml.NVML_ERROR_GPU_IS_LOST: FaultKind.LOST,
        nvml.NVML_ERROR_RESET_REQUIRED: FaultKind.RESET_REQUIRED,
        nvml.NVML_ERROR_NOT_FOUND: FaultKind.GONE,
        nvml.NVML_ERROR_NO_PERMISSION: FaultKind.NO_PERMISSION,
        nvml.NVML_ERROR_NOT_SUPPORTED: FaultKind.NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: FaultKind.NOT_SUPPORTED,
    }
    return DeviceFault(kinds.get(int(error.value), FaultKind.UNKNOWN), call, str(error))
