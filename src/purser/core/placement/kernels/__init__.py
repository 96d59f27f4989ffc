"""The inner loops of placement, twice: in numpy (`plain`) and compiled by numba (`fast`, with the extra of that name).

Both give the same results, bit for bit. The compiled ones are used where numba is installed, unless `use` is called
before the first decision: commands call it with the environment variable `VARIABLE`. Whether a GPU takes a container is
implemented once, for both and for `purser.core.placement.place` (`purser.core.fleet.rule`).

Not here: the goal of a policy. The loops know arrays and numbers.
"""

import importlib.util
from types import ModuleType

from purser.core.placement.kernels import plain

VARIABLE = "PURSER_KERNELS"
"""Environment variable with the argument of `use`, read by commands, benchmarks and tests."""

used: ModuleType
"""The module with the kernels."""


def use(name: str = "") -> None:
    """Decide with these kernels from now on: ``numpy``, ``numba``, or the best that there are. Raises ValueError for
    another word, and for numba where it is not installed.
    """
    global used
    used = choose(name, importlib.util.find_spec("numba") is not None)


def choose(name: str, has_numba: bool) -> ModuleType:
    """The module with the kernels of that name; see `use`."""
    if name not in {"", "numpy", "numba"}:
        raise ValueError(f"invalid value {name!r} for kernels: must be numpy or numba")
    if name == "numpy" or not (name or has_numba):
        return plain
    if not has_numba:
        raise ValueError("numba is not installed: run pip install numba, or use numpy")
    from purser.core.placement.kernels import fast

    return fast


def name() -> str:
    """Of the kernels that are used, for other processes to use them too."""
    return "numpy" if __getattr__("used") is plain else "numba"


def __getattr__(name: str) -> ModuleType:
    """``used`` before the choice: importing numba takes long, and is avoided where it is not needed."""
    if name != "used":
        raise AttributeError(name)
    if "used" not in globals():
        use()
    return used
