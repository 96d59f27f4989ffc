"""A hollow node's GPUs as a MIG worker sees them; the worker's own code does the rest."""

import msgspec

from purser.agent.mig.hardware import Card, HardwareError, Layout


class HollowCards:
    """GPUs that remember their layout while the fleet lives. Every method is as `MigHardware` says."""

    def __init__(self, count: int, device: str) -> None:
        """``device``: their PCI device id, four hexadecimal digits."""
        self.is_refusing = False
        """Whether every change fails, as on a GPU that somebody still uses."""
        self._cards = {index: Card(index=index, device_id=f"0x{device.upper()}10DE") for index in range(count)}

    def cards(self) -> tuple[Card, ...]:
        """Every GPU."""
        return tuple(self._cards.values())

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
        self._cards[index] = msgspec.structs.replace(self._cards[index], layout=layout)
