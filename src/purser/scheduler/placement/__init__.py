"""Where a pod can go now, and what of a node is reserved for it: the kernel, asked with what the cache knows.

- `Feasibility` (``feasibility``): which nodes fit, whether any does, and why none.
- `Reservations` (``reservations``): grants in the ledger before the API server has them.

Not here: how nodes are judged and devices chosen (``purser.core.placement``).
"""

from purser.scheduler.placement.feasibility import Feasibility
from purser.scheduler.placement.reservations import ReservationError, Reservations

__all__ = [
    "Feasibility",
    "ReservationError",
    "Reservations",
]
