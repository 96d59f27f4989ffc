"""What is said of one pod: the noun."""

import msgspec

from purser.core.explaining.grouping import ReasonCount
from purser.scheduler.explaining.changes import Suggestion
from purser.scheduler.explaining.choosing import ChosenNode
from purser.scheduler.explaining.starting import Obstacle


class Explanation(msgspec.Struct, frozen=True):
    """Why a pod waits, or where it is."""

    namespace: str
    pod: str
    scheduler: str
    state: str
    """``Waiting``, ``Placed``, ``Ended``, or ``New``: of a manifest, so that it does not exist yet."""
    node: str = ""
    nodes: int = 0
    """How many there are."""
    fits: tuple[str, ...] = ()
    """The nodes that would take it now; of a pod that waits or is new."""
    gates: str = ""
    """Names of its scheduling gates, with commas between; empty: it has none."""
    fits_without_gates: tuple[str, ...] = ()
    """The nodes that would take it now but for these. The reasons are those of the others."""
    objection: str = ""
    """Why it is placed nowhere, whatever the nodes; of a pod that has ended, its last reason and message."""
    obstacle: Obstacle | None = None
    """What keeps a pod on a node from running there, or why one failed."""
    last_message: str = ""
    """What its scheduler said last of a pod that waits, by the pod's condition PodScheduled."""
    reasons: tuple[ReasonCount, ...] = ()
    further_reasons: tuple[ReasonCount, ...] = ()
    """Where it fits nowhere: what else keeps it from the nodes that have a reason of kube-scheduler."""
    by_node: dict[str, str] = {}
    """Of each node that does not take it, why."""
    suggestions: tuple[Suggestion, ...] = ()
    """Any one of them would make it fit: each was judged on the changed cluster."""
    choice: ChosenNode | None = None
    """Of a pod that is on a node."""
    at: str = ""
    """Of a decision log: when it was decided, in RFC 3339. All else is as it was then."""
    notes: tuple[str, ...] = ()
    """What of the cluster could not be read."""


class UnknownPodError(ValueError):
    """There is no such pod; the message says so."""
