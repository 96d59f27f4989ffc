"""MIG instances on demand: what is refused, by where instances are created; beside first fit, NVIDIA's order, the best.

    python benchmarks/mig.py [--load 0.5] [--gpus 8] [--load-of-many 0.8] [--requests 20000]

Requests come at random (Poisson), each for a profile of the mix, and hold their instance for an exponential time; what
does not fit is refused and gone. A load of 0.5 asks for half of all memory slices, on average. Printed is the share of
the asked memory slices that is refused.

- first fit: the lowest place, as who goes through the devices in order finds it.
- driver: the place that NVIDIA's driver takes when nobody names one, as far as public listings of nvidia-smi show it:
  the upper half of the GPU first, in each half upwards.
- Purser: `purser.core.mig.choice`; "blind" knows nothing of the mix, and takes all profiles to be asked for alike.
- best: the best there is for who sees all instances, knows the mix, and refuses nothing that fits.

- Purser's scheduler: the same requests through the scheduler's own functions, from filter to ledger; it is blind.

One GPU is not simulated but worked out, over all ways in which it can be cut (value iteration). Many are simulated, all
with the same requests. Of batches that fit on an empty GPU at all it prints how many are placed wholly.
"""

import argparse
import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from purser.core.device.resources import mig_resource
from purser.core.fleet import Fleet
from purser.core.mig import MIG_KINDS, MigKind, MigProfile, free_starts, pack_instances
from purser.core.mig.choice import chooser
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceMode,
    DeviceRequest,
    Enforcement,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Evaluator, Placement
from purser.core.placement.granted import to_grant
from purser.core.placement.ranking import best

Indexes = NDArray[np.int64]
Mix = Mapping[str, float]
Chosen = Callable[[MigProfile, int], int | None]
"""Of a profile and what is taken: where it begins; None: it does not fit."""

MIXES: Mapping[str, tuple[str, Mix]] = {
    "A30, all alike": ("A30", {"1g.6gb": 1, "2g.12gb": 1, "4g.24gb": 1}),
    "A30, small": ("A30", {"1g.6gb": 4, "2g.12gb": 2, "4g.24gb": 0.5}),
    "all alike": ("A100-40GB", {"1g.5gb": 1, "1g.10gb": 1, "2g.10gb": 1, "3g.20gb": 1, "4g.20gb": 1, "7g.40gb": 1}),
    "small": ("A100-40GB", {"1g.5gb": 6, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 0.5, "7g.40gb": 0.2}),
    "inference": ("A100-40GB", {"1g.5gb": 5, "1g.10gb": 2, "2g.10gb": 3, "3g.20gb": 2}),
    "1g and 3g": ("A100-40GB", {"1g.5gb": 3, "3g.20gb": 1}),
    "1g, 2g, 4g": ("A100-40GB", {"1g.5gb": 3, "2g.10gb": 2, "4g.20gb": 1}),
}


def first_fit(kind: MigKind) -> Chosen:
    return lambda profile, mask: next(iter(free_starts(kind, profile, mask)), None)


def driver(kind: MigKind) -> Chosen:
    def chosen(profile: MigProfile, mask: int) -> int | None:
        return min(free_starts(kind, profile, mask), key=lambda start: (start < kind.slices // 2, start), default=None)

    return chosen


def purser(kind: MigKind, mix: Mix) -> Chosen:
    choices = chooser(kind, mix)

    def chosen(profile: MigProfile, mask: int) -> int | None:
        placement = choices.choose(profile.name, mask)
        return None if placement is None else placement.start

    return chosen


def ways(kind: MigKind, mix: Mix) -> dict[str, Chosen]:
    return {
        "first fit": first_fit(kind),
        "driver": driver(kind),
        "Purser, blind": purser(kind, {}),
        "Purser": purser(kind, mix),
    }


def profiles_of(kind: MigKind, mix: Mix) -> list[MigProfile]:
    return [profile for profile in kind.profiles if mix.get(profile.name)]


def arrivals(kind: MigKind, mix: Mix, load: float, gpus: int) -> dict[MigProfile, float]:
    """Rates, where an instance is held for one unit of time on average."""
    slices = sum(mix[profile.name] * profile.memory_slices for profile in profiles_of(kind, mix))
    return {profile: mix[profile.name] * load * gpus * kind.slices / slices for profile in profiles_of(kind, mix)}


# --- one GPU, worked out


class Cuts(NamedTuple):
    """All ways in which a GPU can be cut: each a set of instances."""

    masks: list[int]
    after: dict[MigProfile, Indexes]
    """By way and start: the way with one more instance; -1: it does not fit."""
    ends: tuple[Indexes, Indexes]
    """Each instance of each way: the way, and that without it."""


def cuts(kind: MigKind, profiles: Sequence[MigProfile]) -> Cuts:
    found: dict[frozenset[tuple[str, int]], int] = {frozenset(): 0}
    masks, after, queue = [0], {profile: [] for profile in profiles}, [frozenset()]
    ends: list[tuple[int, int]] = []
    for cut in queue:
        for profile in profiles:
            row = []
            for start in profile.starts:
                bits = kind.bits(profile, start)
                if masks[found[cut]] & bits:
                    row.append(-1)
                    continue
                more = cut | {(profile.name, start)}
                if more not in found:
                    found[more] = len(masks)
                    masks.append(masks[found[cut]] | bits)
                    queue.append(more)
                row.append(found[more])
                ends.append((found[more], found[cut]))
            after[profile].append(row)
    return Cuts(masks, {profile: np.array(rows) for profile, rows in after.items()}, (*np.array(ends).T,))


def refused_share(space: Cuts, rates: Mapping[MigProfile, float], way: Chosen | None) -> float:
    """Of the asked memory slices, in the long run. ``way`` None: the best."""
    events = sum(rates.values()) + max(np.bincount(space.ends[0]))
    own = np.arange(len(space.masks))
    leaving = np.bincount(space.ends[0], minlength=len(own))
    after = {
        profile: rows if way is None else _only(space.masks, profile, rows, way)
        for profile, rows in space.after.items()
    }
    values, steps = np.zeros(len(own)), np.array([0.0, 1.0])
    while np.ptp(steps) > 1e-10:
        new = (events - sum(rates.values()) - leaving) * values
        new += np.bincount(space.ends[0], weights=values[space.ends[1]], minlength=len(own))
        for profile, rate in rates.items():
            placed = np.where(after[profile] < 0, -np.inf, profile.memory_slices + values[after[profile]]).max(axis=1)
            new += rate * np.where(np.isinf(placed), values, placed)
        new /= events
        steps, values = new - values, new - new[0]
    gain = float(steps.mean() * events)
    return 1 - gain / sum(rate * profile.memory_slices for profile, rate in rates.items())


def _only(masks: Sequence[int], profile: MigProfile, rows: Indexes, way: Chosen) -> Indexes:
    kept = np.full_like(rows, -1)
    for at, mask in enumerate(masks):
        start = way(profile, mask)
        if start is not None:
            column = profile.starts.index(start)
            kept[at, column] = rows[at, column]
    return kept


# --- many GPUs, simulated


class Stream(NamedTuple):
    """Requests, by their times: profile, and how long it is held."""

    requests: list[tuple[float, MigProfile, float]]

    @classmethod
    def of(cls, rates: Mapping[MigProfile, float], count: int, seed: int) -> "Stream":
        chance, now, found = Random(seed), 0.0, []
        profiles, weights = list(rates), list(rates.values())
        for _ in range(count):
            now += chance.expovariate(sum(weights))
            found.append((now, chance.choices(profiles, weights)[0], chance.expovariate(1)))
        return cls(found)


Loss = Callable[[MigProfile, int], tuple[float, int] | None]
"""Of a profile and what is taken of a GPU; None: it does not fit."""


def simulated(kind: MigKind, gpus: int, stream: Stream, way: Chosen, loss: Loss) -> float:
    """The refused share; the GPU is the one with the least loss, of equals the first."""
    masks, running, refused, asked = [0] * gpus, [], 0, 0
    for now, profile, held in stream.requests:
        while running and running[0][0] <= now:
            _, gpu, bits = heapq.heappop(running)
            masks[gpu] &= ~bits
        asked += profile.memory_slices
        losses = ((lost, gpu) for gpu, mask in enumerate(masks) if (lost := loss(profile, mask)) is not None)
        if (least := min(losses, default=None)) is None:
            refused += profile.memory_slices
            continue
        start = way(profile, masks[least[1]])
        assert start is not None
        bits = kind.bits(profile, start)
        masks[least[1]] |= bits
        heapq.heappush(running, (now + held, least[1], bits))
    return refused / asked


def scheduled(kind: MigKind, gpus: int, stream: Stream) -> float:
    """The refused share by the scheduler's own path: filter, scores, devices, grant and ledger, nodes of four GPUs."""
    fleet, inventories = Fleet(), {}
    for first in range(0, gpus, 4):
        devices = (
            Device(
                f"gpu-{at}",
                at,
                kind.name,
                1 << 20,
                slots=7,
                mode=DeviceMode.MIG,
                enforcement=Enforcement.MIG,
                mig_kind=kind.name,
            )
            for at in range(first, min(first + 4, gpus))
        )
        inventories[f"n{first}"] = inventory = NodeInventory(f"n{first}", tuple(devices))
        fleet.set_inventory(inventory)
    evaluator, names = Evaluator(fleet), list(inventories)
    running, refused, asked = [], 0, 0
    for number, (now, profile, held) in enumerate(stream.requests):
        while running and running[0][0] <= now:
            fleet.ledger.release(heapq.heappop(running)[1])
        asked += profile.memory_slices
        wanted = DeviceRequest(1, memory_percent=100, cores_percent=100, resource=mig_resource(profile.name))
        pod = PodRequest(f"p{number}", "ns", "p", (ContainerRequest("c", ContainerKind.APP, wanted),))
        found = evaluator.evaluate(pod, names)
        if not found.fits:
            refused += profile.memory_slices
            continue
        placement = evaluator.place(best(found), pod)
        assert isinstance(placement, Placement)
        fleet.ledger.reserve(to_grant(placement, pod, inventories[placement.node]))
        heapq.heappush(running, (now + held, pod.uid))
    return refused / asked


def any_loss(way: Chosen) -> Loss:
    """The first GPU with room."""
    return lambda profile, mask: None if way(profile, mask) is None else (0.0, 0)


def room_loss(kind: MigKind, mix: Mix) -> Loss:
    """Purser's: least room lost, of equals the fullest."""
    choices = chooser(kind, mix)

    def loss(profile: MigProfile, mask: int) -> tuple[float, int] | None:
        lost = choices.loss(profile.name, mask)
        return None if lost is None else (lost, -mask.bit_count())

    return loss


# --- batches on an empty GPU


def batches(kind: MigKind, mix: Mix, count: int) -> list[list[MigProfile]]:
    """Of random requests until no more can fit, those that fit at all, of two or more."""
    chance, found = Random(5), []
    profiles = profiles_of(kind, mix)
    while len(found) < count:
        batch = chance.choices(profiles, [mix[profile.name] for profile in profiles], k=chance.randint(2, 7))
        if pack_instances(kind, [profile.name for profile in batch]) is not None:
            found.append(batch)
    return found


def is_placed(kind: MigKind, batch: Sequence[MigProfile], way: Chosen) -> bool:
    mask = 0
    for profile in batch:
        if (start := way(profile, mask)) is None:
            return False
        mask |= kind.bits(profile, start)
    return True


# --- tables


def told(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    columns = list(next(iter(rows.values())))
    print(f"\n{title}\n\n| mix | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(f'{100 * row[column]:.1f}%' for column in columns)} |")


def one_gpu(kind: MigKind, mix: Mix, load: float) -> dict[str, float]:
    rates = arrivals(kind, mix, load, 1)
    space = cuts(kind, list(rates))
    row = {name: refused_share(space, rates, way) for name, way in ways(kind, mix).items()}
    return {**row, "best": refused_share(space, rates, None)}


def many_gpus(kind: MigKind, mix: Mix, load: float, gpus: int, requests: int) -> dict[str, float]:
    stream = Stream.of(arrivals(kind, mix, load, gpus), requests, 1)
    row = {name: simulated(kind, gpus, stream, way, any_loss(way)) for name, way in ways(kind, mix).items()}
    return {
        **row,
        "blind, GPU by room lost": simulated(kind, gpus, stream, purser(kind, {}), room_loss(kind, {})),
        "Purser, GPU by room lost": simulated(kind, gpus, stream, purser(kind, mix), room_loss(kind, mix)),
        "Purser's scheduler": scheduled(kind, gpus, stream),
    }


def whole_batches(kind: MigKind, mix: Mix) -> dict[str, float]:
    there = batches(kind, mix, 1000)
    row = {name: sum(is_placed(kind, batch, way) for batch in there) for name, way in ways(kind, mix).items()}
    largest = [sorted(batch, key=lambda profile: -profile.compute_slices) for batch in there]
    row["driver, largest first"] = sum(is_placed(kind, batch, driver(kind)) for batch in largest)
    return {name: count / len(there) for name, count in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--load-of-many", type=float, default=0.8)
    parser.add_argument("--requests", type=int, default=20_000)
    arguments = parser.parse_args()
    began = time.process_time()
    mixes = {name: (MIG_KINDS[kind], mix) for name, (kind, mix) in MIXES.items()}
    told(
        f"One GPU, load {arguments.load}: refused", {name: one_gpu(*mix, arguments.load) for name, mix in mixes.items()}
    )
    told(
        f"{arguments.gpus} GPUs, load {arguments.load_of_many}, {arguments.requests} requests: refused",
        {
            name: many_gpus(*mix, arguments.load_of_many, arguments.gpus, arguments.requests)
            for name, mix in mixes.items()
        },
    )
    told("Batches that fit an empty GPU: placed wholly", {name: whole_batches(*mix) for name, mix in mixes.items()})
    print(f"\n{time.process_time() - began:.0f} s of processor time")


if __name__ == "__main__":
    main()
