"""The nouns of a plan. Prices are integers without a unit; the cost of a plan is the sum of its steps' prices."""

from collections.abc import Mapping

import msgspec

from purser.core.fleet import Fleet
from purser.core.model import PodRequest

MOVED_POD_PRICE = 1
"""Price of a pod whose replacement has a place: it restarts."""

WAITING_POD_PRICE = 10
"""Price of a pod whose replacement has none now and waits."""

LOST_POD_PRICE = 100
"""Price of a pod that nothing recreates."""


class RoomRequest(msgspec.Struct, frozen=True):
    """How much room is wanted."""

    gpus: int
    """Whole GPUs, on each node."""
    nodes: int = 1


class Room(msgspec.Struct, frozen=True, order=True):
    """GPUs of one node that are to be free together."""

    node: str
    uuids: tuple[str, ...]
    """In the order of the node's indices."""


class GpuPod(msgspec.Struct, frozen=True):
    """A pod that holds GPUs."""

    request: PodRequest
    """What it asks for, and what its replacement will ask for."""
    returns: bool = True
    """Whether a controller recreates it."""
    stay_reason: str = ""
    """Why it is not evicted, to follow its name; empty: it may be."""
    nodes: frozenset[str] | None = None
    """Where its replacement may go by kube-scheduler's own rules; None: to any node."""
    budget: str = ""
    """The PodDisruptionBudget that counts its eviction; see `Occupancy.allowed`."""

    @property
    def least_price(self) -> int:
        """What its eviction costs at least."""
        return MOVED_POD_PRICE if self.returns else LOST_POD_PRICE


class Occupancy(msgspec.Struct, frozen=True):
    """A fleet and who is on it. Pods with grants that ``pods`` does not name stay."""

    fleet: Fleet
    pods: Mapping[str, GpuPod]
    """By uid."""
    allowed: Mapping[str, int] = {}
    """By budget, how many of its pods may be down now. A pod whose replacement has landed is no longer down."""
    closed: frozenset[str] = frozenset()
    """Nodes where room is of no use: new pods may not come there."""


class PlanStep(msgspec.Struct, frozen=True):
    """One eviction, and where the pod's replacement goes."""

    uid: str
    pod: str
    """``namespace/name``."""
    node: str
    gpus: tuple[str, ...]
    """uuids that it leaves."""
    price: int
    to: str = ""
    """The node; empty: the replacement waits, or nothing recreates the pod."""
    to_gpus: tuple[str, ...] = ()
    returns: bool = True


class RoomPlan(msgspec.Struct, frozen=True):
    """Steps after which the rooms are free, where their GPUs take no new pods meanwhile."""

    rooms: tuple[Room, ...]
    steps: tuple[PlanStep, ...]
    is_cheapest: bool
    """Whether the search has ruled out every cheaper plan; else it ended at its limit."""

    @property
    def cost(self) -> int:
        """The sum of the steps' prices."""
        return sum(step.price for step in self.steps)
