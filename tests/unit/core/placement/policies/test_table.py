"""The table of scores looks again only at what changed, and keeps only so much."""

import numpy as np
import pytest
from tests.unit.core.placement.policies.fleets import fleet_of

from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.placement.kernels.arguments import Floats
from purser.core.placement.policies.protocol import Gpus
from purser.core.placement.shape import PodShape, View, resources_taken
from purser.core.placement.table import ShapeTable, place

SHARE = PodShape(0, 0, 1, gpu_memory_mib=100)


class Watched:
    """First fit, and remembers which rows it was asked about."""

    def __init__(self, steady: bool = True) -> None:
        self.steady = steady
        self.epoch = 0
        self.asked: list[list[int]] = []

    def rate(self, view: View) -> tuple[Floats, Gpus]:
        self.asked.append([int(row) for row in view.rows])
        return np.zeros(len(view.rows)), np.zeros(len(view.rows), np.int16)

    def choose(self, view: View) -> tuple[int, ...]:
        return tuple(range(view.shape.gpu_count))


def table(policy: Watched, nodes: int = 5, most_shapes: int = 3) -> ShapeTable:
    fleet = fleet_of([FleetNodeFacts(f"node-{n}", (GpuFacts("T4", 1000, 10),) * 2) for n in range(nodes)])
    return ShapeTable(fleet, policy, most_shapes)


def test_only_changed_rows_are_rated_again() -> None:
    watched = Watched()
    kept = table(watched)
    assert place(kept, SHARE) == (0, (0,))
    kept.fleet.take(0, (0,), resources_taken(kept.fleet, SHARE, 0, (0,)))
    kept.fleet.remove_node("node-3")
    place(kept, SHARE)
    place(kept, SHARE)
    assert watched.asked == [[0, 1, 2, 3, 4], [0, 3]]


def test_a_policy_that_decides_each_time_is_asked_about_all() -> None:
    watched = Watched(steady=False)
    kept = table(watched)
    place(kept, SHARE)
    kept.fleet.take(0, (0,), resources_taken(kept.fleet, SHARE, 0, (0,)))
    place(kept, SHARE)
    assert watched.asked == [[0, 1, 2, 3, 4]] * 2


def test_a_policy_that_changed_is_asked_about_all() -> None:
    watched = Watched()
    kept = table(watched)
    place(kept, SHARE)
    watched.epoch = 1
    place(kept, SHARE)
    assert watched.asked == [[0, 1, 2, 3, 4]] * 2


class Changeable(Watched):
    """Becomes another policy when it is asked about a second fleet size, and scores by what it is."""

    def rate(self, view: View) -> tuple[Floats, Gpus]:
        self.epoch = len(view.fleet)
        scores, gpus = super().rate(view)
        return scores + self.epoch, gpus


def test_all_rows_are_rated_by_one_and_the_same_policy_when_it_changes_on_the_way() -> None:
    changeable = Changeable()
    kept = table(changeable)
    assert set(kept.scores(SHARE)[:5]) == {5.0}
    kept.fleet.put_node(FleetNodeFacts("node-5", (GpuFacts("T4", 1000, 10),)))
    assert set(kept.scores(SHARE)[:6]) == {6.0}
    kept.scores(SHARE)
    assert changeable.asked == [[0, 1, 2, 3, 4], [5], [0, 1, 2, 3, 4, 5]]


def test_the_shape_not_asked_for_the_longest_is_forgotten() -> None:
    watched = Watched()
    kept = table(watched)
    for cpu in (0, 1, 2, 0, 3, 0):
        place(kept, PodShape(cpu))
    assert len(watched.asked) == 4
    place(kept, PodShape(1))
    assert len(watched.asked) == 5


def test_nodes_may_become_more_than_there_was_room_for() -> None:
    kept = table(Watched())
    place(kept, SHARE)
    for number in range(100):
        kept.fleet.put_node(FleetNodeFacts(f"node-0{number:03}", (GpuFacts("T4", 1000, 10),)), rank=-1)
    row, _ = place(kept, SHARE) or (-1, ())
    assert kept.fleet.names[row] == "node-0000"
    assert np.isfinite(kept.scores(SHARE)).sum() == 105


def test_a_node_that_is_gone_has_no_score() -> None:
    kept = table(Watched(), nodes=1)
    assert place(kept, SHARE) is not None
    kept.fleet.remove_node("node-0")
    assert place(kept, SHARE) is None


@pytest.mark.parametrize(("shape", "gpus"), [(PodShape(), ()), (PodShape(0, 0, 2, gpu_memory_mib=1), (0, 1))])
def test_a_pod_gets_as_many_gpus_as_it_wants(shape: PodShape, gpus: tuple[int, ...]) -> None:
    assert place(table(Watched()), shape) == (0, gpus)
