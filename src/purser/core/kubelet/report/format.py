"""The words of a report, and its text."""

import msgspec
from msgspec.structs import replace

from purser.core.decoding import JsonReader, brief
from purser.core.kubelet.config import CpuPolicy, KubeletConfig, MemoryPolicy, TopologyPolicy
from purser.core.kubelet.machine import NumaNode
from purser.core.kubelet.report.idlists import IdList
from purser.core.kubelet.versions import behaviour
from purser.core.names import KUBELET_ANNOTATION

FORMAT = 1
"""Of the text. A reader refuses what it does not know: predicting by half of a report is worse than by none."""

MAX_REPORT_BYTES = 128 * 1024
"""Of the text: half of what the API server lets all annotations of one object have. What is longer is not read."""

MAX_REPORTED_DEVICES = 16384
"""In all of a report: 16 GPUs with as many slots as an agent gives out, which is 1000 each. A longer one is a mistake,
and must not cost a scheduler its memory, nor each of its decisions the time."""


class ReportError(ValueError):
    """A text that is not a report; the message says what is wrong with it."""


class CpuGroup(msgspec.Struct, frozen=True, array_like=True):
    """CPUs that share NUMA node, socket and uncore cache."""

    numa: int
    socket: int
    uncore: int
    cpus: str
    """A CPU list."""
    cores: tuple[tuple[int, int], ...]
    """The core of each CPU in turn, as runs (first core, how many): 0-3,8-11 as threads of cores 0-3 is
    ((0, 4), (0, 4))."""


class MachineReport(msgspec.Struct, frozen=True):
    """The hardware."""

    numa_nodes: tuple[NumaNode, ...]
    cpus: tuple[CpuGroup, ...]
    num_sockets: int


class DeviceGroup(msgspec.Struct, frozen=True, array_like=True):
    """Devices of one resource with the same NUMA nodes and health."""

    numa_nodes: tuple[int, ...] | None
    healthy: bool
    ids: IdList


class ResourceReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The devices of one resource."""

    groups: tuple[DeviceGroup, ...] = ()
    pre_start_required: bool = False
    preferred_allocation: bool = False
    unlisted: bool = False
    """The plugin has registered and has not listed its devices yet."""


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """What one container holds."""

    uid: str
    container: str
    devices: dict[str, IdList] = {}
    cpus: str = ""
    """Exclusive ones, a CPU list."""
    memory: tuple[tuple[tuple[int, ...], str, int], ...] | None = None
    """(NUMA nodes, resource, bytes); None where the memory manager knows nothing of it."""


class CpuReport(msgspec.Struct, frozen=True):
    """The CPU manager's pools, CPU lists."""

    default: str
    reserved: str


class MemoryNodeReport(msgspec.Struct, frozen=True, array_like=True):
    """One NUMA node of the memory manager."""

    node: int
    group: tuple[int, ...]
    assignments: int
    tables: dict[str, tuple[int, int, int, int, int]]
    """By resource the fields of `MemoryTable` in their order."""


class KubeletReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node's kubelet."""

    format: int
    version: str
    """kubelet's: always written, because what a default stands for differs between releases of Purser."""
    config: KubeletConfig
    machine: MachineReport | None = None
    """None: this kubelet aligns nothing (see `aligns`), its hardware is unknown, or the report would be too long."""
    resources: dict[str, ResourceReport] = {}
    cpus: CpuReport | None = None
    memory: tuple[MemoryNodeReport, ...] | None = None
    held: tuple[Holding, ...] = ()


def aligns(config: KubeletConfig) -> bool:
    """Whether this kubelet can refuse a pod for more than the number of its devices: a topology policy, or a manager
    of CPUs or memory. Of one that cannot, the configuration is all that is published."""
    return (
        config.topology_policy is not TopologyPolicy.NONE
        or config.cpu_policy is not CpuPolicy.NONE
        or config.memory_policy is not MemoryPolicy.NONE
    )


def encode(report: KubeletReport) -> str:
    """The text; the same for equal reports."""
    return msgspec.json.encode(msgspec.to_builtins(report, str_keys=True), order="deterministic").decode()


def size_of(text: str) -> int:
    """The length of a report in bytes."""
    return len(text.encode(errors="replace"))


_reader = JsonReader(KubeletReport, f"annotation {KUBELET_ANNOTATION}", max_bytes=MAX_REPORT_BYTES)


def decode(text: str | bytes) -> KubeletReport:
    """A report from its text. Raises `ReportError`."""
    try:
        report = _reader.read(text)
        behaviour(replace(report.config, version=report.version).parsed_version)
    except ValueError as error:
        raise ReportError(f"invalid kubelet report: {brief(error)}") from error
    if report.format != FORMAT:
        raise ReportError(
            f"a kubelet report has format {report.format}, but only format {FORMAT} is supported: upgrade the older "
            "component"
        )
    return report
