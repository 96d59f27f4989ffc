"""Choices of rooms, the cheapest first: against all there are, and where there are more than anybody can look at."""

from itertools import islice, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.planning.test_plan import occupancy_of
from tests.unit.core.planning.worlds import MEMORY, fleet_of, request_of

from purser.core.planning import GpuPod, RoomRequest, plan
from purser.core.planning.model import Room
from purser.core.planning.rooms import Site, choices_by_price

prices_of_nodes = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=4)


def sites_of(prices: list[list[int]]) -> list[Site]:
    found = [
        Site(price, Room(f"n{node}", (f"{node}-{at}",)), frozenset())
        for node, each in enumerate(prices)
        for at, price in enumerate(each)
    ]
    return sorted(found, key=lambda site: (site.price, site.room))


@given(prices_of_nodes, st.integers(1, 4))
def test_every_choice_comes_once_and_none_before_a_cheaper_one(prices: list[list[int]], nodes: int) -> None:
    found = list(choices_by_price(sites_of(prices), RoomRequest(1, nodes)))
    every = {
        frozenset(site.room for site in chosen)
        for chosen in product(sites_of(prices), repeat=nodes)
        if len({site.room.node for site in chosen}) == nodes
    }
    got = [frozenset(site.room for site in chosen) for _, chosen in found]
    assert (len(got), set(got)) == (len(every), every)
    assert all(price == sum(site.price for site in chosen) for price, chosen in found)
    assert all(before <= after for (before, _), (after, _) in pairwise(found))


def test_more_nodes_than_have_sites_are_none() -> None:
    assert not list(choices_by_price(sites_of([[1] * 100, [2] * 100]), RoomRequest(1, 3)))


def test_the_first_of_very_many_choices_is_there_at_once() -> None:
    found = islice(choices_by_price(sites_of([[1] * 128] * 1000), RoomRequest(1, 64)), 3)
    assert [price for price, _ in found] == [64, 64, 64]


@pytest.mark.parametrize("stays", ["", "its owner says so"])
def test_rooms_of_many_nodes_alike_end_at_the_limit(stays: str) -> None:
    """Each room costs the same, and no replacement has a place."""
    pods = [(GpuPod(request_of(f"p{n}", MEMORY), stay_reason=stays), f"n{n}") for n in range(40)]
    made = plan(occupancy_of(fleet_of([1] * 40), *pods), RoomRequest(1, 9), max_decisions=200)
    assert (made is None) == bool(stays)
