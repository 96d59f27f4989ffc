"""A number for which nodes fit a pod and how each is scored: another one where a single bit of a score is.

It is a sum over the nodes, so that it depends neither on their order nor on where they stand in arrays.
"""

import numpy as np
import numpy.typing as npt

_KEY_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def node_keys(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Numbers that are unlike for nodes with numbers that are alike."""
    return (numbers.astype(np.uint64) + np.uint64(1)) * _KEY_FACTOR


def digest(keys: npt.NDArray[np.uint64], scores: npt.NDArray[np.float64]) -> int:
    """Of nodes by the keys of their numbers in the log, and their scores."""
    return int(_mix_bits(keys ^ scores.view(np.uint64)).sum(dtype=np.uint64))


def _mix_bits(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finalizer: numbers that differ in one bit become unlike in all."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
