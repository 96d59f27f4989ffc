"""What a simulated driver currently reports. `DriverState` is the truth, kept as JSON."""

import time
import uuid
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from purser.agent.host.sysfs import pci_address
from purser.agent.nvml.nvlinks import PCIE_LEVELS
from purser.core.health.signs import RemappedRows
from purser.lab.driver.gpm import gpm_rates, has_gpm
from purser.lab.driver.parts import (
    BankSpares,
    CallFailure,
    ClocksLimit,
    EccErrors,
    Fabric,
    GpuLoad,
    MemoryLocation,
    NvLinkState,
    ProcessState,
    RetiredPage,
)
from purser.lab.driver.profiles import GpuModel, NodeProfile

_UUIDS = uuid.UUID("5b1f2c5e-6d0a-5f4e-9a63-0d7f8c2e4b11")
"""Namespace of the uuids of simulated GPUs: fixed, so that a lab's uuids are the same in every run."""

_RECOVERY_ACTION_SINCE = 570
"""The driver branch since which NVML reports the recovery action of a failed GPU."""

MAX_KEPT_EVENTS = 256
"""Room for events in the library; no client is that far behind."""

MAX_PROCESSES = 256
"""Room for processes of one GPU in the library."""

MAX_FAILURES = 16
"""Room for calls of one GPU that fail, and for those that hang."""

MAX_PAGES = 64
"""Room for retired pages of one GPU in the library, and NVIDIA's own limit."""

SAMPLE_US = 1_000_000 // 6
"""How far apart samples of utilization and other sensors are."""

MAX_KEPT_SAMPLES = 120
"""Of each sensor, in the driver's buffer."""

MEMORY_BANKS = 640
"""Of a GPU that replaces rows: those of an A100; other models have other numbers."""

NO_INSTANCE = 0xFFFFFFFF
"""Of a process that is in none."""

_BUSY_CELSIUS_ABOVE_IDLE, _MEMORY_CELSIUS_ABOVE_GPU = 40, 5
"""How much warmer a busy GPU is than an idle one, and its memory than itself."""

_NS_PER_SECOND = 1_000_000_000
_ANY_POLICY_NUMBER = 10
"""NVML_PERF_POLICY_TOTAL_APP_CLOCKS: the time under any of the others."""

NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED."""

NVLINK_TO_GPU = 0
NVLINK_TO_SWITCH = 2


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver reports of one GPU."""

    uuid: str
    model: GpuModel
    minor: int
    pci: str
    levels: tuple[int, ...]
    """nvmlGpuTopologyLevel to every GPU of the node."""
    nvlinks: tuple[NvLinkState, ...] = ()
    fabric: Fabric | None = None
    """None: it does not support any."""
    present: bool = True
    lost: bool = False
    memory_used_mib: int = 0
    """What processes that are not listed use."""
    processes: tuple[ProcessState, ...] = ()
    load: GpuLoad = GpuLoad()
    pcie_replays: int = 0
    slowdowns: tuple[ClocksLimit, ...] = ()
    ecc: dict[MemoryLocation, EccErrors] = {}
    remapped_rows: RemappedRows = RemappedRows(0, 0, pending=False, failed=False)
    banks: dict[BankSpares, int] = {}
    """Banks of memory that have used spare rows; the others have all of theirs."""
    sram_threshold_exceeded: bool = False
    """Whether uncorrected ECC errors in SRAM are more than NVIDIA tolerates."""
    retired_pages: tuple[RetiredPage, ...] = ()
    recovery_action: int | None = None
    since_us: int
    """When ``counted`` was so, in microseconds since the epoch."""
    counted: dict[str, int] = {}
    """What grows by itself, as `rates_of` says."""
    failures: tuple[CallFailure, ...] = ()
    hanging: tuple[str, ...] = ()
    """NVML's names of calls that do not return, with or without their version; ``*`` for any."""

    @property
    def failing(self) -> tuple[CallFailure, ...]:
        """With the calls that its model does not support."""
        return (*self.failures, *(CallFailure(call, NOT_SUPPORTED) for call in self.model.lacks))

    @property
    def total_used_mib(self) -> int:
        """Memory in use, by processes listed and not."""
        return self.memory_used_mib + sum(process.memory_mib for process in self.processes)

    @property
    def utilization(self) -> tuple[int, int, int, int]:
        """Of the GPU, its memory, its encoders and its decoders, in percent."""
        given = (
            self.load.gpu_utilization_percent,
            self.load.memory_utilization_percent,
            self.load.encoder_utilization_percent,
            self.load.decoder_utilization_percent,
        )
        sums = [min(100, sum(each.load[place] for each in self.processes)) for place in range(4)]
        gpu, memory, encoder, decoder = (
            made if value is None else value for made, value in zip(sums, given, strict=True)
        )
        return gpu, memory, encoder, decoder

    @property
    def watts(self) -> int:
        """Power drawn: from idle to the limit as the GPU is used, and to half of that while it is slowed down."""
        if self.load.power_watts is not None:
            return self.load.power_watts
        span = (self.model.power_limit_watts - self.model.idle_watts) * self.utilization[0] // 100
        return self.model.idle_watts + (span // 2 if self.slowdowns else span)

    @property
    def celsius(self) -> int:
        """Temperature of the GPU."""
        if self.load.temperature_celsius is not None:
            return self.load.temperature_celsius
        return self.model.idle_celsius + _BUSY_CELSIUS_ABOVE_IDLE * self.utilization[0] // 100

    @property
    def memory_celsius_now(self) -> int:
        """Temperature of the memory."""
        given = self.load.memory_temperature_celsius
        return self.celsius + _MEMORY_CELSIUS_ABOVE_GPU if given is None else given

    @property
    def sm_mhz(self) -> int:
        """Clock of the multiprocessors."""
        if not self.utilization[0]:
            return self.model.idle_sm_mhz
        return self.model.sm_mhz // 2 if self.slowdowns else self.model.sm_mhz


def rates_of(gpu: GpuState) -> dict[str, int]:
    """What grows by itself, and by how much each second: energy in mJ, traffic over PCIe in bytes and over each NVLink
    in KiB, nanoseconds under each limit (nvmlPerfPolicyType_t) and in each slow-down, and what GPM counts."""
    rates = {"energy": gpu.watts * 1000}
    rates |= {"pcie-tx": (gpu.load.pcie_tx_kib_per_s or 0) * 1024, "pcie-rx": (gpu.load.pcie_rx_kib_per_s or 0) * 1024}
    active = [number for number, link in enumerate(gpu.nvlinks) if link.active]
    for way, rate in (("tx", gpu.load.nvlink_tx_kib_per_s), ("rx", gpu.load.nvlink_rx_kib_per_s)):
        rates |= {f"nvlink-{way}-{number}": (rate or 0) // len(active) for number in active}
    for slowdown in gpu.slowdowns:
        rates |= {
            f"slowdown-{slowdown}": _NS_PER_SECOND,
            f"policy-{slowdown.policy}": _NS_PER_SECOND,
            f"policy-{_ANY_POLICY_NUMBER}": _NS_PER_SECOND,
        }
    if has_gpm(gpu.model.architecture):
        rates |= gpm_rates(gpu.utilization[:2], gpu.load, gpu.processes)
    return {name: rate for name, rate in rates.items() if rate}


def settled(gpu: GpuState, now_us: int) -> GpuState:
    """The same GPU, its counters as they are now: what they grow by may change."""
    seconds = max(0, now_us - gpu.since_us) / 1_000_000
    counted = dict(gpu.counted)
    for name, rate in rates_of(gpu).items():
        counted[name] = counted.get(name, 0) + int(rate * seconds)
    return replace(gpu, since_us=max(now_us, gpu.since_us), counted=counted)


class EventState(msgspec.Struct, frozen=True):
    """An Xid that was reported."""

    sequence: int
    gpu: int
    xid: int
    gpu_instance: int | None = None
    """Of the MIG device that it concerns; None: the whole GPU."""
    compute_instance: int | None = None


class DriverState(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver of one node reports."""

    node: str
    driver_version: str
    cuda_version: str
    gpus: tuple[GpuState, ...]
    events: tuple[EventState, ...] = ()
    init_error: int = 0
    hangs: bool = False
    """No call returns."""

    def index_of(self, gpu: int | str) -> int:
        """The place of a GPU in the profile, by that place or by uuid. Raises LookupError."""
        for index, each in enumerate(self.gpus):
            if gpu in (index, each.uuid):
                return index
        if not self.gpus:
            raise LookupError(f"node {self.node} has no GPUs")
        last = len(self.gpus) - 1
        known = f"an index from 0 to {last}, or a UUID" if last else "index 0, or the GPU's UUID"
        raise LookupError(f"node {self.node} has no GPU {gpu}: must be {known}")


def initial_state(node: str, profile: NodeProfile) -> DriverState:
    """The state of a healthy, idle node."""
    return DriverState(
        node=node,
        driver_version=profile.driver_version,
        cuda_version=profile.cuda_version,
        gpus=tuple(_initial_gpu(node, profile, index) for index in range(len(profile.gpus))),
    )


def gpu_uuid(node: str, index: int) -> str:
    """The uuid of a node's GPU: always the same one."""
    return f"GPU-{uuid.uuid5(_UUIDS, f'{node}/{index}')}"


def _initial_gpu(node: str, profile: NodeProfile, index: int) -> GpuState:
    gpu = profile.gpus[index]
    model = profile.model_of(gpu)
    tells_recovery = int(profile.driver_version.partition(".")[0]) >= _RECOVERY_ACTION_SINCE
    return GpuState(
        uuid=gpu_uuid(node, index),
        model=model,
        minor=index,
        pci=pci_address(gpu.pci),
        levels=tuple(_pcie_level(profile, index, other) for other in range(len(profile.gpus))),
        nvlinks=tuple(_nvlinks(profile, index)),
        fabric=profile.fabric,
        since_us=time.time_ns() // 1000,
        recovery_action=0 if tells_recovery else None,
    )


def _pcie_level(profile: NodeProfile, one: int, other: int) -> int:
    if one == other:
        return 0
    level = profile.level_between(one, other)
    return next(number for number, name in PCIE_LEVELS.items() if name is level)


def _nvlinks(profile: NodeProfile, index: int) -> Iterator[NvLinkState]:
    if profile.nvswitch is not None:
        switches = profile.nvswitch.pci
        for link in range(profile.nvswitch.links_per_gpu):
            yield NvLinkState(pci_address(switches[link % len(switches)]), NVLINK_TO_SWITCH)
    for bridge in profile.bridges:
        if index in bridge.between:
            peer = bridge.between[1] if bridge.between[0] == index else bridge.between[0]
            yield from [NvLinkState(pci_address(profile.gpus[peer].pci), NVLINK_TO_GPU)] * bridge.links


def nvml_version(driver_version: str, cuda_version: str) -> str:
    """NVML's own version: the driver's behind CUDA's major number."""
    return f"{cuda_version.partition('.')[0]}.{driver_version}"


def cuda_number(cuda_version: str) -> int:
    """``12.4`` as nvmlSystemGetCudaDriverVersion has it: 12040."""
    major, _, minor = cuda_version.partition(".")
    return int(major) * 1000 + int(minor) * 10


def number_or_none(instance: int | None) -> int:
    """NVML's number of an instance, which it has for none as well."""
    return NO_INSTANCE if instance is None else instance
