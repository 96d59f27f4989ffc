"""Where a pod can go now, and what of a node is reserved for it: the kernel, asked with what the cache knows.

- `Feasibility` (``feasibility``): which nodes fit, whether any does, and why none.
- `Reservations` (``reservations``): grants in the ledger before the API server has them.
- ``eligibility``: rules about a pod and a node that are kube-scheduler's, asked again.

Not here: how nodes are judged and devices chosen (``purser.core.placement``).
"""

from purser.scheduler.placement.eligibility import barred, is_of_others, is_placed_freely, names_devices, prefers_nodes
from purser.scheduler.placement.feasibility import Feasibility
from purser.scheduler.placement.reservations import ReservationError, Reservations

__all__ = [
    "Feasibility",
    "ReservationError",
    "Reservations",
    "barred",
    "is_of_others",
    "is_placed_freely",
    "names_devices",
    "prefers_nodes",
]
