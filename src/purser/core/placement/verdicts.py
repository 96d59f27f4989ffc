"""Whether a container fits each row of the fleet, and if not, why: for all nodes at once, and kept.

A container here is a size (`shape`), perhaps one that names uuids; what depends on more than that is decided node by
node (see `evaluate`).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.fleet import rule
from purser.core.fleet.arrays import Rows
from purser.core.fleet.facts import ABSENT
from purser.core.fleet.live import LiveArrays
from purser.core.fleet.rule import FleetColumns, GpuDemand, Obstacles
from purser.core.model import ContainerRequest, DeviceRequest
from purser.core.placement.kernels.arguments import Bools, Ints
from purser.core.placement.reasons import OF_OBSTACLE, LargestFree, Reason, Refusal, build_refusal, dispute_detail
from purser.core.placement.shape import PodShape, columns_of, demand_of

_REASONS = tuple(dict.fromkeys(OF_OBSTACLE.values()))
_QUOTA = _REASONS.index(Reason.QUOTA_NOT_FIT)
_INT64_BOUND = 1 << 62


class Quota(IntEnum):
    """What the namespace's quota has room for."""

    ALL = 0
    """All that the container asks for, or there is none."""
    PART = 1
    """One device, but not as many as the container wants."""
    NOTHING = 2
    """Not even one device."""


class VerdictKey(msgspec.Struct, frozen=True):
    """All that a verdict depends on beside the fleet."""

    shape: PodShape
    idle_only: bool = False
    """Only unused devices."""
    quota: Quota = Quota.ALL
    uuids_allowed: tuple[str, ...] = ()
    """Empty: any."""
    uuids_denied: tuple[str, ...] = ()


class Verdicts:
    """The verdicts on one container, by row; recomputed for rows that changed."""

    def __init__(self, live: LiveArrays, ask: VerdictKey) -> None:
        self._live = live
        self._ask = ask
        self._as_of = 0
        self._reserve(len(live.arrays.live))

    def refresh(self) -> None:
        """Bring the verdicts up to the fleet as it now is."""
        arrays = self._live.arrays
        if len(self.fits) != len(arrays.live):
            self._reserve(len(arrays.live))
        if self._as_of < arrays.clock:
            self._judge((arrays.changed_at > self._as_of).nonzero()[0])
            self._as_of = arrays.clock

    def refusals(self, rows: Rows, container: ContainerRequest) -> list[Refusal]:
        """Why the container does not fit each of these rows, of which it fits none. Equal ones are one object."""
        kinds, patterns = self._kind[rows], list(self._numbers)
        refusals = {
            kind: self._refusal(patterns[kind], rows[kinds == kind], container) for kind in np.unique(kinds).tolist()
        }
        return list(map(refusals.__getitem__, kinds.tolist()))

    def _reserve(self, rows: int) -> None:
        self.fits: Bools = np.zeros(rows, np.bool_)
        """By row, whether the container fits."""
        self._kind: Ints = np.zeros(rows, np.int64)
        self._memory_free: Ints = np.zeros(rows, np.int64)
        self._memory_largest: Ints = np.zeros(rows, np.int64)
        self._cores_free: Ints = np.zeros(rows, np.int64)
        self._numbers: dict[tuple[int, ...], int] = {}
        """By pattern of a refusal, in this order."""
        self._as_of = 0

    def _judge(self, rows: Rows) -> None:
        key, arrays = self._ask, self._live.arrays
        here, also = rule.of_rows(columns_of(arrays), rows), _non_amount_obstacles(self._live, key, rows)
        demand = demand_of(key.shape, arrays.models, key.idle_only)
        found = rule.judge(here, demand, also)
        parts_free = arrays.parts_free.take(rows, axis=1)
        enough = _count(found, parts_free, key.shape, here, demand) >= key.shape.gpu_count
        self.fits[rows] = fits = enough & (arrays.gpu_count[rows] > 0) & (key.quota is Quota.ALL) & here.live
        if not fits.all():
            held = arrays.mig_held.take(rows, axis=1) if arrays.has_partitioned_gpus else here.mig_mask
            idle = rule.without_usage(here, held)
            demand = demand_of(key.shape, arrays.models)
            when_idle = rule.judge(idle, demand, also)
            parts = np.array([*(model.replicas for model in arrays.models), 1], np.int16)[here.gpu_model]
            is_used = ((here.slots_free < here.slots) | (parts_free < parts) & (here.closed != ABSENT)).any(axis=0)
            would_fit = (_count(when_idle, parts, key.shape, idle, demand) >= key.shape.gpu_count) & is_used
            would_fit &= key.quota is Quota.ALL
            self._note(rows, here, rule.first(found), enough, would_fit)

    def _note(self, rows: Rows, here: FleetColumns, first: Obstacles, enough: Bools, resolvable: Bools) -> None:
        """Why rows are refused."""
        key = self._ask
        by_reason = dict.fromkeys(_REASONS, np.zeros(len(rows), np.int64))
        for obstacle, reason in OF_OBSTACLE.items():
            by_reason[reason] = by_reason[reason] + (first == obstacle).sum(axis=0)
        digits = list(by_reason.values())
        if key.quota is Quota.PART:  # held against the devices that would be chosen, and nothing else is
            digits = [np.where(enough, 0, digit) for digit in digits]
            digits[_QUOTA] = np.where(enough, key.shape.gpu_count, 0)
        self._kind[rows] = self._number([*digits, self._live.arrays.gpu_count[rows], resolvable])
        short, slow = first == rule.SHORT_OF_MEMORY, first == rule.SHORT_OF_CORES
        self._memory_free[rows] = _most(np.where(short, here.memory_free_mib.astype(np.int64), -_INT64_BOUND))
        self._memory_largest[rows] = np.where(short, here.memory_mib, 0).max(axis=0, initial=0)
        self._cores_free[rows] = _most(np.where(slow, here.cores_free_percent.astype(np.int64), -_INT64_BOUND))

    def _number(self, digits: Sequence[npt.NDArray[Any]]) -> Ints:
        """One number for each pattern of these amounts, always the same for the same."""
        _, example, place = np.unique(_key(digits), return_index=True, return_inverse=True)
        patterns = zip(*(digit[example].tolist() for digit in digits), strict=True)
        numbers = [self._numbers.setdefault(tuple(map(int, pattern)), len(self._numbers)) for pattern in patterns]
        return np.array(numbers, np.int64)[place]

    def _refusal(self, pattern: tuple[int, ...], rows: Rows, container: ContainerRequest) -> Refusal:
        *by_reason, devices, resolvable = pattern
        obstacles = dict(zip(_REASONS, by_reason, strict=True))
        over_quota = self._ask.quota is Quota.PART and obstacles[Reason.QUOTA_NOT_FIT]
        for_rest = None if over_quota else Reason.TOO_FEW_GPUS
        memory, cores = int(self._memory_free[rows].max()), int(self._cores_free[rows].max())
        most = LargestFree(
            memory if obstacles[Reason.INSUFFICIENT_MEMORY] else 0,
            int(self._memory_largest[rows].max()),
            cores if obstacles[Reason.INSUFFICIENT_CORES] else 0,
        )
        dispute = self._find_dispute(rows, container.devices) if obstacles[Reason.DISPUTED] else ""
        return build_refusal(container, devices, obstacles, for_rest, most, "", bool(resolvable), dispute)

    def _find_dispute(self, rows: Rows, asked: DeviceRequest) -> str:
        """One of the disputes on these nodes; empty where the request's UUIDs rule these GPUs out."""
        found = map(self._live.fleet.node, map(self._live.arrays.names.__getitem__, rows[:1].tolist()))
        states = (state for node in found if node is not None for state in node.devices)
        return next(
            (
                dispute_detail(s.device.uuid, s.disputed)
                for s in states
                if s.disputed and not asked.excludes(s.device.uuid)
            ),
            "",
        )


def _count(
    found: Obstacles, parts: npt.NDArray[np.int16], shape: PodShape, here: FleetColumns, demand: GpuDemand
) -> Ints:
    """By row, how many devices a container can have there; of one that is divided it can have so many parts, and of one
    that is cut on demand so many instances."""
    takes = found == 0
    each: npt.NDArray[Any] = takes * parts if shape.is_plain else takes
    if len(demand.mig_counts):
        each = np.where(here.mig_mask >= 0, takes * rule.places(here, demand), each)
    there: Ints = each.sum(axis=0)
    return there


def _non_amount_obstacles(live: LiveArrays, key: VerdictKey, rows: Rows) -> "Obstacles | int":
    """By GPU, what stands in the way beside amounts: the uuids that the container names, and its namespace's quota."""
    if not (key.uuids_allowed or key.uuids_denied or key.quota is Quota.NOTHING):
        return 0
    found = np.full(live.arrays.memory_mib.shape, rule.OTHER_UUID if key.uuids_allowed else 0, np.int16)
    for uuids, obstacle in ((key.uuids_allowed, 0), (key.uuids_denied, rule.OTHER_UUID)):
        for row, gpu in live.places(uuids):
            found[gpu, row] = obstacle
    over = rule.OVER_QUOTA if key.quota is Quota.NOTHING else 0
    return found.take(rows, axis=1) | np.int16(over)


def _key(digits: Sequence[npt.NDArray[Any]]) -> Ints:
    """Equal for equal amounts and for no others."""
    key, span = np.zeros(len(digits[0]), np.int64), 1
    for digit in digits:
        base = int(digit.max(initial=0)) + 1
        if span * base > _INT64_BOUND:
            key, span = np.unique(key, return_inverse=True)[1].astype(np.int64), len(key)
        key, span = key * base + digit, span * base
    return key


def _most(amounts: Ints) -> Ints:
    found: Ints = amounts.max(axis=0, initial=-_INT64_BOUND)
    return found
