"""Binpack and spread: the fullest or the emptiest, by HAMi's measure: slots, compute and memory, evenly."""

import numpy as np

from purser.core.fleet.arrays import FleetArrays
from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies.by_key import ByKey
from purser.core.placement.shape import View

_RESOURCES = (("slots", "slots_free"), ("cores_percent", "cores_free_percent"), ("memory_mib", "memory_free_mib"))


class BinpackNodes:
    """The fullest node, before the pod is on it."""

    steady = True
    epoch = 0

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`."""
        shares = [_share(*(array.sum(axis=0) for array in _amounts(view, *names))) for names in _RESOURCES]
        return 100 / len(_RESOURCES) * sum(shares[1:], shares[0])


class SpreadNodes:
    """The emptiest node."""

    steady = True
    epoch = 0

    def score(self, view: View) -> Floats:
        """See `ArrayNodePolicy.score`."""
        return 100 - BinpackNodes().score(view)


def fullness(view: View) -> Floats:
    """How full each GPU is, 0 to 3."""
    shares = [_share(*_amounts(view, *names)) for names in _RESOURCES]
    return sum(shares[1:], shares[0])


def _amounts(view: View, total: str, free: str) -> tuple[Floats, Floats]:
    return _rows(view.fleet, total, view), _rows(view.fleet, free, view)


def _rows(fleet: FleetArrays, field: str, view: View) -> Floats:
    found: Floats = getattr(fleet, field)[:, view.rows].astype(np.float64)
    return found


def _share(total: Floats, free: Floats) -> Floats:
    return (total - free) / np.maximum(total, 1)


def _fullest_first(view: View) -> Floats:
    return -fullness(view)


BINPACK_GPUS = ByKey(_fullest_first)
"""The fullest GPUs."""

SPREAD_GPUS = ByKey(fullness)
"""The emptiest GPUs."""
