"""The worker's seam to GPUs that can be cut into MIG devices."""

from collections.abc import Mapping
from typing import Protocol

import msgspec


class HardwareError(Exception):
    """A GPU, or the driver, refused; the message says which one and what."""


class Layout(msgspec.Struct, frozen=True):
    """How one GPU is cut."""

    enabled: bool
    """MIG mode."""
    devices: tuple[str, ...] = ()
    """Profiles such as ``1g.10gb``, ordered; one per MIG device."""


class MigGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as it is now."""

    index: int
    device_id: str
    """PCI device and vendor, as layouts name them: ``0x20B010DE``."""
    capable: bool = True
    """It knows MIG."""
    layout: Layout = Layout(False)
    uuids: tuple[str, ...] = ()
    """Its own and those of its MIG devices, as far as the driver reports them."""


class OfferedProfile(msgspec.Struct, frozen=True):
    """A profile that a GPU offers."""

    most: int
    """How many fit at most, if there is nothing else."""
    slices: int = 0
    """Compute slices of each; 0: not known."""
    memory_mib: int = 0
    """Memory of each; 0: not known."""


class MigHardware(Protocol):
    """The node's GPUs. All calls block. Every method raises `HardwareError`."""

    def gpus(self) -> tuple[MigGpu, ...]:
        """Every GPU, by index."""
        ...

    def offers(self, index: int) -> Mapping[str, OfferedProfile]:
        """The profiles that a GPU offers by name, in MIG mode or not. Empty: the driver does not say."""
        ...

    def set_mode(self, index: int, enabled: bool) -> None:
        """Switch MIG mode. This may reset the GPU, which must be unused."""
        ...

    def set_devices(self, index: int, profiles: tuple[str, ...]) -> None:
        """Replace all MIG devices of a GPU in MIG mode."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


class NoHardware:
    """A node whose driver cannot be opened: everything is refused, with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def gpus(self) -> tuple[MigGpu, ...]:
        """See `MigHardware.gpus`."""
        raise HardwareError(self._reason)

    def offers(self, index: int) -> Mapping[str, OfferedProfile]:
        """See `MigHardware.offers`."""
        raise HardwareError(self._reason)

    def set_mode(self, index: int, enabled: bool) -> None:
        """See `MigHardware.set_mode`."""
        raise HardwareError(self._reason)

    def set_devices(self, index: int, profiles: tuple[str, ...]) -> None:
        """See `MigHardware.set_devices`."""
        raise HardwareError(self._reason)

    def close(self) -> None:
        """Nothing to let go of."""
