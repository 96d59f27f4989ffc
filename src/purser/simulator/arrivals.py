"""Pods arrive, one after the other, and none leaves: each is tried once, as in the evaluation of FGD."""

from collections import Counter
from collections.abc import Callable
from time import perf_counter

import msgspec
import numpy as np

from purser.core.placement.fragments import Causes
from purser.simulator.deciding import Decider, Shapes, check_overcommitted, shapes_of
from purser.simulator.decision_log import SimulationLog
from purser.simulator.metrics import Rows
from purser.simulator.workload import Order, SimWorkload

Tick = Callable[[int], None]
"""Called periodically with the number of events done."""

TICK_EVENTS = 256


class ArrivalsResult(msgspec.Struct, frozen=True):
    """What came of one run."""

    rows: Rows
    placed: int
    failed: dict[str, int]
    """By class."""
    first_failure: int | None
    """The first event whose pod found no place."""
    causes_at_full: Causes | None
    """What was idle once as much had arrived as there is; None where that never was."""
    causes_at_end: Causes
    seconds: float
    """Of decisions and what is measured of them."""


def run(
    workload: SimWorkload,
    order: Order,
    policy: str,
    learns: bool = False,
    tick: Tick = lambda _: None,
    log: SimulationLog | None = None,
) -> ArrivalsResult:
    """One policy on one order. Raises ValueError for a policy that there is none of."""
    shapes = shapes_of(workload)
    decider = Decider(workload, order, policy, learns, log)
    arrived = np.cumsum(shapes.demand_milli[shapes.of_pod[order.pods]])
    rows = Rows(arrived, workload.capacity_milli)
    full = int(np.searchsorted(arrived, workload.capacity_milli))
    begun = perf_counter()
    failed = _decide(shapes, order, decider, rows, 0, full, tick)
    causes = decider.causes() if full < len(arrived) else None
    failed += _decide(shapes, order, decider, rows, full, len(arrived), tick)
    seconds = perf_counter() - begun
    check_overcommitted(decider.fleet)
    classes = Counter(shapes.classes[shapes.of_pod[order.pods[event]]] for event in failed)
    return ArrivalsResult(
        rows,
        len(arrived) - len(failed),
        dict(classes.most_common()),
        failed[0] if failed else None,
        causes,
        decider.causes(),
        seconds,
    )


def _decide(shapes: Shapes, order: Order, decider: Decider, rows: Rows, start: int, end: int, tick: Tick) -> list[int]:
    """The events from start to end. Returns those whose pods found no place."""
    allocated = int(rows.allocated[start - 1]) if start else 0
    each, fragments, failed = shapes.distinct, decider.fragments, []
    for event, number in enumerate(shapes.of_pod[order.pods[start:end]].tolist(), start):
        shape = each[number]
        decider.arrived(shape)
        placement = decider.place(shape)
        if placement is None:
            failed.append(event)
        else:
            allocated += placement.milli
        rows.allocated[event] = allocated
        rows.fragments[event] = fragments.total
        if not event % TICK_EVENTS:
            tick(event)
    return failed
