"""What to do: actions in the order in which they are done, events, gauges, and patches of one node made one write."""

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Literal, TypeVar

import msgspec

from purser.operator.model.snapshot import IsolatedNode, NodeView, NodeWorkload, ObjectKey, OperandPod, Raw
from purser.operator.policy.spec import ClusterPolicyStatus

# --- gauges


GAUGE_PREFIX = "gpu_operator_"


class Gauge(StrEnum):
    """A gauge's name, without its prefix."""

    GPU_NODES = "gpu_nodes_total"
    RECONCILIATION = "reconciliation_status"
    LAST_SUCCESS = "reconciliation_last_success_ts_seconds"
    HAS_NFD_LABELS = "reconciliation_has_nfd_labels"
    AUTO_UPGRADE = "driver_auto_upgrade_enabled"
    UPGRADES_IN_PROGRESS = "nodes_upgrades_in_progress"
    UPGRADES_DONE = "nodes_upgrades_done"
    UPGRADES_FAILED = "nodes_upgrades_failed"
    UPGRADES_AVAILABLE = "nodes_upgrades_available"
    UPGRADES_PENDING = "nodes_upgrades_pending"


GAUGE_HELP = {
    Gauge.GPU_NODES: "Nodes with a GPU.",
    Gauge.RECONCILIATION: "Result of the last reconciliation. 1: everything is ready; 0: not yet; "
    "-1: no ClusterPolicy to act on; -2: failed.",
    Gauge.LAST_SUCCESS: "Unix time of the last reconciliation in which everything was ready.",
    Gauge.HAS_NFD_LABELS: "Whether any node has labels from node-feature-discovery.",
    Gauge.AUTO_UPGRADE: "Whether automatic driver upgrades are enabled.",
    Gauge.UPGRADES_IN_PROGRESS: "Nodes whose driver is being upgraded.",
    Gauge.UPGRADES_DONE: "Nodes whose driver is up to date.",
    Gauge.UPGRADES_FAILED: "Nodes whose driver upgrade failed.",
    Gauge.UPGRADES_AVAILABLE: "Nodes that may start a driver upgrade now.",
    Gauge.UPGRADES_PENDING: "Nodes waiting for a driver upgrade.",
}


class Reconciliation(float, Enum):
    """Values of ``reconciliation_status``."""

    READY = 1.0
    NOT_READY = 0.0
    NO_POLICY = -1.0
    FAILED = -2.0


# --- actions and events


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
    """Delete an operand's pod: by which an OnDelete DaemonSet goes on."""

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


class EmitEvent(msgspec.Struct, frozen=True):
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
    events: tuple[EmitEvent, ...] = ()
    gauges: dict[Gauge, float] = {}
    requeue_after_s: float | None = None
    """When time alone changes something; None: never."""
    blocked: str = ""
    """Why this operator keeps its hands off everything, its policy's status included; empty: it does not."""
    isolated: tuple[IsolatedNode, ...] = ()
    """Nodes that a part of Purser failed on: nothing is done to them."""


class PlannedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a state machine does in one round, at most one patch per node. The round merges it with the gates' labels
    into one write per node."""

    patches: dict[str, PatchNode] = {}
    """By node."""
    deletions: tuple[DeletePod, ...] = ()
    evictions: tuple[Evict, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    waits: dict[str, str] = {}
    """By node: what it waits for, as the end of a sentence."""
    gauges: dict[Gauge, float] = {}
    requeue_after_s: float | None = None


# --- patches of one node


V = TypeVar("V")


def merged(node: NodeView, patches: Iterable[PatchNode | None]) -> PatchNode | None:
    """All patches of a node as one; of two words on a key the later counts. None: it is as wanted already."""
    given = [patch for patch in patches if patch is not None]
    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    unschedulable = None
    for patch in given:
        labels |= patch.labels
        annotations |= patch.annotations
        unschedulable = unschedulable if patch.unschedulable is None else patch.unschedulable
    labels, annotations = changes(labels, node.labels), changes(annotations, node.annotations)
    unschedulable = None if unschedulable == node.unschedulable else unschedulable
    if not labels and not annotations and unschedulable is None:
        return None
    why = ", ".join(dict.fromkeys(patch.why for patch in given if patch.why))
    return PatchNode(node=node.name, labels=labels, annotations=annotations, unschedulable=unschedulable, why=why)


def patched(node: NodeView, patch: PatchNode | None) -> NodeView:
    """The node as it will be."""
    if patch is None:
        return node
    return msgspec.structs.replace(
        node,
        labels=_apply_changes(node.labels, patch.labels),
        annotations=_apply_changes(node.annotations, patch.annotations),
        unschedulable=node.unschedulable if patch.unschedulable is None else patch.unschedulable,
    )


def changes(wanted: Mapping[str, V], have: Mapping[str, str]) -> dict[str, V]:
    """What of it differs from what is there."""
    return {key: value for key, value in wanted.items() if have.get(key) != value}


def _apply_changes(have: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    together: dict[str, str | None] = {**have, **changes}
    return {key: value for key, value in together.items() if value is not None}
