"""Whether a container fits each row of the fleet, and if not, why: for all nodes at once, and kept.

The checks are those of `feasibility`, in the same order, so that a node is refused in the same words whichever way it
was looked at. A container here is a size (`shape`), perhaps one that names uuids; what depends on more than that is
decided node by node (see `evaluate`).
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from purser.core.fleet.arrays import FleetArrays, Rows
from purser.core.fleet.live import LiveArrays
from purser.core.model import ContainerRequest, DeviceRequest
from purser.core.placement.kernels.arguments import Ints
from purser.core.placement.reasons import Reason, Refusal, dispute_detail
from purser.core.placement.shape import PodShape, wanted

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int8]

_REASONS = (
    Reason.NOT_HEALTHY,
    Reason.CORDONED,
    Reason.DISPUTED,
    Reason.TYPE_MISMATCH,
    Reason.UUID_MISMATCH,
    Reason.SLOTS_EXHAUSTED,
    Reason.EXCLUSIVE_CONFLICT,
    Reason.QUOTA_NOT_FIT,
    Reason.INSUFFICIENT_MEMORY,
    Reason.INSUFFICIENT_CORES,
    Reason.CORES_EXHAUSTED,
)
_TAKES, _NO_GPU = -1, -2
_MEMORY, _CORES = _REASONS.index(Reason.INSUFFICIENT_MEMORY), _REASONS.index(Reason.INSUFFICIENT_CORES)
_QUOTA = _REASONS.index(Reason.QUOTA_NOT_FIT)
_MOST = 1 << 62


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
    """Only devices that nobody uses."""
    quota: Quota = Quota.ALL
    uuids_allowed: tuple[str, ...] = ()
    """Empty: any."""
    uuids_denied: tuple[str, ...] = ()


class Verdicts:
    """The verdicts on one container, by row; of rows that changed they are made anew."""

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
        self._memory_needed: Ints = np.zeros(rows, np.int64)
        self._cores_free: Ints = np.zeros(rows, np.int64)
        self._numbers: dict[tuple[int, ...], int] = {}
        """By pattern of a refusal, in this order."""
        self._as_of = 0

    def _judge(self, rows: Rows) -> None:
        found = _Found(self._live, self._ask, rows)
        takes, when_idle = (found.codes == _TAKES).sum(axis=0), found.takes_when_idle.sum(axis=0)
        wanted_count, counts = self._ask.shape.gpu_count, found.gpu_count
        holds = self._ask.quota is Quota.ALL
        self.fits[rows] = (takes >= wanted_count) & (counts > 0) & holds & self._live.arrays.live[rows]
        resolvable = (when_idle >= wanted_count) & found.is_used & holds
        digits = [(found.codes == number).sum(axis=0) for number in range(len(_REASONS))]
        if self._ask.quota is Quota.PART:  # held against the devices that would be chosen, and nothing else is
            exceeds = takes >= wanted_count
            digits = [np.where(exceeds, 0, digit) for digit in digits]
            digits[_QUOTA] = np.where(exceeds, wanted_count, 0)
        self._kind[rows] = self._number([*digits, counts, resolvable])
        for short, code, field in (
            (self._memory_free, _MEMORY, "memory_free"),
            (self._cores_free, _CORES, "cores_free"),
        ):
            short[rows] = _most(np.where(found.codes == code, getattr(found, field).astype(np.int64), -_MOST))
        self._memory_needed[rows] = np.where(found.codes == _MEMORY, found.memory, 0).max(axis=0, initial=0)

    def _number(self, digits: Sequence[npt.NDArray[Any]]) -> Ints:
        """One number for each pattern of these amounts, always the same for the same."""
        _, example, place = np.unique(_key(digits), return_index=True, return_inverse=True)
        patterns = zip(*(digit[example].tolist() for digit in digits), strict=True)
        numbers = [self._numbers.setdefault(tuple(map(int, pattern)), len(self._numbers)) for pattern in patterns]
        return np.array(numbers, np.int64)[place]

    def _refusal(self, pattern: tuple[int, ...], rows: Rows, container: ContainerRequest) -> Refusal:
        *by_reason, devices, resolvable = pattern
        asked = container.devices  # the shape's amounts are bounded
        if not devices:
            return Refusal(((Reason.NO_DEVICES, 1),), container=container.name)
        counts = {reason: count for reason, count in zip(_REASONS, by_reason, strict=True) if count}
        suiting = devices - sum(by_reason)
        if suiting and not (self._ask.quota is Quota.PART and by_reason[_QUOTA]):
            counts[Reason.TOO_FEW_CARDS] = suiting
        memory_free, cores_free = int(self._memory_free[rows].max()), int(self._cores_free[rows].max())
        return Refusal(
            counts=tuple(sorted(counts.items())),
            devices=devices,
            container=container.name,
            resolvable=bool(resolvable),
            memory_needed_mib=self._memory_short(rows, asked) if memory_free > -_MOST else 0,
            memory_free_mib=memory_free if memory_free > -_MOST else 0,
            cores_needed_percent=min(asked.cores_percent, 100) if cores_free > -_MOST else 0,
            cores_free_percent=cores_free if cores_free > -_MOST else 0,
            count_needed=asked.count,
            detail=self._dispute(rows) if Reason.DISPUTED in counts else "",
        )

    def _dispute(self, rows: Rows) -> str:
        """One of the disputes on these nodes."""
        found = map(self._live.fleet.node, map(self._live.arrays.names.__getitem__, rows[:1].tolist()))
        states = (state for node in found if node is not None for state in node.devices)
        return next((dispute_detail(s.device.uuid, s.disputed) for s in states if s.disputed), "")

    def _memory_short(self, rows: Rows, asked: DeviceRequest) -> int:
        return asked.memory_mib if asked.memory_mib is not None else int(self._memory_needed[rows].max())


class _Found:
    """What one look at some rows finds, per GPU."""

    def __init__(self, live: LiveArrays, ask: VerdictKey, rows: Rows) -> None:
        def of_gpus(field: str) -> npt.NDArray[Any]:
            found: npt.NDArray[Any] = getattr(live.arrays, field).take(rows, axis=1)
            return found

        arrays, asked = live.arrays, wanted(ask.shape, live.arrays.models)
        size, self.memory_free = of_gpus("memory_mib"), of_gpus("memory_free_mib")
        cores, self.cores_free = of_gpus("cores_percent"), of_gpus("cores_free_percent")
        slots, slots_free, usable = of_gpus("slots"), of_gpus("slots_free"), of_gpus("usable")
        self.gpu_count = arrays.gpu_count[rows].astype(np.int64)
        there = np.arange(len(size))[:, None] < self.gpu_count
        self.memory = (
            size * np.int64(asked.memory_percent) // 100
            if asked.memory_percent
            else np.full(size.shape, asked.memory_mib)
        )
        other = ~asked.allowed[of_gpus("gpu_model")]
        foreign = ~_named(live, ask)[:, rows] if ask.uuids_allowed or ask.uuids_denied else None
        used = slots_free < slots
        self.is_used = (used & there).any(axis=0)
        checks = (
            (Reason.NOT_HEALTHY, ~usable & ~of_gpus("cordoned") & ~of_gpus("disputed")),
            (Reason.CORDONED, of_gpus("cordoned")),
            (Reason.DISPUTED, of_gpus("disputed")),
            (Reason.TYPE_MISMATCH, other),
            (Reason.UUID_MISMATCH, foreign),
            (Reason.SLOTS_EXHAUSTED, slots_free <= 0),
            (Reason.EXCLUSIVE_CONFLICT, used if ask.idle_only else None),
            (Reason.QUOTA_NOT_FIT, there if ask.quota is Quota.NOTHING else None),
            (Reason.INSUFFICIENT_MEMORY, self.memory_free < self.memory),
            (Reason.INSUFFICIENT_CORES, self.cores_free < asked.cores_percent),
            (Reason.EXCLUSIVE_CONFLICT, used if asked.alone else None),
            (Reason.CORES_EXHAUSTED, None if asked.cores_percent else (self.cores_free <= 0) & (cores > 0)),
            (Reason.EXCLUSIVE_CONFLICT, of_gpus("alone") > 0),
        )
        self.codes = _first(checks, there)
        never = (~usable, other, foreign, slots <= 0, size < self.memory, cores < asked.cores_percent)
        self.takes_when_idle = there & ~_any(fails for fails in never if fails is not None)


def _first(checks: Iterable[tuple[Reason, "Bools | None"]], there: Bools) -> Codes:
    """By GPU the number of the first check that fails."""
    codes = np.where(there, np.int8(_TAKES), np.int8(_NO_GPU))
    for reason, fails in reversed(tuple(checks)):
        if fails is not None:
            codes[fails & there] = _REASONS.index(reason)
    return codes


def _any(masks: Iterable[Bools]) -> Bools:
    found: Bools = np.logical_or.reduce(tuple(masks))
    return found


def _named(live: LiveArrays, ask: VerdictKey) -> Bools:
    """By GPU, for all rows: whether the uuids that the container names let it have the GPU."""
    arrays: FleetArrays = live.arrays
    may = np.full(arrays.memory_mib.shape, not ask.uuids_allowed)
    for uuids, named in ((ask.uuids_allowed, True), (ask.uuids_denied, False)):
        for row, gpu in live.places(uuids):
            may[gpu, row] = named
    return may


def _key(digits: Sequence[npt.NDArray[Any]]) -> Ints:
    """Equal for equal amounts and for no others."""
    key, span = np.zeros(len(digits[0]), np.int64), 1
    for digit in digits:
        base = int(digit.max(initial=0)) + 1
        if span * base > _MOST:
            key, span = np.unique(key, return_inverse=True)[1].astype(np.int64), len(key)
        key, span = key * base + digit, span * base
    return key


def _most(amounts: Ints) -> Ints:
    found: Ints = amounts.max(axis=0, initial=-_MOST)
    return found
