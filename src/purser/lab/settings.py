"""What can be chosen about a lab."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from purser.core.device.ids import MAX_SLOTS
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.state import KubeletNode
from purser.core.vendors.catalogue import FAMILY_NAMES
from purser.lab.controlplane.programs import Programs
from purser.lab.driver import profiles
from purser.lab.driver.profiles import NodeProfile
from purser.lab.hollow.node import HollowNodes
from purser.lab.kubelet.configuration import ConfiguredKubelet, KubeletSection, configure
from purser.lab.kubelet.statefiles import check_start
from purser.options import PORT_MAXIMUM

DEFAULT_NODES = ("a100-40gb-8", "h100-8", "t4-4")
"""Eight GPUs of a size that is often shared, eight large ones on NVSwitch, and four small ones."""

DEFAULT_SLOTS = 10

MAX_NODES = 64
"""Nodes of one lab at most: each is a kubelet and an agent in this process."""


@dataclass(frozen=True)
class NodeChoice:
    """One emulated node."""

    name: str
    profile: NodeProfile


@dataclass(frozen=True)
class LabSettings:
    """Everything about one lab."""

    nodes: tuple[NodeChoice, ...]
    folder: Path | None = None
    """Where its state is kept; None: a temporary folder that is removed at the end."""
    port: int = 0
    """Of the API server; 0: a free one."""
    programs: Programs | None = None
    """A real control plane to run instead of stand-ins; of what it lacks the stand-ins run. None: stand-ins alone."""
    kubelet: KubeletSection = field(default_factory=KubeletSection)
    """Which kubelet the nodes emulate, and its policies: what is said here counts instead of the profiles' own."""
    slots: int = DEFAULT_SLOTS
    """How many containers may share a GPU, as in production. With 1 kubelet counts whole GPUs."""
    probe_interval_s: float = 1.0
    """Between two probes of each GPU by the agents. Production's ten seconds make half a minute until a recovered
    GPU is trusted again, which is long to watch."""

    hollow: tuple[HollowNodes, ...] = ()
    """Nodes that exist in the API alone, beside the emulated ones."""
    adopted_scheduler_names: tuple[str, ...] = ()
    """Other schedulers' names whose GPU pods are Purser's to place."""
    served_scheduler_names: tuple[str, ...] = ()
    """Other schedulers' names that place their GPU pods themselves."""
    memory_units: tuple[tuple[str, int], ...] = ()
    """MiB of one of a resource for memory, where it is not the usual unit."""
    managed_resources: tuple[str, ...] = ()
    """Further names of GPUs that kube-scheduler asks Purser about, and agents may list. Those that the files below give
    devices are among them without a word."""
    device_plugin_configs: Path | None = None
    """Folder with files of NVIDIA's device plugin; nodes name theirs by the label nvidia.com/device-plugin.config."""
    decision_log_folder: Path | None = None
    """Folder of the scheduler's decision log; None: it keeps none."""
    operator: bool = False
    """Whether Purser's operator runs, and the ClusterPolicy is defined. Agents run where its device plugin does."""
    operator_rounds_apart_s: float = 0.05
    """Between two rounds of the operator. In production half a second, which ten rounds make long to watch."""

    def __post_init__(self) -> None:
        """Refuse what could only fail later. Raises ValueError."""
        names = [*(choice.name for choice in self.nodes), *(name for each in self.hollow for name in each.names)]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"two nodes have the name {twice[0]}: rename one of them")
        for choice in self.nodes:
            self.kubelet_of(choice)
        if not 1 <= self.slots <= MAX_SLOTS:
            raise ValueError(f"invalid slots {self.slots}: must be from 1 to {MAX_SLOTS}")
        if self.memory_units and self.operator:
            raise ValueError(
                "--memory-unit cannot be used with --operator: agents that the operator runs use the default units"
            )
        if self.device_plugin_configs is not None and not self.device_plugin_configs.is_dir():
            raise ValueError(
                f"{self.device_plugin_configs} is not a folder: use one with NVIDIA device plugin configuration files"
            )
        if self.decision_log_folder is not None and not self.decision_log_folder.is_dir():
            raise ValueError(f"{self.decision_log_folder} is not a folder: use an existing folder for the decision log")
        if not 0 <= self.port <= PORT_MAXIMUM:
            raise ValueError(f"invalid port {self.port}: must be from 1 to {PORT_MAXIMUM}, or 0 for any free port")

    def kubelet_of(self, choice: NodeChoice) -> ConfiguredKubelet:
        """How a node's kubelet is configured. Raises ValueError."""
        machine = choice.profile.machine
        try:
            configured = configure(self.kubelet.over(choice.profile.kubelet), machine)
            check_start(KubeletNode(configured.config, machine))
        except KubeletStartError as error:
            raise ValueError(f"node {choice.name}: kubelet would not start: {error}") from error
        except ValueError as error:
            raise ValueError(f"node {choice.name}: {error}") from error
        return configured


def node_choices(texts: Iterable[str]) -> tuple[NodeChoice, ...]:
    """Nodes from ``PROFILE`` or ``PROFILE:COUNT``, named ``<profile>-<n>``.

    Raises ValueError (or its subclass ``ProfileError``) with a message that says what to write instead.
    """
    names: dict[str, int] = {}
    found: list[NodeChoice] = []
    for text in texts or DEFAULT_NODES:
        wanted, colon, count = text.partition(":")
        profile = profiles.load(wanted)
        stem = wanted if wanted in profiles.names() else Path(wanted).stem.lower()
        for _ in range(_count(text, count if colon else "1")):
            number = names.get(stem, 0)
            names[stem] = number + 1
            found.append(NodeChoice(f"{stem}-{number}", profile))
    if len(found) > MAX_NODES:
        raise ValueError(f"the lab cannot emulate {len(found)} nodes: the maximum is {MAX_NODES}")
    return tuple(found)


def chosen_nodes(texts: Iterable[str]) -> tuple[tuple[NodeChoice, ...], tuple[HollowNodes, ...]]:
    """Nodes from ``PROFILE``, or ``FAMILY`` for hollow ones with another vendor's devices, each with ``:COUNT``.

    A family is named as `family_words` has it. Raises ValueError as `node_choices` does.
    """
    wanted = [(text, text.partition(":")) for text in texts]
    families = family_words()
    found: Counter[str] = Counter()
    for text, (word, colon, count) in wanted:
        if word in families:
            found[word] += _count(text, count if colon else "1")
    rest = [text for text, (word, _, _) in wanted if word not in families]
    hollow = tuple(HollowNodes(name=word, count=count, family=families[word]) for word, count in found.items())
    return node_choices(rest) if rest or not hollow else (), hollow


def family_words() -> dict[str, str]:
    """The families of other vendors' devices by the words that the command line has for them, such as ``hygon-dcu``."""
    return {name.lower().replace(" ", "-"): name for name in FAMILY_NAMES}


def _count(text: str, count: str) -> int:
    if not count.isdecimal() or int(count) < 1:
        raise ValueError(
            f'invalid node "{text}": must be PROFILE or PROFILE:COUNT with a count of 1 or more, such as t4-4:3'
        )
    return int(count)
