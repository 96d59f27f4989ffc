"""Planning: which pods have to leave which GPUs, in which order, so that whole GPUs are free together.

`plan` finds the steps: each evicts one pod, whose controller replaces it, and says where the scheduler puts the
replacement by the same decision as when it runs (`purser.core.placement`), on the fleet as the step before leaves it.
`least_cost` is a lower bound of what any plan costs, from a mixed-integer program that relaxes how pods fill GPUs.

`model` has the nouns, `rooms` the places where room can be made, `rehearsal` the fleet after some steps, `search` and
`bound` the two answers. docs/plan.md says what a step costs. Nothing here reads or changes a cluster.
"""

from purser.core.planning.bound import NoBoundError, least_cost
from purser.core.planning.model import (
    LOST_POD_PRICE,
    MOVED_POD_PRICE,
    WAITING_POD_PRICE,
    GpuPod,
    Occupancy,
    PlanStep,
    Room,
    RoomPlan,
    RoomRequest,
)
from purser.core.planning.rooms import usable_gpus
from purser.core.planning.search import plan, rehearse

__all__ = [
    "LOST_POD_PRICE",
    "MOVED_POD_PRICE",
    "WAITING_POD_PRICE",
    "GpuPod",
    "NoBoundError",
    "Occupancy",
    "PlanStep",
    "Room",
    "RoomPlan",
    "RoomRequest",
    "least_cost",
    "plan",
    "rehearse",
    "usable_gpus",
]
