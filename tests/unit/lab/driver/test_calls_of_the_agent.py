"""The simulated driver answers every call of NVML that the agent makes."""

import ctypes
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

import purser.agent
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.compile import find_compiler
from purser.lab.driver.python_nvml import PythonNvml

pytestmark = pytest.mark.processes

SYMBOL = re.compile(r'_nvmlGetFunctionPointer\("(\w+)"\)')


def calls_of_the_agent() -> set[str]:
    sources = Path(inspect.getfile(purser.agent)).parent.rglob("*.py")
    named = {name for path in sources for name in re.findall(r"\bnvml[A-Z]\w+", path.read_text())}
    return {name for name in named if inspect.isfunction(getattr(pynvml, name, None))}


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler on this machine")
def test_every_call_of_the_agent_is_simulated(create: Callable[..., SimulatedDriver]) -> None:
    calls = calls_of_the_agent()
    assert len(calls) > 40
    node = create(kind=DriverKind.LIBRARY)
    library, stand_in = ctypes.CDLL(str(node.library)), PythonNvml(node.folder / "node.json")
    symbols = {symbol for name in calls for symbol in SYMBOL.findall(inspect.getsource(getattr(pynvml, name)))}
    assert {symbol for symbol in symbols if not hasattr(library, symbol)} == set()
    # Errors that the stand-in raises have their names. Some calls it has by their version.
    missing = {name for name in calls if not hasattr(stand_in, name) and not hasattr(stand_in, f"{name}_v2")}
    assert missing == {"nvmlErrorString"}
