"""GPUs that are cut on demand: which of them a container's GPU instances are made on, and where.

One rule for all policies, for fleets (`rate_partitioned`) and for one node (`InstancePlaces`): of the GPUs that have a
place, the one that loses least room for other instances, of equals the fullest (`purser.core.mig.choice`). They come
after all other GPUs that would do, for an instance is as large as asked for or larger.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from purser.core.fleet import DeviceState
from purser.core.mig import MIG_KINDS, MigPlacement, MigProfile
from purser.core.mig.choice import MigChooser, chooser
from purser.core.mig.on_demand import asked_profile
from purser.core.mig.profiles import MAX_MASKS
from purser.core.model import DeviceRequest
from purser.core.placement.kernels.arguments import Floats, Ints
from purser.core.placement.policies.protocol import ArrayPolicy, Gpus
from purser.core.placement.shape import View

_LAST_RESORT_PENALTY = 1e9
"""Of a score: below that of any policy. There is precision left for what GPUs are compared by."""


def rate_partitioned(found: View, policy: ArrayPolicy) -> tuple[Floats, Gpus]:
    """As the policy's `ArrayPolicy.rate`, which is asked about the other GPUs alone."""
    is_partitioned = found.fleet.mig_mask.take(found.rows, axis=1) >= 0
    others = found.takes & ~is_partitioned
    fits_elsewhere = found.fits & (others.sum(axis=0) >= found.shape.gpu_count)
    after = np.where(is_partitioned, found.left, found.after)
    scores, gpus = policy.rate(replace(found, after=after, takes=others, fits=fits_elsewhere))
    rest = (found.fits & ~fits_elsewhere).nonzero()[0]
    if len(rest):
        missing = found.shape.gpu_count - others.sum(axis=0)[rest]
        costs, chosen = _cheapest_instances(found, rest, missing)
        scores[rest], gpus[rest] = -_LAST_RESORT_PENALTY - costs, chosen[0]
    return scores, gpus


def choose_cut(found: View, policy: ArrayPolicy) -> tuple[int, ...]:
    """The GPUs of the one row of a view, as the policy's `ArrayPolicy.choose`; one that is cut on demand is there once
    for each instance. Containers get all others that they can have first."""
    is_partitioned = found.fleet.mig_mask.take(found.rows, axis=1) >= 0
    others = found.takes & ~is_partitioned
    missing = found.shape.gpu_count - others.sum(axis=0)
    if missing[0] <= 0:
        return policy.choose(replace(found, after=np.where(is_partitioned, found.left, found.after), takes=others))
    _, chosen = _cheapest_instances(found, np.zeros(1, np.intp), missing)
    return (*others[:, 0].nonzero()[0].tolist(), *chosen[:, 0].tolist())


def _cheapest_instances(found: View, places: Ints, missing: Ints) -> tuple[Floats, Gpus]:
    """Of these rows of a view, what so many instances cost together, and by instance their GPUs; -1: no more."""
    fleet, rows = found.fleet, found.rows[places]
    tables = [_costs(model.mig_kind, found.shape.profile(model)) for model in fleet.models]
    costs, then = (np.stack(each) for each in zip(*tables, strict=True))
    model = fleet.gpu_model.take(rows, axis=1)
    masks = np.where(found.takes[:, places], fleet.mig_mask.take(rows, axis=1), -1)
    most = int(missing.max())
    total, chosen = np.zeros(len(rows)), np.full((most, len(rows)), -1, np.int16)
    at = np.arange(len(rows))
    for instance in range(most):
        cost = np.where(masks >= 0, costs[model, masks], np.inf)
        best = cost.argmin(axis=0)
        wanted = instance < missing
        total += np.where(wanted, cost[best, at], 0.0)
        chosen[instance] = np.where(wanted, best, -1)
        masks[best, at] = np.where(wanted, then[model[best, at], masks[best, at]], masks[best, at])
    return total, chosen


def _costs(kind: str, profile: MigProfile | None) -> tuple[Floats, Ints]:
    """By mask, what one more instance costs, and the mask with it."""
    costs, then = np.full(MAX_MASKS, np.inf), np.arange(MAX_MASKS)
    if profile is not None:
        tables = chooser(MIG_KINDS[kind])
        column, masks = tables.column(profile.name), tables.kind.masks
        costs[:masks], then[:masks] = tables.costs[:, column], tables.then[:, column]
    return costs, then


Wants: TypeAlias = Sequence[DeviceRequest]


def wanted_by_run(row: Wants, at: int) -> Wants:
    """What the instances of a container must be large enough for, of a run of init containers with the container after
    it that asks for the same resource.

    kubelet hands the devices of init containers on, and asks for the answers to all containers before it starts the
    first: an instance cannot give way to another while the pod starts. So the containers that come after get the same
    one, and it is as large as the largest of them needs. Where they ask for more devices than those before them, those
    get instances of their own size beside it.
    """
    return row if len({asked.count for asked in row}) == 1 else row[at:]


def _size(profile: MigProfile) -> tuple[int, int]:
    return profile.memory_slices, profile.compute_slices


class InstancePlaces:
    """The GPUs of one node that are cut on demand, and one pod's instances there.

    No two of these lie on one place, but those of containers that run one after the other: an init container's instance
    is handed on to a container after it that gets the same profile there. What a container wants there is said by all
    requests that its instances must be large enough for (`wanted_by_run`).
    """

    def __init__(self, states: Sequence[DeviceState]) -> None:
        self._devices = [state.device for state in states]
        self._masks = {at: state.mig_mask for at, state in enumerate(states) if state.device.mig_kind}
        self._reusable: dict[int, list[MigPlacement]] = {at: [] for at in self._masks}
        self.has_taken = False
        """Whether the pod has an instance by now."""

    def __contains__(self, at: int) -> bool:
        """Whether the device in this position is one of them."""
        return at in self._masks

    def __iter__(self) -> Iterator[int]:
        return iter(self._masks)

    def count(self, at: int, wants: Wants) -> int:
        """How many instances a container can have there."""
        if (found := self._table(at, wants)) is None:
            return 0
        tables, column, profile = found
        return int(tables.counts[self._masks[at], column]) + self._reusable_count(at, profile)

    def order(self, counts: Counter[int], wants: Wants) -> list[int]:
        """The positions of GPUs that have room for so many instances, each as often as it has; the best first."""
        reused: list[int] = []
        for at, count in counts.items():
            if (found := self._table(at, wants)) is not None:
                reused.extend([at] * min(count, self._reusable_count(at, found[2])))
        left, masks, fresh = counts - Counter(reused), dict(self._masks), []
        costs = {at: self._cost(at, masks[at], wants) for at in left}
        while costs:
            at = min(costs, key=lambda at: (costs[at][0], at))
            fresh.append(at)
            left[at] -= 1
            masks[at] = costs[at][1]
            if left[at]:
                costs[at] = self._cost(at, masks[at], wants)
            else:
                del costs[at]
        return [*reused, *fresh]

    def take(self, positions: Sequence[int], wants: Wants, *, is_init: bool) -> list[MigPlacement] | None:
        """An instance on each of these; None: there is no place. ``is_init``: the container ends before the next."""
        taken: list[MigPlacement] = []
        spare = {at: list(there) for at, there in self._reusable.items()}
        for at in positions:
            if (found := self._table(at, wants)) is None:
                return None
            tables, column, profile = found
            placement = next((each for each in spare[at] if each.profile == profile), None)
            if placement is not None:
                spare[at].remove(placement)
            else:
                placement = tables.choose(profile, self._masks[at])
                if placement is None:
                    return None
                self._masks[at] = int(tables.then[self._masks[at], column])
                if is_init:
                    self._reusable[at].append(placement)
            taken.append(placement)
            self.has_taken = True
        if not is_init:
            self._reusable = spare
        return taken

    def profile(self, at: int, wants: Wants) -> MigProfile | None:
        """The profile of a container's instances there; None: none will do."""
        found = [asked_profile(self._devices[at], asked) for asked in wants]
        known = [profile for profile in found if profile is not None]
        return max(known, key=_size) if len(known) == len(found) else None

    def _table(self, at: int, wants: Wants) -> tuple[MigChooser, int, str] | None:
        """The choices for a container's instances there, their column, and their profile."""
        profile = self.profile(at, wants)
        if profile is None:
            return None
        tables = chooser(MIG_KINDS[self._devices[at].mig_kind])
        return tables, tables.column(profile.name), profile.name

    def _reusable_count(self, at: int, profile: str) -> int:
        return sum(each.profile == profile for each in self._reusable[at])

    def _cost(self, at: int, mask: int, wants: Wants) -> tuple[float, int]:
        """What one more costs there, and the mask with it."""
        if (found := self._table(at, wants)) is None:
            return np.inf, mask
        tables, column, _ = found
        return float(tables.costs[mask, column]), int(tables.then[mask, column])
