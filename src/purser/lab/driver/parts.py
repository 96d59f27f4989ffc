"""What a simulated GPU's state is made of: its links, processes, errors and limits."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

import msgspec

from purser.core.health.fabric import FabricState


class ClocksLimit(StrEnum):
    """Why a GPU runs at lower clocks than it could."""

    POWER_CAP = "power-cap"
    SW_THERMAL = "sw-thermal"
    HW_THERMAL = "hw-thermal"
    POWER_BRAKE = "power-brake"

    @property
    def reasons(self) -> int:
        """nvmlClocksEventReasons. What the hardware does has a bit of its own beside."""
        return {"power-cap": 0x4, "sw-thermal": 0x20, "hw-thermal": 0x48, "power-brake": 0x88}[self]

    @property
    def policy(self) -> int:
        """nvmlPerfPolicyType_t that counts the time: power, thermal or board limit."""
        return {"power-cap": 0, "power-brake": 3}.get(self, 1)


class MemoryLocation(StrEnum):
    """Where ECC errors are counted."""

    L1 = "l1"
    L2 = "l2"
    DRAM = "dram"
    REGISTER_FILE = "register-file"
    TEXTURE = "texture"
    TEXTURE_SHM = "texture-shm"
    CBU = "cbu"
    SRAM = "sram"


ECC_LOCATIONS = tuple(MemoryLocation)
"""In the order of nvmlMemoryLocation_t."""


class EccErrors(msgspec.Struct, frozen=True):
    """ECC errors at one place."""

    corrected: int = 0
    uncorrected: int = 0
    corrected_before: int = 0
    """Before the driver was loaded, or the GPU reset."""
    uncorrected_before: int = 0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Corrected and uncorrected: volatile, then aggregate."""
        return (
            self.corrected,
            self.uncorrected,
            self.corrected + self.corrected_before,
            self.uncorrected + self.uncorrected_before,
        )


class RetiredPage(msgspec.Struct, frozen=True):
    """A page of memory that the driver uses no more; on GPUs before Ampere."""

    address: int
    cause: int
    """nvmlPageRetirementCause_t: 0 for several single bit errors, 1 for a double bit error."""
    time_us: int
    pending: bool
    """It is given up at the next reset."""


class BankSpares(StrEnum):
    """How many spare rows a bank of memory has left that has used some."""

    HIGH = "high"
    PARTIAL = "partial"
    LOW = "low"
    NONE = "none"


class NvLinkError(StrEnum):
    """What is counted of a link."""

    REPLAY = "replay"
    RECOVERY = "recovery"
    CRC_FLIT = "crc-flit"
    CRC_DATA = "crc-data"
    ECC_DATA = "ecc-data"


NVLINK_ERRORS = tuple(NvLinkError)
"""In the order of nvmlNvLinkErrorCounter_t."""


class NvLinkState(msgspec.Struct, frozen=True):
    """One NVLink of a GPU."""

    remote: str
    """PCI address of the device at its other end."""
    remote_type: int
    active: bool = True
    errors: tuple[int, ...] = (0,) * len(NVLINK_ERRORS)


_UNKNOWN_ERROR = 999
"""NVML_ERROR_UNKNOWN."""


class Fabric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a GPU reports of its NVLink domain; by default that of a machine which is a domain of its own."""

    cluster: UUID = UUID(int=0)
    clique: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    state: Annotated[int, msgspec.Meta(ge=0, le=3)] = 3
    """NVML_GPU_FABRIC_STATE_*: of those from 0 on not supported, not started, in progress and completed."""
    status: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    """NVML's code of what went wrong with it."""

    @classmethod
    def so_far(cls, state: FabricState) -> "Fabric":
        """Of a registration that goes no further than this, without a domain of several machines."""
        if state is FabricState.FAILED:
            return cls(status=_UNKNOWN_ERROR)
        return cls(state=list(FabricState).index(state))

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """State (NVML_GPU_FABRIC_STATE_*), status, clique, and each half of the cluster's UUID."""
        high, low = divmod(self.cluster.int, 1 << 64)
        return self.state, self.status, self.clique, high, low


class GpuLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed values of a GPU's sensors. None: derived from the GPU's processes, which cause no traffic."""

    gpu_utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    encoder_utilization_percent: int | None = None
    decoder_utilization_percent: int | None = None
    tensor_percent: int | None = None
    """Of the time of the tensor cores; 0 by default."""
    temperature_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    power_watts: int | None = None
    pcie_tx_kib_per_s: int | None = None
    pcie_rx_kib_per_s: int | None = None
    nvlink_tx_kib_per_s: int | None = None
    """Over all links that are up; likewise what comes in."""
    nvlink_rx_kib_per_s: int | None = None


class ProcessLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a process takes of a GPU."""

    memory_mib: int = 0
    graphics: bool = False
    """It draws; otherwise it computes."""
    mps: bool = False
    """It computes as a client of MPS."""
    sm_percent: int = 0
    """What of the GPU's time it takes up; likewise the memory's, the encoder's and the decoder's."""
    memory_percent: int = 0
    encoder_percent: int = 0
    decoder_percent: int = 0


class ProcessState(ProcessLoad, frozen=True, kw_only=True):
    """A process on a GPU."""

    pid: int
    started_us: int
    """Since the epoch, in microseconds."""
    gpu_instance: int | None = None
    """Of MIG; None: the whole GPU."""
    compute_instance: int | None = None

    @property
    def load(self) -> tuple[int, int, int, int]:
        """SM, memory, encoder and decoder, in percent."""
        return self.sm_percent, self.memory_percent, self.encoder_percent, self.decoder_percent


class CallFailure(msgspec.Struct, frozen=True):
    """A call that fails."""

    call: str
    """NVML's name of it, with or without its version; ``*`` for any."""
    code: int
