"""Where on a GPU a MIG instance is to be created, so that what is left stays useful.

Of the places where it may lie, the one after which the next requests get the most: `LOOKAHEAD` requests are drawn from
what pods ask for, each is placed as well as can be or refused, and the memory slices that they get are counted, on
average. That is worked out exactly, for all that can be taken of a GPU and all profiles, once per mix of requests; a
choice is then one look into a table. On one GPU it comes close to the best that any choice of places can do
(benchmarks/mig.py).

Which of several GPUs is another question, for an empty one loses nothing to speak of to the next few requests. There it
counts how much room a GPU loses for what pods ask for: fragments, as FGD measures them.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from purser.core.mig.geometry import MigGeometryError, MigPlacement, bits_of
from purser.core.mig.profiles import MigKind, MigProfile
from purser.core.model import WHOLE_MILLI

LOOKAHEAD = 4
"""Requests. With two, 1g and 3g come into one another's way; with eight, a GPU is full before the last, and where it is
empty any place is as good as any other."""

_FULLNESS_WEIGHT = 1e-4
"""Of a loss, for each slice that is taken of a GPU: between equal losses, the fullest is the best. Losses that differ
at all differ by more than all slices together."""

_DECIMALS = 9
"""Values that differ less are equal: sums of fractions depend on their order."""


_Starts = NDArray[np.int16]
_Values = NDArray[np.float64]


class MigChooser:
    """Choices for GPUs of one kind, and one mix of requests. Made once and kept (`chooser`)."""

    starts: _Starts
    """``starts[mask, profile]``: where one more of the profile is to begin; -1: it does not fit. Profiles in the kind's
    order."""
    values: _Values
    """``values[mask]``: memory slices that the next requests get, on average."""
    useful_slices: _Values
    """``useful[mask]``: memory slices that a profile can still have, on average over the mix."""
    then: _Starts
    """``then[mask, profile]``: the mask with one more; as it is where it does not fit."""
    counts: _Starts
    """``counts[mask, profile]``: how many more there can be, each where it is best for the next."""
    costs: _Values
    """``costs[mask, profile]``: by what GPUs are compared, the least is the best: `loss`, and of equals the fullest;
    infinite where one more does not fit."""
    left_milli: _Starts
    """``left_milli[mask]``: ``useful_slices`` in thousandths of that of an empty GPU."""

    def __init__(self, kind: MigKind, weights: Mapping[str, float]) -> None:
        """``weights`` say how often each profile is asked for, by name, to any measure; empty: all alike, but for those
        with the media extension, which are rare. Raises `MigGeometryError` for a profile that is not offered."""
        if unknown := next((name for name in weights if kind.profile(name) is None), None):
            raise MigGeometryError(f"{kind.name} does not offer {unknown}")
        self.kind = kind
        self._columns = {profile.name: column for column, profile in enumerate(kind.profiles)}
        asked = {each: weights.get(each.name, 0.0) for each in kind.profiles}
        if not any(asked.values()):
            asked = {each: 0.0 if each.takes_media else 1.0 for each in kind.profiles}
        self.values = np.zeros(kind.masks)
        for _ in range(LOOKAHEAD):
            after = [weight * _best(kind, profile, self.values)[1] for profile, weight in asked.items()]
            self.values = np.sum(after, axis=0) / sum(asked.values())
        self.values = np.round(self.values, _DECIMALS)
        room = room_table(kind)
        slices = [asked[each] * each.memory_slices * room[:, self._columns[each.name]] for each in kind.profiles]
        self.useful_slices = np.round(np.sum(slices, axis=0) / sum(asked.values()), _DECIMALS)
        self.starts = np.stack([_best(kind, profile, self.values)[0] for profile in kind.profiles], axis=1)
        self._compute_values()

    def _compute_values(self) -> None:
        masks = np.arange(self.kind.masks)
        sizes = [(1 << profile.memory_slices) - 1 for profile in self.kind.profiles]
        media = [profile.takes_media << self.kind.slices for profile in self.kind.profiles]
        bits = np.array(sizes) << np.maximum(self.starts, 0) | np.array(media)
        fits = self.starts >= 0
        self.then = np.where(fits, masks[:, None] | bits, masks[:, None]).astype(np.int16)
        self.counts = np.zeros_like(self.then)
        for _ in range(self.kind.slices):  # no more than these fit
            self.counts = np.where(fits, 1 + np.take_along_axis(self.counts, self.then.astype(np.intp), 0), 0)
        taken = np.array([mask.bit_count() for mask in range(self.kind.masks)])
        losses = self.useful_slices[:, None] - self.useful_slices[self.then]
        self.costs = np.where(fits, losses - _FULLNESS_WEIGHT * taken[:, None], np.inf)
        self.left_milli = np.rint(WHOLE_MILLI * self.useful_slices / self.useful_slices[0]).astype(np.int16)

    def column(self, profile: str) -> int:
        """The place of a profile in the tables."""
        return self._columns[profile]

    def choose(self, profile: str, mask: int) -> MigPlacement | None:
        """Where to create an instance beside what is taken; None: it does not fit."""
        column = self._columns.get(profile)
        start = -1 if column is None else int(self.starts[mask, column])
        return MigPlacement(profile, start) if start >= 0 else None

    def loss(self, profile: str, mask: int) -> float | None:
        """How many useful memory slices the GPU loses by it; None: it does not fit.

        Of several GPUs the one that loses least is best, of equals the fullest.
        """
        placement = self.choose(profile, mask)
        if placement is None:
            return None
        return float(self.useful_slices[mask] - self.useful_slices[mask | bits_of(self.kind, placement)])


def _best(kind: MigKind, profile: MigProfile, values: _Values) -> tuple[_Starts, _Values]:
    """For each mask where one more begins best (-1: nowhere; of equals the highest), and what a request comes to: it is
    refused where that is better."""
    masks = np.arange(kind.masks)
    starts = np.array(profile.starts[::-1], np.int16)
    bits = np.array([[kind.bits(profile, int(start))] for start in starts])
    gains = np.where(masks & bits == 0, profile.memory_slices + values[masks | bits], -np.inf)
    best = gains.max(axis=0)
    return np.where(np.isinf(best), np.int16(-1), starts[gains.argmax(axis=0)]), np.maximum(values, best)


@lru_cache(maxsize=64)
def room_table(kind: MigKind) -> NDArray[np.int16]:
    """How many more of each profile fit, alone: ``table[mask, profile]``, profiles in the kind's order."""
    columns = []
    for profile in kind.profiles:
        places = [kind.bits(profile, start) for start in profile.starts]
        column = [0] * kind.masks
        for mask in reversed(
            range(kind.masks)
        ):  # whatever adds to a mask makes a larger number, which is known by then
            column[mask] = max((1 + column[mask | bits] for bits in places if not mask & bits), default=0)
        columns.append(column)
    table = np.array(columns, np.int16).T
    table.flags.writeable = False
    return table


@lru_cache(maxsize=64)
def _cached_chooser(kind: MigKind, weights: tuple[tuple[str, float], ...]) -> MigChooser:
    return MigChooser(kind, dict(weights))


def chooser(kind: MigKind, weights: Mapping[str, float] | None = None) -> MigChooser:
    """The choices for a kind and a mix, see `MigChooser`. Those that were used lately are kept."""
    return _cached_chooser(kind, tuple(sorted((weights or {}).items())))
