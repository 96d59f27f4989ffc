"""A hollow node's GPUs as a MIG worker sees them; the worker's own code does the rest."""

from collections.abc import Mapping

import msgspec

from purser.agent.mig.hardware import HardwareError, Layout, MigGpu, OfferedProfile


class HollowGpus:
    """GPUs that remember their layout while the fleet lives. Every method is as `MigHardware` says."""

    def __init__(self, count: int, device: str) -> None:
        """``device``: their PCI device id, four hexadecimal digits."""
        self.is_refusing = False
        """Whether every change fails, as on a GPU in use."""
        self._gpus = {index: MigGpu(index=index, device_id=f"0x{device.upper()}10DE") for index in range(count)}

    def gpus(self) -> tuple[MigGpu, ...]:
        """Every GPU."""
        return tuple(self._gpus.values())

    def offers(self, index: int) -> Mapping[str, OfferedProfile]:
        """Nothing is known of it: a hollow GPU takes every profile."""
        return {}

    def set_mode(self, index: int, enabled: bool) -> None:
        """Switch MIG mode."""
        self._change(index, Layout(enabled))

    def set_devices(self, index: int, profiles: tuple[str, ...]) -> None:
        """Replace all MIG devices."""
        self._change(index, Layout(True, tuple(sorted(profiles))))

    def close(self) -> None:
        """Nothing to let go of."""

    def _change(self, index: int, layout: Layout) -> None:
        if self.is_refusing:
            raise HardwareError(f"GPU {index}: in use by another client")
        self._gpus[index] = msgspec.structs.replace(self._gpus[index], layout=layout)
