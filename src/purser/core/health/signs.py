"""Health readings of a GPU, which the state machine evaluates. Pure.

``None`` means that this driver or this GPU does not report the value.
"""

from enum import IntEnum, StrEnum

import msgspec


class FaultKind(StrEnum):
    """Why a device cannot be used; stable strings for events and metrics."""

    LOST = "gpu-lost"
    """It fell off the bus, or is otherwise out of the driver's reach."""
    RESET_REQUIRED = "reset-required"
    """The driver refuses calls until the GPU is reset or its node rebooted."""
    NO_ANSWER = "no-answer"
    """A call hangs: the driver may be busy with this GPU, and the call may return."""
    GONE = "gone"
    """The driver knows no such device any more."""
    NO_PERMISSION = "no-permission"
    NOT_SUPPORTED = "not-supported"
    """The driver cannot report what is needed to use the device at all."""
    UNKNOWN = "unknown"


class DeviceFault(msgspec.Struct, frozen=True):
    """A device's trouble as a value: the device is unhealthy, everything else goes on."""

    kind: FaultKind
    call: str
    """The NVML function that failed."""
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.call}: {self.message}"


class RecoveryAction(IntEnum):
    """The recovery action that the driver asks for (nvmlDeviceGpuRecoveryAction_t; reported since R570)."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX_DOMAIN = 5
    BUS_RESET = 6
    SYSTEM_REBOOT = 7
    OTHER = -1
    """One that this version of Purser has no word for."""


class RemappedRows(msgspec.Struct, frozen=True):
    """Memory rows that were replaced by spare ones (Ampere and later)."""

    correctable: int
    uncorrectable: int
    pending: bool
    """A remapping waits for the next reset."""
    failed: bool
    """A remapping was impossible: the GPU has no spare row left there."""
    exhausted_banks: int = 0
    """Memory banks without a spare row, of NVML's histogram: the next uncorrectable error in one cannot be remapped."""


class NvLinks(msgspec.Struct, frozen=True):
    """A GPU's NVLinks."""

    up: frozenset[int] = frozenset()
    down: frozenset[int] = frozenset()
    """Links without a state are in neither."""
    errors: int | None = None
    """Replays and recoveries of all of them since the driver was loaded."""


class Slowdown(StrEnum):
    """Why the GPU lowers its clocks to protect itself, of NVML's clocks event reasons; not those of everyday life,
    such as an idle GPU or the power limit."""

    HW_THERMAL = "hardware thermal slowdown"
    SW_THERMAL = "software thermal slowdown"
    HW_POWER_BRAKE = "hardware power brake"


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What one probe of a GPU shows."""

    fault: DeviceFault | None = None
    recovery_action: RecoveryAction | None = None
    ecc_uncorrected: int | None = None
    """Uncorrected ECC errors since the driver was loaded (NVML's volatile counter)."""
    sram_threshold_exceeded: bool = False
    """Whether SRAM had more uncorrectable errors in the GPU's life than NVIDIA's RMA policy allows."""
    remapped_rows: RemappedRows | None = None
    nvlinks: NvLinks | None = None
    slowdowns: frozenset[Slowdown] = frozenset()
    missing_domain: str = ""
    """Why it is in no NVLink domain although its neighbours are."""
