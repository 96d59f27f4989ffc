"""How devices are handed out, in HAMi's words, as pods name it in ``nvidia.com/vgpu-mode``."""

from collections.abc import Iterable

from purser.core.model import DeviceMode

MODES = {"hami-core": DeviceMode.SHARED, "mig": DeviceMode.MIG, "mps": DeviceMode.MPS}
"""By word; devices that are handed out whole have none."""

_WORDS = {mode: word for word, mode in MODES.items()}


def modes_text(modes: Iterable[DeviceMode]) -> str:
    """Such as ``hami-core or mig``."""
    return " or ".join(sorted({_WORDS.get(mode, str(mode)) for mode in modes}))
