"""What a simulated driver currently reports, and the file that the C library reads it from.

`DriverState` is the truth, kept as JSON; `render` writes it as ``node.state`` for the library, one fact per line::

    driver_version 550.163.01       nvmlSystemGetDriverVersion; likewise nvml_version and cuda_version (12040)
    init_error 9                    nvmlInit fails with this code
    gpu 3                           what follows is about GPU 3, its place in the profile, until the next such line
    present 1, lost 0               whether it is in its slot, whether it answers
    pci 0 7 0 20b010de 134f10de     domain, bus, device, device id and subsystem id, hexadecimal
    memory 42949672960 611319808 0  total, reserved, used, in bytes
    mig 0 0 7                       enabled, pending, most MIG devices
    power 52000 400000              use and limit in milliwatts
    ecc 1 1 0 0 0 0                 enabled, pending, errors: corrected and uncorrected, volatile, then aggregate
    remapped 0 0 0 0                correctable, uncorrectable, pending, failed
    recovery 0                      nvmlDeviceGpuRecoveryAction
    level 4 20                      nvmlGpuTopologyLevel to GPU 4
    nvlink 0 1 2 0 c4 0             link, active, type of the remote device, its domain, bus, device, hexadecimal
    process 4711 0 1073741824 80 9 0 0 1700000000000000 4294967295 4294967295
                                    pid, whether it draws, bytes, percent of SM, memory, encoder and decoder, start in
                                    microseconds since the epoch, GPU instance and compute instance
    fail nvmlDeviceGetUUID 999      this call (``*``: any) fails with this code
    event 12 3 79                   sequence number, GPU, Xid

A line that is absent makes the calls that need it answer "not supported".
"""

import uuid
from collections.abc import Iterator

import msgspec

from purser.agent.nvml.devices import ARCHITECTURES, BRANDS
from purser.agent.nvml.nvlinks import PCIE_LEVELS
from purser.agent.sysfs import pci_address
from purser.core.kubernetes.quantities import MIB
from purser.lab.driver.profiles import GpuModel, NodeProfile

_UUIDS = uuid.UUID("5b1f2c5e-6d0a-5f4e-9a63-0d7f8c2e4b11")
"""Namespace of the uuids of simulated GPUs: fixed, so that a lab's uuids are the same in every run."""

_RECOVERY_ACTION_SINCE = 570
"""The driver branch since which NVML tells what to do with a failed GPU."""

KEPT_EVENTS = 256
"""Room for events in the library; no client is that far behind."""

MAX_PROCESSES = 256
"""Room for processes of one GPU in the library."""

SAMPLE_US = 1_000_000 // 6
"""How far apart samples of processes' utilisation are."""

NO_INSTANCE = 0xFFFFFFFF
"""Of a process that is in none."""

NVLINK_TO_GPU = 0
NVLINK_TO_SWITCH = 2


class NvLinkState(msgspec.Struct, frozen=True):
    """One NVLink of a GPU."""

    remote: str
    """PCI address of the device at its other end."""
    remote_type: int
    active: bool = True


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU."""

    pid: int
    memory_mib: int
    started_us: int
    """Since the epoch, in microseconds."""
    graphics: bool = False
    """It draws; otherwise it computes."""
    sm_percent: int = 0
    """What of the GPU's time it takes up; likewise the memory's, the encoder's and the decoder's."""
    memory_percent: int = 0
    encoder_percent: int = 0
    decoder_percent: int = 0
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


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver reports of one GPU."""

    uuid: str
    model: GpuModel
    minor: int
    pci: str
    levels: tuple[int, ...]
    """nvmlGpuTopologyLevel to every GPU of the node."""
    nvlinks: tuple[NvLinkState, ...] = ()
    present: bool = True
    lost: bool = False
    mig_enabled: bool = False
    memory_used_mib: int = 0
    """What processes that are not listed use."""
    processes: tuple[ProcessState, ...] = ()
    gpu_utilisation_percent: int | None = None
    """None: what its processes make of it; likewise for the memory."""
    memory_utilisation_percent: int | None = None
    temperature_celsius: int = 0
    power_watts: int = 0
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    recovery_action: int | None = None
    failures: tuple[CallFailure, ...] = ()

    @property
    def total_used_mib(self) -> int:
        """Memory in use, by processes listed and not."""
        return self.memory_used_mib + sum(process.memory_mib for process in self.processes)

    @property
    def utilisation(self) -> tuple[int, int]:
        """Of the GPU and of its memory, in percent."""
        gpu, memory = (min(100, sum(each.load[place] for each in self.processes)) for place in range(2))
        given = self.gpu_utilisation_percent, self.memory_utilisation_percent
        return gpu if given[0] is None else given[0], memory if given[1] is None else given[1]


class EventState(msgspec.Struct, frozen=True):
    """An Xid that was reported."""

    sequence: int
    gpu: int
    xid: int


class DriverState(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver of one node reports."""

    node: str
    driver_version: str
    cuda_version: str
    gpus: tuple[GpuState, ...]
    events: tuple[EventState, ...] = ()
    init_error: int = 0


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
        levels=tuple(_level(profile, index, other) for other in range(len(profile.gpus))),
        nvlinks=tuple(_nvlinks(profile, index)),
        temperature_celsius=model.idle_celsius,
        power_watts=model.idle_watts,
        recovery_action=0 if tells_recovery else None,
    )


def _level(profile: NodeProfile, one: int, other: int) -> int:
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


def number_of(names: dict[int, str], name: str) -> int:
    """NVML's number of an architecture or brand."""
    return next(number for number, each in names.items() if each == name)


def render(state: DriverState) -> str:
    """The state as the C library reads it."""
    lines = [
        f"driver_version {state.driver_version}",
        f"nvml_version {nvml_version(state.driver_version, state.cuda_version)}",
        f"cuda_version {cuda_number(state.cuda_version)}",
        f"init_error {state.init_error}",
    ]
    for index, gpu in enumerate(state.gpus):
        lines.append(f"gpu {index}")
        lines.extend(_gpu_lines(gpu))
    lines.extend(f"event {event.sequence} {event.gpu} {event.xid}" for event in state.events)
    return "\n".join(lines) + "\n"


def _gpu_lines(gpu: GpuState) -> Iterator[str]:
    model = gpu.model
    yield f"present {int(gpu.present)}"
    yield f"lost {int(gpu.lost)}"
    yield f"uuid {gpu.uuid}"
    yield f"name {model.name}"
    yield f"minor {gpu.minor}"
    yield f"pci {_address(gpu.pci)} {model.pci_device_id:x} {model.pci_subsystem_id:x}"
    yield f"memory {model.memory_mib * MIB} {model.reserved_mib * MIB} {gpu.total_used_mib * MIB}"
    yield f"capability {model.compute_capability.replace('.', ' ')}"
    yield f"architecture {number_of(ARCHITECTURES, model.architecture)}"
    yield f"brand {number_of(BRANDS, model.brand)}"
    yield "persistence 1"
    yield f"utilisation {gpu.utilisation[0]} {gpu.utilisation[1]}"
    yield f"temperature {gpu.temperature_celsius}"
    yield f"power {gpu.power_watts * 1000} {model.power_limit_watts * 1000}"
    yield f"ecc 1 1 {gpu.ecc_corrected} {gpu.ecc_uncorrected} {gpu.ecc_corrected} {gpu.ecc_uncorrected}"
    if model.mig_devices:
        yield f"mig {int(gpu.mig_enabled)} {int(gpu.mig_enabled)} {model.mig_devices}"
    if model.row_remapping:
        yield "remapped 0 0 0 0"
    if gpu.recovery_action is not None:
        yield f"recovery {gpu.recovery_action}"
    yield from (f"level {other} {level}" for other, level in enumerate(gpu.levels))
    for number, link in enumerate(gpu.nvlinks):
        yield f"nvlink {number} {int(link.active)} {link.remote_type} {_address(link.remote)}"
    yield from map(_process_line, gpu.processes)
    yield from (f"fail {failure.call} {failure.code}" for failure in gpu.failures)


def _process_line(process: ProcessState) -> str:
    load = " ".join(map(str, process.load))
    instances = f"{number_or_none(process.gpu_instance)} {number_or_none(process.compute_instance)}"
    memory = process.memory_mib * MIB
    return f"process {process.pid} {int(process.graphics)} {memory} {load} {process.started_us} {instances}"


def number_or_none(instance: int | None) -> int:
    """NVML's number of an instance, which it has for none as well."""
    return NO_INSTANCE if instance is None else instance


def _address(pci: str) -> str:
    """``0000:07:00.0`` as the three hexadecimal numbers of the file."""
    return " ".join(f"{int(part, 16):x}" for part in pci.partition(".")[0].split(":"))
