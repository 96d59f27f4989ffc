"""GPUs by how they are connected."""

import pytest
from tests.unit.core.placement.policies.fleets import fleet_of

from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.interconnect import Topology, matrix
from purser.core.placement.policies import policy
from purser.core.placement.shape import PodShape, resources_taken
from purser.core.placement.table import ShapeTable, place

PAIRS = Topology((0, 1, 2, 3), matrix(4, {(0, 2): 100, (1, 3): 100}))
"""GPUs 0 and 2 are linked, and 1 and 3."""


def table(links: Topology | None = PAIRS) -> ShapeTable:
    gpus = (GpuFacts("A100", 1000, 10),) * 4
    return ShapeTable(fleet_of([FleetNodeFacts("node", gpus, links=links)]), policy("topology"))


def take(kept: ShapeTable, shape: PodShape) -> tuple[int, ...]:
    placement = place(kept, shape)
    assert placement is not None
    kept.fleet.take(*placement, resources_taken(kept.fleet, shape, *placement))
    return placement[1]


@pytest.mark.parametrize(("links", "gpus"), [(PAIRS, {0, 2}), (None, {0, 1})])
def test_two_gpus_are_a_linked_pair_where_links_are_known(links: Topology | None, gpus: set[int]) -> None:
    assert set(take(table(links), PodShape(0, 0, 2, gpu_memory_mib=1000))) == gpus


def test_what_is_taken_is_left_out_and_pairs_are_kept_whole() -> None:
    kept = table()
    one = take(kept, PodShape(0, 0, 1, gpu_memory_mib=1000))
    two = take(kept, PodShape(0, 0, 2, gpu_memory_mib=1000))
    assert set(two) in ({0, 2}, {1, 3})
    assert not set(one) & set(two)


def test_a_share_goes_to_a_gpu_that_is_open_already() -> None:
    kept = table()
    share = PodShape(0, 0, 1, gpu_memory_mib=100)
    assert take(kept, share) == take(kept, share)
