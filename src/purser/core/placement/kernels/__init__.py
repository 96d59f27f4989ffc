"""The inner loops of placement, twice: in numpy (`plain`) and compiled by numba (`fast`, with the extra of that name).

Both answer the same, to the last bit. Which one is used is settled when this package is first imported: the compiled
one where numba is installed, unless the environment variable ``PURSER_KERNELS`` says ``numpy`` or ``numba``.

Not here: what a policy is after. Kernels know arrays and numbers.
"""

import importlib.util
import os
from types import ModuleType

from purser.core.placement.kernels import plain

VARIABLE = "PURSER_KERNELS"


def choose(wanted: str, has_numba: bool) -> ModuleType:
    """The module with the kernels. Raises ValueError for a word that is no choice, or for numba where it is not."""
    if wanted not in {"", "numpy", "numba"}:
        raise ValueError(f"{VARIABLE} is {wanted!r}: say numpy or numba, or leave it out")
    if wanted == "numpy" or not (wanted or has_numba):
        return plain
    if not has_numba:
        raise ValueError(f"{VARIABLE} is numba, which is not installed: pip install 'gpu-purser[fast]', or say numpy")
    from purser.core.placement.kernels import fast

    return fast


used = choose(os.environ.get(VARIABLE, ""), importlib.util.find_spec("numba") is not None)
