"""How scarce each GPU model is: what pods that may use no other want of it, beside how much of it there is."""

from typing import Any

import numpy as np

from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.shape import PodShape

_PRICE_MILLI = 800
"""The price of a GPU of a fully requested model, for a pod that could use a model that no pod insists on.
Measured on gpuspec33 (allocation at 100 and 130 % arrived): 0: 87.7/96.25, 400: 93.7/96.1, 800: 95.0/95.9,
2000: 95.1/95.4; without constraints in the mix it changes nothing."""


def scarcity(demand: list[tuple[PodShape, float]], models: tuple[str, ...], gpus: Floats) -> Floats:
    """By model: the GPUs wanted by pods that say which models they may use, over those there are.

    ``demand`` is in GPUs, of a mix that fills the fleet. What may use several models asks for each in proportion.
    """
    wanted = np.zeros(len(models))
    for shape, amount in demand:
        if shape.models:
            there = gpus * allowed(shape, models)
            wanted += amount * there / max(float(there.sum()), 1.0)
    return wanted / np.maximum(gpus, 1.0)


def allowed(shape: PodShape, models: tuple[str, ...]) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """By model, whether the pod may run there."""
    return np.array([shape.takes_model(model) for model in models], np.bool_)


def penalties(shape: PodShape, models: tuple[str, ...], gpus: Floats, scarce: Floats) -> Floats:
    """By model and, last, for nodes without any: what the pod pays there, in thousandths of a GPU: nothing on the least
    scarce model that it may use and that is there.
    """
    penalties_by_model = np.zeros(len(models) + 1)
    choice = allowed(shape, models) & (gpus > 0)
    if shape.gpu_count and choice.any():
        penalties_by_model[:-1] = _PRICE_MILLI * np.maximum(scarce - scarce[choice].min(), 0.0)
    return penalties_by_model
