"""The form of a scenario file. Anything that is not of this form is refused with file, field and fix."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from purser.core.decoding import UnreadableError
from purser.lab.hollow.node import HollowNodes
from purser.lab.kubelet.configuration import KubeletSection
from purser.lab.settings import DEFAULT_NODES, DEFAULT_SLOTS, LabSettings, NodeChoice, node_choices
from purser.yaml_reading import read_all_yaml, read_yaml

MAX_SCENARIO_BYTES = 1024 * 1024


class ScenarioError(ValueError):
    """A scenario file that cannot be run; the message names file, field and fix."""


class _StrictStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Phase(StrEnum):
    """What pods are waited for."""

    RUNNING = "running"
    PENDING = "pending"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    GONE = "gone"


class RefusedStep(_StrictStruct, frozen=True):
    """Manifests that the API server must not take."""

    apply: str | list[dict[str, Any]]
    contains: str = ""
    """A part of the answer."""


class Wait(_StrictStruct, frozen=True):
    """Until pods are in a phase, or a node offers so much of a resource."""

    pods: list[str] = []
    """Names, or beginnings of names that end in ``*``."""
    phase: Phase = Phase.RUNNING
    count: int | None = None
    """How many pods; by default as many as there are names, and for names with ``*`` at least one."""
    namespace: str = "default"
    node: str = ""
    resource: str = "nvidia.com/gpu"
    allocatable: int | None = None


class ExpectGrants(_StrictStruct, frozen=True):
    """How many pods hold a part of each GPU that is held at all, largest first."""

    per_gpu: list[int]
    node: str = ""
    """Empty: all nodes together."""


class ExpectEvent(_StrictStruct, frozen=True):
    """An event on a pod."""

    pod: str
    reason: str
    contains: str = ""
    namespace: str = "default"


class ExpectEnvironment(_StrictStruct, frozen=True):
    """Variables that a container was started with; a value of null: the variable is not set."""

    pod: str
    variables: dict[str, str | None]
    container: str = ""
    """Empty: the first one."""
    namespace: str = "default"


class ExpectContainer(_StrictStruct, frozen=True):
    """What a container got: CPUs and NUMA nodes of its memory in the kernel's list format, and how many GPUs on which
    NUMA node. What is left out may be anything."""

    pod: str
    cpus: int | None = None
    """How many it may run on."""
    cpuset: str | None = None
    memory_nodes: str | None = None
    devices: dict[int, int] | None = None
    """How many GPUs it has, or has a part of, by NUMA node."""
    container: str = ""
    """Empty: the first one."""
    namespace: str = "default"


class ExpectRejections(_StrictStruct, frozen=True):
    """How often kubelets refused pods since the lab began, pods that are gone included."""

    count: int = 0
    reason: str = ""
    """Of this reason only, such as TopologyAffinityError; empty: whatever the reason."""


class ExpectObjects(_StrictStruct, frozen=True):
    """Objects that are as ``match`` says: a part of the object, where text may have ``*`` in it, null means that the
    field is not there, and of a list each given element has to match one that is there."""

    kind: str
    match: dict[str, Any] = {}
    names: tuple[str, ...] = ("*",)
    """Names, or patterns with ``*``."""
    namespace: str = ""
    """Empty: all of them."""
    count: int | None = None
    """How many match; by default all that have such a name, and at least one."""


class Expect(_StrictStruct, frozen=True):
    """What must be so, at the latest when the step's time is over. Exactly one of these."""

    grants: ExpectGrants | None = None
    event: ExpectEvent | None = None
    environment: ExpectEnvironment | None = None
    container: ExpectContainer | None = None
    rejections: ExpectRejections | None = None
    objects: ExpectObjects | None = None


class GpuFault(_StrictStruct, frozen=True):
    """One GPU of one node."""

    node: str
    gpu: int
    """Its place in the node's profile, from 0."""
    xid: int = 79
    """For ``inject_xid``: which error."""


class FaultStep(_StrictStruct, frozen=True):
    """Something breaks, or is mended. Exactly one of these."""

    lose_gpu: GpuFault | None = None
    recover_gpu: GpuFault | None = None
    inject_xid: GpuFault | None = None
    restart_kubelet: str | None = None
    """A node."""
    kill_agent: str | None = None
    start_agent: str | None = None
    kill_scheduler: bool = False
    start_scheduler: bool = False
    kill_operator: bool = False
    start_operator: bool = False

    @property
    def needs_operator(self) -> bool:
        """It happens to the operator."""
        return self.kill_operator or self.start_operator


class Patch(_StrictStruct, frozen=True):
    """A merge patch of objects: what is null in it goes. ``${ClusterPolicy gpus status.upgrade.target}`` in a text is
    what stands in that field, of an object without a namespace."""

    kind: str
    names: list[str]
    """Names, or patterns with ``*``."""
    merge: dict[str, Any]
    namespace: str = "default"


class NeverRule(_StrictStruct, frozen=True):
    """From here to the end of the scenario, checked on every event of the watch."""

    kind: str
    match: dict[str, Any] = {}
    """As in ``expect.objects``."""
    names: tuple[str, ...] = ("*",)
    namespace: str = ""
    more_than: int = 0
    """So many at a time may be so."""
    longer_than_s: float = 0.0
    """For so long each may be so."""
    deleted: bool = False
    """What may not be is that such an object goes, or is asked to. Counted are all that ever did."""


class DeleteStep(_StrictStruct, frozen=True):
    """Objects of one kind that are asked to go."""

    names: list[str]
    kind: str = "Pod"
    namespace: str = "default"


class Step(_StrictStruct, frozen=True):
    """One step: exactly one of its kinds."""

    name: str = ""
    """For people; made from the step where it is left out."""
    within_s: float = 120.0
    """How long the step may take."""
    apply: str | list[dict[str, Any]] | None = None
    """A file beside the scenario's, or manifests."""
    refused: RefusedStep | None = None
    wait: Wait | None = None
    expect: Expect | None = None
    fault: FaultStep | None = None
    delete: DeleteStep | None = None
    patch: Patch | None = None
    join: list[HollowNodes] | None = None
    """Hollow nodes that come later; the lab has to have some from the start."""
    never: NeverRule | None = None


class Scenario(_StrictStruct, frozen=True):
    """A whole file."""

    steps: list[Step]
    description: str = ""
    nodes: tuple[str, ...] | None = None
    """``PROFILE`` or ``PROFILE:COUNT``; they are called ``<profile>-<n>`` with n from 0. Left out: the lab's usual
    three, or none where there are hollow ones."""
    hollow: tuple[HollowNodes, ...] = ()
    """Nodes that exist in the API alone, called ``<name>-<n>`` with n from 0."""
    operator: bool = False
    """Whether Purser's operator runs. Agents then run where a ClusterPolicy puts its device plugin."""
    kubelet: KubeletSection = KubeletSection()
    """Of every node; what is said here counts instead of the profiles' own."""
    slots: int = DEFAULT_SLOTS
    """How many containers may share a GPU."""
    deadline_s: float = 300.0
    """How long the whole scenario may take."""


class LoadedScenario(msgspec.Struct, frozen=True):
    """A scenario, where it came from, and its nodes."""

    path: Path
    scenario: Scenario
    nodes: tuple[NodeChoice, ...]

    @property
    def settings(self) -> LabSettings:
        """A lab for it."""
        scenario = self.scenario
        return LabSettings(
            self.nodes,
            kubelet=scenario.kubelet,
            slots=scenario.slots,
            hollow=scenario.hollow,
            operator=scenario.operator,
        )


_ONE_OF: dict[type, tuple[str, ...]] = {
    Step: ("apply", "refused", "wait", "expect", "fault", "delete", "patch", "join", "never"),
    Expect: ("grants", "event", "environment", "container", "rejections", "objects"),
    FaultStep: (
        "lose_gpu",
        "recover_gpu",
        "inject_xid",
        "restart_kubelet",
        "kill_agent",
        "start_agent",
        "kill_scheduler",
        "start_scheduler",
        "kill_operator",
        "start_operator",
    ),
}


def load(path: Path) -> LoadedScenario:
    """Read and check a file. Raises `ScenarioError`."""
    try:
        scenario = msgspec.convert(read_document(path), Scenario)
        loaded = LoadedScenario(path, scenario, _nodes(scenario))
        _ = loaded.settings
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{path}: {_readable_error(error)}") from error
    except ScenarioError:
        raise
    except ValueError as error:
        raise ScenarioError(f"{path}: nodes: {error}") from error
    _check(path, scenario, {node.name: len(node.profile.gpus) for node in loaded.nodes})
    return loaded


def _nodes(scenario: Scenario) -> tuple[NodeChoice, ...]:
    if scenario.nodes is None:
        return () if scenario.hollow else node_choices(DEFAULT_NODES)
    return node_choices(scenario.nodes) if scenario.nodes else ()


def read_document(path: Path) -> Any:
    """The one document of a YAML file, None for none. Raises `ScenarioError`."""
    return _read(path, read_yaml)


def read_documents(path: Path) -> list[Any]:
    """All documents of a YAML file. Raises `ScenarioError`."""
    return list(_read(path, read_all_yaml))


def _read(path: Path, read: Callable[..., Any]) -> Any:
    try:
        return read(path.read_bytes(), str(path), max_bytes=MAX_SCENARIO_BYTES)
    except OSError as error:
        raise ScenarioError(f"cannot read {path}: {error.strerror}") from error
    except UnreadableError as error:
        raise ScenarioError(str(error)) from error


def _check(path: Path, scenario: Scenario, nodes: dict[str, int]) -> None:
    """``nodes``: how many GPUs each has."""
    if not scenario.steps:
        raise ScenarioError(f"{path}: steps: must have at least one step")
    if not nodes and not scenario.hollow:
        raise ScenarioError(f"{path}: nodes: must have at least one profile if the scenario has no hollow nodes")
    for place, step in enumerate(scenario.steps):
        where = f"{path}: steps[{place}]"
        _check_one_of(where, step)
        if step.expect is not None:
            _check_one_of(f"{where}.expect", step.expect)
        if step.fault is not None:
            _check_one_of(f"{where}.fault", step.fault)
        if step.wait is not None:
            _check_wait(f"{where}.wait", step.wait)
        if step.join and not scenario.hollow:
            raise ScenarioError(f"{where}.join: the scenario must start with hollow nodes")
        if (step.fault or FaultStep()).needs_operator and not scenario.operator:
            raise ScenarioError(
                f"{where}.fault: the scenario does not run the operator: set operator: true above the steps"
            )
        for name in _nodes_of(step):
            if name not in nodes:
                known = f"must be one of {', '.join(sorted(nodes))}" if nodes else "the scenario has no simulated nodes"
                raise ScenarioError(f"{where}: unknown node {name}: {known}")
        for gpu in _gpus_of(step):
            if not 0 <= gpu.gpu < nodes[gpu.node]:
                last = nodes[gpu.node] - 1
                known = "" if last < 0 else f": must be {'0' if not last else f'from 0 to {last}'}"
                raise ScenarioError(f"{where}: {gpu.node} has no GPU {gpu.gpu}{known}")


def _check_one_of(where: str, part: Any) -> None:
    kinds = _ONE_OF[type(part)]
    given = [kind for kind in kinds if getattr(part, kind)]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise ScenarioError(f"{where}: must have exactly one of {', '.join(kinds)}, but has {found}")


def _check_wait(where: str, wait: Wait) -> None:
    if bool(wait.pods) == bool(wait.node):
        found = "both" if wait.node else "neither"
        raise ScenarioError(f"{where}: must have either pods or node, but has {found}")
    if wait.node and wait.allocatable is None:
        raise ScenarioError(
            f"{where}.allocatable: must be set to the number of {wait.resource} that {wait.node} must offer"
        )


def _nodes_of(step: Step) -> list[str]:
    found: list[str | None] = []
    if step.wait is not None:
        found.append(step.wait.node)
    if step.expect is not None and step.expect.grants is not None:
        found.append(step.expect.grants.node)
    if (fault := step.fault) is not None:
        found += [fault.restart_kubelet, fault.kill_agent, fault.start_agent]
    return [*filter(None, found), *(gpu.node for gpu in _gpus_of(step))]


def _gpus_of(step: Step) -> list[GpuFault]:
    fault = step.fault or FaultStep()
    return [gpu for gpu in (fault.lose_gpu, fault.recover_gpu, fault.inject_xid) if gpu is not None]


def _readable_error(error: msgspec.ValidationError) -> str:
    """The field first, without msgspec's own notation."""
    text, _, where = str(error).partition(" - at `$")
    field = where.rstrip("`").lstrip(".")
    return f"{field or 'the file'}: {text}"
