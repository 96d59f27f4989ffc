"""The status of a ClusterPolicy."""

from typing import Literal

from purser.operator.policy.fields import Section

State = Literal["", "ready", "notReady", "ignored"]
MAX_FAILING_NODES = 100
"""So many failing nodes are named; the counts are of all."""


class Condition(Section, frozen=True, kw_only=True):
    """A condition, as Kubernetes writes them."""

    type: str
    """Ready, Progressing or Degraded."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str
    """Why, in one word."""
    message: str = ""
    """Why, in one sentence."""
    last_transition_time: str = ""
    """When the status last changed; RFC 3339."""
    observed_generation: int = 0
    """For which generation of the policy it was found."""


class OperandStatus(Section, frozen=True, kw_only=True):
    """How one operand is doing."""

    name: str
    """Which operand."""
    state: Literal["disabled", "waiting", "progressing", "ready", "failing"]
    """Waiting: no node is far enough to get it."""
    desired: int = 0
    """On how many nodes it is to run."""
    ready: int = 0
    """On how many it is ready."""
    updated: int = 0
    """On how many it is of the newest template."""
    waiting: int = 0
    """How many nodes are not far enough to get it."""
    message: str = ""
    """What is in the way, in one sentence."""


class FailingNode(Section, frozen=True, kw_only=True):
    """A node that is not complete."""

    name: str
    """Which node."""
    operand: str = ""
    """What it fails at; empty: the node itself."""
    reason: str = ""
    """Why, in one word."""
    message: str = ""
    """Why, in one sentence."""


class NodeCounts(Section, frozen=True, kw_only=True):
    """GPU nodes by how far they are."""

    total: int = 0
    """All of them."""
    ready: int = 0
    """Complete."""
    progressing: int = 0
    """On their way."""
    failing: int = 0
    """Stuck."""
    excluded: int = 0
    """Excluded by their label nvidia.com/gpu.deploy.operands."""


class PoolStatus(Section, frozen=True, kw_only=True):
    """A pool of nodes with equal OS, kernel and driver."""

    name: str
    """Of the pool."""
    os: str = ""
    """Operating system and version."""
    kernel: str = ""
    """Kernel version."""
    driver: str = ""
    """Driver version."""
    nodes: int = 0
    """How many nodes are in it."""


class UpgradeStatus(Section, frozen=True, kw_only=True):
    """How far the driver upgrade is."""

    pending: int = 0
    """Nodes that wait for their turn."""
    in_progress: int = 0
    """Nodes under way."""
    done: int = 0
    """Nodes whose driver is up to date."""
    failed: int = 0
    """Nodes that failed."""
    skipped: int = 0
    """Nodes that are left out for now: NotReady, or told to be skipped."""
    progress: str = ""
    """How many of the nodes have the driver that they should have, 12/40; empty where all do."""
    halted: bool = False
    """Whether no further node begins, because too many failed."""
    halt_reason: str = ""
    """Why it is halted, in one sentence; empty: it is not."""
    target: str = ""
    """What the upgrade leads to, separated by commas for several pools; with the annotation purser.dev/resume-upgrade
    of this value, or of some of it, a halted one goes on."""
    message: str = ""
    """What is in the way, in one sentence."""


class ClusterPolicyStatus(Section, frozen=True, kw_only=True):
    """How the GPU stack is doing."""

    state: State = ""
    """In one word; ignored: an older policy is the active one."""
    namespace: str = ""
    """Where the operands run."""
    observed_generation: int = 0
    """The generation of the policy that all this is about."""
    conditions: tuple[Condition, ...] = ()
    """Ready, Progressing and Degraded."""
    nodes: NodeCounts = NodeCounts()
    """GPU nodes by how far they are."""
    operands: tuple[OperandStatus, ...] = ()
    """Each operand."""
    failing_nodes: tuple[FailingNode, ...] = ()
    """The first hundred nodes that are not complete and will not be by themselves."""
    pools: tuple[PoolStatus, ...] = ()
    """Each pool of nodes."""
    upgrade: UpgradeStatus = UpgradeStatus()
    """The driver upgrade."""
