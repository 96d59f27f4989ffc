"""What is noted of a decision while a request waits: references to values that no later change touches.

`purser.core.decisions.recording` takes notes, and `purser.core.decisions.transcript` makes records of them, later and
in another thread.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.decisions.records import ModelsKnown, Moment, PlanMade, PodBound, PodGone, SchedulingStart
from purser.core.fleet import FreeResources, NominatedUsage
from purser.core.fleet.arrays import Rows
from purser.core.fleet.kubelet_snapshot import KubeletPods, ReportedKubelet
from purser.core.grant.quota import QuotaLimits
from purser.core.ledger import GrantProgress
from purser.core.model import NodeInventory, PodRequest
from purser.core.placement import Placement, Refusal
from purser.core.placement.mix import Mix

Held = Mapping[str, NominatedUsage]
"""What is kept of nodes for others: by node."""

_NOTE_BYTES = 1024
"""About what a note keeps in memory beside arrays."""

_REFUSED_NODE_BYTES = 100
"""The same of a node that is refused."""


class DecisionInputs(NamedTuple):
    """A decision's inputs beside the fleet. Nothing of it changes afterwards."""

    request: PodRequest
    left: QuotaLimits
    """What the quota of the pod's namespace leaves."""
    held: Held
    created: str = ""
    """When the pod was created, in RFC 3339. Empty: not known."""


class NodeNote(msgspec.Struct, frozen=True):
    """A node that changed, or came, as it is now."""

    name: str
    inventory: NodeInventory
    free: FreeResources
    disputes: Mapping[str, str]
    grants: tuple[GrantProgress, ...]
    report: ReportedKubelet | None
    pods: KubeletPods


class ChangesNote(msgspec.Struct, frozen=True):
    """What may be different of the fleet and of the pods to expect."""

    at: float
    is_moment: bool
    """What comes next is of this time, whether anything is different or not."""
    nodes: tuple[NodeNote, ...]
    gone: tuple[str, ...]
    mix: Mix


class JudgedNote(msgspec.Struct, frozen=True):
    """A pod was judged on nodes."""

    asked: DecisionInputs
    verb: str
    names: tuple[str, ...]
    """Of the rows of the evaluator's arrays; the same object as long as they are the same."""
    order: npt.NDArray[np.int64]
    """See `purser.core.fleet.arrays.FleetArrays.order`."""
    rows: Rows
    """That were asked about; the same array as long as they are the same, -1 for a node without inventory."""
    fitting: Rows
    scores: npt.NDArray[np.float64]
    refusals: Mapping[str, Refusal]
    """Where none fits; else empty."""
    clock: int


class PlacedNote(msgspec.Struct, frozen=True):
    """A pod was given devices of a node, or found not to fit."""

    asked: DecisionInputs
    node: str
    found: Placement | Refusal
    clock: int
    is_early: bool


Note = ChangesNote | JudgedNote | PlacedNote | SchedulingStart | ModelsKnown | Moment | PlanMade | PodBound | PodGone
"""The last six are records already."""


def bytes_held(note: Note) -> int:
    """About how much memory a note keeps until it is written."""
    if not isinstance(note, JudgedNote):
        return _NOTE_BYTES
    arrays = note.rows.nbytes + note.fitting.nbytes + note.scores.nbytes
    return _NOTE_BYTES + arrays + len(note.refusals) * _REFUSED_NODE_BYTES
