"""What to do about it, in the order in which it is done."""

from typing import Literal

import msgspec

from purser.operator.gauges import Gauge
from purser.operator.model.snapshot import LeftOut, NodeWorkload, ObjectKey, OperandPod, Raw
from purser.operator.policy.status import ClusterPolicyStatus


class Apply(msgspec.Struct, frozen=True, tag=True):
    """Server-side apply of a whole object, with force."""

    object: Raw
    why: str
    """``created``, ``changed`` or ``drift``: with the paths that differ."""


class Delete(msgspec.Struct, frozen=True, tag=True):
    """Remove an owned object; its uid is the precondition."""

    key: ObjectKey
    uid: str
    why: str


class Adopt(msgspec.Struct, frozen=True, tag=True):
    """Make an object belong to the active policy and change nothing else of it: one that is not rendered any more, but
    still needed as it is, would go with the policy that it came from."""

    key: ObjectKey
    uid: str
    owner: Raw
    """The owner reference that replaces those to other ClusterPolicies."""


class PatchNode(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """One merge patch of a node; None removes a key. Labels, annotations and cordon change in one write."""

    node: str
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    unschedulable: bool | None = None
    """None: as it is."""
    resource_version: str = ""
    """The node's, on condition of which it is patched; empty: on none."""
    why: str = ""


class DeletePod(msgspec.Struct, frozen=True, tag=True):
    """Delete an operand's pod: how an OnDelete DaemonSet is told to go on."""

    pod: OperandPod
    why: str


class Evict(msgspec.Struct, frozen=True, tag=True):
    """Ask for a pod's eviction, which its disruption budgets may refuse: then it is asked again in a later round."""

    workload: NodeWorkload
    why: str


class WriteStatus(msgspec.Struct, frozen=True, tag=True):
    """Write a policy's status; only when it differs from what is there."""

    policy: str
    status: ClusterPolicyStatus
    resource_version: str = ""
    """The policy's, on condition of which it is written; empty: on none."""


class SetFinalizer(msgspec.Struct, frozen=True, tag=True):
    """Add or remove the operator's finalizer, on condition of the policy's version."""

    policy: str
    resource_version: str
    finalizers: tuple[str, ...]


Action = Apply | Adopt | Delete | PatchNode | DeletePod | Evict | WriteStatus | SetFinalizer


class Say(msgspec.Struct, frozen=True):
    """An event on a policy or a node."""

    kind: Literal["ClusterPolicy", "Node"]
    name: str
    uid: str
    reason: str
    message: str
    warning: bool = False


class RoundOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one round came to. The actions are independent of one another unless order says otherwise: an edge does them
    in this order, tries all, and the next round sees what became of them."""

    actions: tuple[Action, ...] = ()
    events: tuple[Say, ...] = ()
    gauges: dict[Gauge, float] = {}
    look_again_s: float | None = None
    """When time alone changes something; None: never."""
    standstill: str = ""
    """Why this operator keeps its hands off everything, its policy's status included; empty: it does not."""
    left_out: tuple[LeftOut, ...] = ()
    """Nodes that a part of Purser failed on: nothing is done to them."""


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """What a state machine does in one round, at most one patch per node. The kernel merges it with the gates' labels
    into one write per node."""

    patches: dict[str, PatchNode] = {}
    """By node."""
    deletions: tuple[DeletePod, ...] = ()
    evictions: tuple[Evict, ...] = ()
    events: tuple[Say, ...] = ()
    waits: dict[str, str] = {}
    """By node: what it waits for, as the end of a sentence."""
    gauges: dict[Gauge, float] = {}
    look_again_s: float | None = None
