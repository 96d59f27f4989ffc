"""The rim of the binding: pynvml for one library, and calls on one device that cannot raise.

Everything untyped stays in this module: what leaves it went through a converter.
"""

import ctypes
import importlib
from collections.abc import Callable
from functools import cache
from types import CellType, FunctionType, ModuleType
from typing import Any, TypeAlias, TypeVar

from purser.agent.nvml.driver import DriverError
from purser.agent.nvml.failures import CALL_FAILURES, DISTINGUISHED_ERRORS, FailureMeaning, is_fault
from purser.core.health.signs import DeviceFault, FaultKind

T = TypeVar("T")

Nvml: TypeAlias = Any
"""A pynvml module, or whatever has its functions, its error class and its constants."""


def load_nvml(library: str) -> Nvml:
    """pynvml bound to this library, which stays mapped: there is no way to know that no thread runs in it any more.

    pynvml keeps its library in a module global, and the lab holds several drivers in one process. So each gets the
    module's functions with globals of their own; classes and constants are the same for all.

    Raises:
        DriverError: the library cannot be loaded.
    """
    try:
        handle = ctypes.CDLL(library)
    except OSError as error:
        why = str(error).removeprefix(f"{library}: ")  # which whoever asks names as well
        raise DriverError(f"cannot be loaded: {why}") from error
    pynvml, named = _pynvml()
    bound: Nvml = ModuleType(pynvml.__name__)

    def check(code: int) -> int:
        """What pynvml has no name for is named by this library; the class of errors would keep the first one's name."""
        if code != pynvml.NVML_SUCCESS and code not in named:
            pynvml.NVMLError._errcode_to_string[code] = bound.nvmlErrorString(code)
        return int(pynvml._nvmlCheckReturn(code))

    there, here = pynvml.__dict__, bound.__dict__
    here.update(there, nvmlLib=handle, _nvmlLib_refcount=0, _nvmlGetFunctionPointer_cache={})
    here.update(
        {name: _rebind_globals(each, there, here) for name, each in there.items() if isinstance(each, FunctionType)}
    )
    here["_nvmlCheckReturn"] = check
    return bound


@cache
def _pynvml() -> tuple[Nvml, frozenset[int]]:
    """The module, and the codes of errors that it has a name for."""
    try:
        pynvml: Nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise DriverError("the Python package nvidia-ml-py is not installed") from error
    return pynvml, frozenset(pynvml.NVMLError._errcode_to_string)


def _rebind_globals(function: FunctionType, from_: dict[str, Any], to: dict[str, Any]) -> FunctionType:
    """A function of one module as one of another, with those that it wraps; any other as it is."""
    if function.__globals__ is not from_:
        return function
    held = (cell.cell_contents for cell in function.__closure__ or ())
    cells = (CellType(_rebind_globals(each, from_, to) if isinstance(each, FunctionType) else each) for each in held)
    return FunctionType(function.__code__, to, function.__name__, function.__defaults__, tuple(cells))


def as_is(value: Any) -> Any:
    """The converter for handles, which stay opaque."""
    return value


class DeviceCalls:
    """Calls on one device: what fails becomes None, and the first failure that matters becomes the device's fault."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self.fault: DeviceFault | None = None

    @property
    def is_lost(self) -> bool:
        """Whether a call found the device lost: no other call on it is made."""
        return self.fault is not None and self.fault.kind is FaultKind.LOST

    def ask(self, convert: Callable[[Any], T], call: str, *arguments: Any) -> T | None:
        """The answer to a call; None where it fails. `CALL_FAILURES` says whether that is the device's fault."""
        return self._call(convert, call, arguments, CALL_FAILURES[call].meaning)

    def ask_mig_device(self, convert: Callable[[Any], T], call: str, *arguments: Any) -> T | None:
        """The same of a MIG device, which may be gone by now: all of it is a property of the GPU."""
        return self._call(convert, call, arguments, FailureMeaning.PROPERTY)

    def _call(
        self, convert: Callable[[Any], T], call: str, arguments: tuple[Any, ...], meaning: FailureMeaning
    ) -> T | None:
        # One lost GPU is asked once: later calls on it would only repeat the error, some of them slowly.
        if self.is_lost:
            return None
        function = getattr(self._nvml, call, None)
        if function is None:  # a pynvml that is older than the function
            return None
        try:
            return convert(function(*arguments))
        except self._nvml.NVMLError as error:
            if self.fault is None and is_fault(meaning, _error_name(self._nvml, error)):
                self.fault = fault_of(self._nvml, call, error)
        except Exception as error:  # a failing GPU has been seen to answer with rubbish
            if self.fault is None and is_fault(meaning, ""):
                self.fault = DeviceFault(FaultKind.UNKNOWN, call, f"unreadable answer: {error}")
        return None


def _error_name(nvml: Nvml, error: Any) -> str:
    """Of those that `is_fault` tells apart: NVML's constant; empty: another."""
    return next((name for name in DISTINGUISHED_ERRORS if getattr(nvml, name, None) == error.value), "")


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
