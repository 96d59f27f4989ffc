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
    """Whether the condition holds."""
    reason: str
    """Reason, in one word."""
    message: str = ""
    """Cause, in one sentence."""
    last_transition_time: str = ""
    """When the status last changed; RFC 3339."""
    observed_generation: int = 0
    """Generation of the policy that the condition is about."""


class OperandStatus(Section, frozen=True, kw_only=True):
    """State of one operand."""

    name: str
    """Name of the operand."""
    state: Literal["disabled", "waiting", "progressing", "ready", "failing"]
    """State; waiting: no node has what the operand needs yet."""
    desired: int = 0
    """Nodes on which it should run."""
    ready: int = 0
    """Nodes on which it is ready."""
    updated: int = 0
    """Nodes on which its pod has the newest template."""
    waiting: int = 0
    """Nodes that do not have what it needs yet."""
    reason: str = ""
    """Reason of what blocks it on the first node, in one word."""
    message: str = ""
    """What blocks it, in one sentence."""


class FailingNode(Section, frozen=True, kw_only=True):
    """A node that cannot become ready by itself."""

    name: str
    """Name of the node."""
    operand: str = ""
    """Operand that fails; empty: the node itself."""
    reason: str = ""
    """Reason, in one word."""
    message: str = ""
    """Cause, in one sentence."""


class NodeCounts(Section, frozen=True, kw_only=True):
    """GPU nodes by state."""

    total: int = 0
    """All GPU nodes."""
    ready: int = 0
    """Nodes on which all operands are ready."""
    progressing: int = 0
    """Nodes that are being set up."""
    failing: int = 0
    """Nodes that cannot become ready by themselves."""
    excluded: int = 0
    """Nodes that their label nvidia.com/gpu.deploy.operands excludes."""


class PoolStatus(Section, frozen=True, kw_only=True):
    """A pool of nodes with the same OS, kernel and driver."""

    name: str
    """Name of the pool."""
    os: str = ""
    """Operating system and version."""
    kernel: str = ""
    """Kernel version."""
    driver: str = ""
    """Driver version."""
    nodes: int = 0
    """Number of nodes in the pool."""


class UpgradeStatus(Section, frozen=True, kw_only=True):
    """Progress of the driver upgrade."""

    pending: int = 0
    """Nodes that wait for their upgrade."""
    in_progress: int = 0
    """Nodes in upgrade."""
    done: int = 0
    """Nodes whose driver is up to date."""
    failed: int = 0
    """Nodes whose upgrade failed."""
    skipped: int = 0
    """Nodes that are skipped for now: NotReady, labelled to be skipped, or with a taint that is not tolerated."""
    progress: str = ""
    """Nodes that have the driver that they should have, as 12/40; empty if all do."""
    halted: bool = False
    """No further node begins, because too many failed."""
    halt_reason: str = ""
    """Why the upgrade is halted, in one sentence; empty: it is not."""
    target: str = ""
    """Target of the upgrade, comma-separated for several pools. The annotation purser.dev/resume-upgrade with this
    value, or a part of it, resumes a halted upgrade."""
    message: str = ""
    """What blocks it, in one sentence."""


class ClusterPolicyStatus(Section, frozen=True, kw_only=True):
    """State of the GPU stack."""

    state: State = ""
    """State in one word; ignored: an older policy is active."""
    namespace: str = ""
    """Namespace of the operands."""
    observed_generation: int = 0
    """Generation of the policy that this status is about."""
    conditions: tuple[Condition, ...] = ()
    """Ready, Progressing and Degraded."""
    nodes: NodeCounts = NodeCounts()
    """GPU nodes by state."""
    operands: tuple[OperandStatus, ...] = ()
    """State of each operand."""
    failing_nodes: tuple[FailingNode, ...] = ()
    """The first hundred nodes that cannot become ready by themselves."""
    pools: tuple[PoolStatus, ...] = ()
    """Pools of nodes."""
    upgrade: UpgradeStatus = UpgradeStatus()
    """Progress of the driver upgrade."""
