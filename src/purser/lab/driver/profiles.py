"""Node profiles: which GPUs a simulated node has, how they are connected, and what kubelet runs on which machine.

A profile is a YAML file; those that ship are in ``profiles/`` beside this module, any other is named by its path.
``profiles/models.yaml`` holds the facts of the GPU models that profiles refer to.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from purser.agent.host.sysfs import pci_address
from purser.agent.nvml.devices import ARCHITECTURES, BRANDS
from purser.core.decoding import UnreadableError
from purser.core.kubelet.machine import Machine
from purser.core.model import PcieLevel
from purser.lab.driver.machine import CpuLayout, NumaLayout, machine_of, machine_problems
from purser.lab.driver.parts import Fabric
from purser.lab.kubelet.configuration import KubeletSection, configure
from purser.yaml_reading import read_yaml

FOLDER = Path(__file__).parent / "profiles"
_MODELS_FILE = FOLDER / "models.yaml"

MAX_GPUS = 32
MAX_LACKS = 16
MAX_NVLINKS = 36
"""What the simulated library has room for, and NVML's own limit of links."""

T = TypeVar("T")

PositiveInt = Annotated[int, msgspec.Meta(gt=0)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class ProfileError(ValueError):
    """A profile that cannot be used; the message names file, field and fix."""


class MigShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sizes of a model's MIG instances: of one, two, four and all of its eight memory slices, or of one, two and
    all of four."""

    gigabytes: Annotated[tuple[PositiveInt, ...], msgspec.Meta(min_length=3, max_length=4)]
    """As they are in the names of profiles."""
    memory_mib: Annotated[tuple[PositiveInt, ...], msgspec.Meta(min_length=3, max_length=4)]
    multiprocessors: Annotated[tuple[PositiveInt, ...], msgspec.Meta(min_length=4, max_length=7)]
    """Of each profile: 1g, 1g+me, 1g of two slices, 2g, 3g, 4g, 7g; of four slices 1g, 1g+me, 2g, 4g."""

    def __post_init__(self) -> None:
        """Raises ValueError for numbers that do not belong together."""
        if (len(self.gigabytes), len(self.memory_mib), len(self.multiprocessors)) not in ((4, 4, 7), (3, 3, 4)):
            raise ValueError("gigabytes, memory_mib and multiprocessors must have 4, 4 and 7 entries, or 3, 3 and 4")


class GpuModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One product, as NVML reports it."""

    name: str
    memory_mib: PositiveInt
    reserved_mib: Natural = 0
    """What the driver keeps for itself."""
    pci_device_id: Natural
    pci_subsystem_id: Natural
    compute_capability: Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+$")]
    architecture: str
    brand: str = "nvidia"
    mig_devices: Natural = 0
    """How many MIG devices at most; 0 where the model knows no MIG."""
    row_remapping: bool = False
    power_limit_watts: PositiveInt
    idle_watts: PositiveInt
    idle_celsius: PositiveInt = 33
    memory_sensor: bool = False
    """It has one for the memory's temperature, as high bandwidth memory does."""
    sm_mhz: PositiveInt = 1410
    """Clock of the multiprocessors at work."""
    idle_sm_mhz: PositiveInt = 210
    memory_mhz: PositiveInt = 1215
    nvlink_mbps: PositiveInt = 25781
    """Of one NVLink, in MB/s."""
    lacks: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_LACKS)] = ()
    """Calls of NVML that it does not support."""
    mig: MigShape | None = None
    """How it is cut, of a model that the agent's own catalogue of MIG profiles does not have."""


class ProfileGpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU in its slot. Its place in the list is its index."""

    model: str
    pci: str
    numa_node: int | None = None


class ProfileNic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One network card: a PF with VFs."""

    pci: str
    interface: str
    vfs: Annotated[int, msgspec.Meta(ge=1, le=125)]
    numa_node: int | None = None


class ProfilePcieSwitch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A PCIe switch."""

    root_port: str
    """PCI address."""
    below: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=29)]
    """PCI addresses of GPUs and network cards."""


class NvSwitches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """NVSwitches that every GPU has links to, dealt out one by one."""

    links_per_gpu: Annotated[int, msgspec.Meta(gt=0, le=MAX_NVLINKS)]
    pci: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class Bridge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """NVLinks straight between two GPUs."""

    between: tuple[Natural, Natural]
    links: PositiveInt


class NodeProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node: its GPUs, its CPUs and memory, its kubelet."""

    description: str
    driver_version: str
    cuda_version: Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d$")]
    gpus: Annotated[tuple[ProfileGpu, ...], msgspec.Meta(max_length=MAX_GPUS)]
    numa: tuple[NumaLayout, ...] = ()
    """Empty: one node with 128 CPUs and 1 TiB."""
    cpu: CpuLayout = CpuLayout()
    kubelet: KubeletSection = KubeletSection()
    pcie: dict[PcieLevel, tuple[tuple[Natural, ...], ...]] = {}
    """GPUs that meet at a level. A pair in no group meets at its NUMA node where that is the same, else across."""
    nvswitch: NvSwitches | None = None
    fabric: Fabric | None = None
    """Of every GPU. None: they register with no fabric manager, as those before Hopper."""
    bridges: tuple[Bridge, ...] = ()
    nics: Annotated[tuple[ProfileNic, ...], msgspec.Meta(max_length=32)] = ()
    """The agent serves their VFs as one pool."""
    switches: tuple[ProfilePcieSwitch, ...] = ()
    models: dict[str, GpuModel] = {}

    @property
    def machine(self) -> Machine:
        """CPUs, NUMA nodes and memory."""
        return machine_of(self.numa, self.cpu)

    def model_of(self, gpu: ProfileGpu) -> GpuModel:
        """The product that sits in a slot."""
        return self.models[gpu.model]

    def level_between(self, one: int, other: int) -> PcieLevel:
        """How far apart two GPUs are on PCIe."""
        for level in PcieLevel:
            if any(one in group and other in group for group in self.pcie.get(level, ())):
                return level
        same_node = self.gpus[one].numa_node == self.gpus[other].numa_node
        return PcieLevel.SAME_CPU if same_node else PcieLevel.CROSS_CPU


@cache
def names() -> tuple[str, ...]:
    """The profiles that ship."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml") if path != _MODELS_FILE))


def load(name_or_path: str | Path) -> NodeProfile:
    """A shipped profile by its name, or any by the path of its file.

    Raises:
        ProfileError: no such profile, or one that cannot be used.
    """
    if str(name_or_path) in names():
        return _load_shipped(str(name_or_path))
    path = Path(name_or_path)
    if not path.is_file():
        raise ProfileError(f"profile {name_or_path} does not exist: must be a file, or one of {', '.join(names())}")
    return _profile(path)


@cache
def _load_shipped(name: str) -> NodeProfile:
    return _profile(FOLDER / f"{name}.yaml")


def _profile(path: Path) -> NodeProfile:
    profile = _convert(path, _read(path), NodeProfile)
    profile = msgspec.structs.replace(profile, models=_models() | profile.models)
    problem = next(
        chain(
            _model_problems(profile),
            _gpu_problems(profile),
            machine_problems(profile.numa, profile.cpu),
            _numa_problems(profile),
            _kubelet_problems(profile),
            _link_problems(profile),
            _switch_problems(profile),
        ),
        None,
    )
    if problem is not None:
        raise ProfileError(f"{path}: {problem}")
    return profile


@cache
def _models() -> dict[str, GpuModel]:
    return _convert(_MODELS_FILE, _read(_MODELS_FILE), dict[str, GpuModel])


def _read(path: Path) -> Any:
    try:
        return read_yaml(path.read_bytes(), str(path))
    except (OSError, UnreadableError) as error:
        raise ProfileError(str(error)) from error


def _convert(path: Path, content: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ProfileError(f"{path}: {error}") from error


def _model_problems(profile: NodeProfile) -> Iterator[str]:
    for key, model in profile.models.items():
        if model.architecture not in ARCHITECTURES.values():
            known = ", ".join(ARCHITECTURES.values())
            yield f"models.{key}.architecture: {model.architecture!r} is unknown to NVML: must be one of {known}"
        if model.brand not in BRANDS.values():
            yield f"models.{key}.brand: {model.brand!r} is unknown to NVML: must be one of {', '.join(BRANDS.values())}"


def _gpu_problems(profile: NodeProfile) -> Iterator[str]:
    seen: dict[str, str] = {}
    for index, gpu in enumerate(profile.gpus):
        if gpu.model not in profile.models:
            known = ", ".join(sorted(profile.models))
            yield f"gpus[{index}].model: unknown model {gpu.model!r}: must be one of {known}, or be added to models"
        yield from _address_problems(f"gpus[{index}].pci", gpu.pci, seen)
    for index, address in enumerate(profile.nvswitch.pci if profile.nvswitch else ()):
        yield from _address_problems(f"nvswitch.pci[{index}]", address, seen)
    for index, nic in enumerate(profile.nics):
        yield from _address_problems(f"nics[{index}].pci", nic.pci, seen)
    for index, switch in enumerate(profile.switches):
        yield from _address_problems(f"switches[{index}].root_port", switch.root_port, seen)


def _switch_problems(profile: NodeProfile) -> Iterator[str]:
    addresses = [*(gpu.pci for gpu in profile.gpus), *(nic.pci for nic in profile.nics)]
    known = {pci_address(address) for address in addresses}
    seen: dict[str, str] = {}
    for index, switch in enumerate(profile.switches):
        for place, address in enumerate(switch.below):
            yield from _address_problems(f"switches[{index}].below[{place}]", address, seen)
            if pci_address(address) not in known:
                yield f"switches[{index}].below[{place}]: {address} is neither a GPU nor a network card in the profile"


def _address_problems(field: str, address: str, seen: dict[str, str]) -> Iterator[str]:
    try:
        canonical = pci_address(address)
    except ValueError as error:
        yield f"{field}: {error}"
        return
    if canonical in seen:
        yield f"{field}: {address} is already used by {seen[canonical]}: every device must have its own address"
    seen[canonical] = field


def _numa_problems(profile: NodeProfile) -> Iterator[str]:
    declared = {each.node for each in profile.numa}
    for index, gpu in enumerate(profile.gpus):
        if gpu.numa_node is not None and gpu.numa_node not in declared:
            yield f"gpus[{index}].numa_node: node {gpu.numa_node} is not in numa: add it to numa, or omit numa_node"
    for index, nic in enumerate(profile.nics):
        if nic.numa_node is not None and nic.numa_node not in declared:
            yield f"nics[{index}].numa_node: node {nic.numa_node} is not in numa: add it to numa, or omit numa_node"


def _kubelet_problems(profile: NodeProfile) -> Iterator[str]:
    try:
        configure(profile.kubelet, profile.machine)
    except ValueError as error:
        yield f"kubelet.{error}"


def _link_problems(profile: NodeProfile) -> Iterator[str]:
    count = len(profile.gpus)
    for level, groups in profile.pcie.items():
        for number, group in enumerate(groups):
            for gpu in group:
                if gpu >= count:
                    yield f"pcie.{level}[{number}]: GPU {gpu} is not one of the profile's {count}, numbered from 0"
    ends = Counter[int]()
    for number, bridge in enumerate(profile.bridges):
        if max(bridge.between) >= count or bridge.between[0] == bridge.between[1]:
            yield f"bridges[{number}].between: must be two different GPUs of the profile's {count}, numbered from 0"
        ends.update(dict.fromkeys(bridge.between, bridge.links))
    switched = profile.nvswitch.links_per_gpu if profile.nvswitch else 0
    for gpu, links in ends.items():
        if links + switched > MAX_NVLINKS:
            yield f"bridges: GPU {gpu} has {links + switched} NVLinks, but the maximum is {MAX_NVLINKS}"
