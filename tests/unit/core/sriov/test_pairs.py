"""Pairs of GPUs and network devices under one PCIe switch, against what trying everything finds."""

from itertools import combinations, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Grant, NodePool, PoolPlace, PoolShare
from purser.core.placement.choice import pick_first
from purser.core.placement.nics import pair_gpus, pick_near_nics
from purser.core.sriov.pairs import (
    ContainerPairs,
    FreePlace,
    PoolAsk,
    pairing_depth,
    pairs_of,
    pairs_sentence,
    taken_by_grants,
)

NET, RAIL = "mellanox.com/net", "mellanox.com/rail"
TREES = ((), ("r0",), ("r0", "a"), ("r0", "b"), ("r1",), ("r1", "a1"), ("r2",))
"""Above a device: no switch, and switches of three root ports, some below others."""

switches = st.sampled_from(TREES)
places = st.dictionaries(switches, st.integers(0, 2), max_size=4)


def ask(resource, count, free):
    of = tuple(FreePlace(resource, "/".join(tree), tree, number) for tree, number in free.items())
    return PoolAsk(resource, count, of)


asks = st.tuples(st.integers(0, 3), places, st.integers(0, 2), places).map(
    lambda drawn: [each for each in (ask(NET, *drawn[:2]), ask(RAIL, *drawn[2:])) if each.count]
)


def most_pairs(asked, gpus):
    """By trying all ways to give each of the devices asked for to one GPU, or to none."""
    devices = [
        [(each.resource, each.place, number, each.switches) for each in pool.places for number in range(each.free)]
        for pool in asked
    ]
    best = 0
    for taken in product(
        *(combinations(each, min(len(each), pool.count)) for each, pool in zip(devices, asked, strict=True))
    ):
        given_ = [device for of_pool in taken for device in of_pool]
        gpus_or_none = [*range(len(gpus)), *([None] * len(given_))]
        for holders in set(permutations(gpus_or_none, len(given_))):
            pairs = sum(
                holder is not None and pairing_depth(gpus[holder], device[3]) > 0
                for holder, device in zip(holders, given_, strict=True)
            )
            best = max(best, pairs)
        if best == min(len(gpus), len(given_)):
            return best
    return best


@given(asks, st.lists(switches, max_size=4))
def test_there_are_as_many_pairs_as_there_can_be(asked, gpus):
    found = pair_gpus(asked, gpus)
    assert found.count == most_pairs(asked, gpus)
    shares = found.shares("main")
    for pool in asked:
        mine = {share.place: share.count for share in shares if share.resource == pool.resource}
        free = {each.place: each.free for each in pool.places}
        assert all(count <= free[place] for place, count in mine.items())
        assert sum(mine.values()) == min(pool.count, sum(free.values()))
    held = [
        FreePlace(share.resource, share.place, tuple(filter(None, share.place.split("/"))), share.count)
        for share in shares
    ]
    again = [
        PoolAsk(pool.resource, pool.count, tuple(each for each in held if each.resource == pool.resource))
        for pool in asked
    ]
    assert pair_gpus(again, gpus).count == found.count  # with the devices that it gets, and no others


@given(asks, st.lists(switches, min_size=1, max_size=6), st.data())
def test_the_gpus_that_are_picked_have_as_many_pairs_as_any_could(asked, gpus, data):
    count = data.draw(st.integers(1, min(3, len(gpus))))
    order = data.draw(st.permutations(range(len(gpus))))
    taken = order[: data.draw(st.integers(0, count - 1))]
    chosen = pick_near_nics(asked, gpus, pick_first)(order, count, taken)
    assert len(set(chosen)) == count
    assert chosen[: len(taken)] == tuple(taken)
    others = [place for place in order if place not in taken]
    sets = combinations(others, count - len(taken))
    best = max(most_pairs(asked, [gpus[place] for place in (*taken, *each)]) for each in sets)
    assert pair_gpus(asked, [gpus[place] for place in chosen]).count == best


def test_a_gpu_leaves_its_device_to_one_that_can_have_no_other():
    asked = [ask(NET, 1, {("r0",): 1, ("r1",): 1}), ask(RAIL, 1, {("r0",): 1})]
    found = pair_gpus(asked, [("r0",), ("r1",)])
    assert found.count == 2
    assert {(share.resource, share.place) for share in found.shares("c")} == {(RAIL, "r0"), (NET, "r1")}
    full = [ask(NET, 2, {("r0",): 1, ("r0", "a"): 1})]
    assert pair_gpus(full, [("r0", "a"), ("r0",)]).count == 2


def test_with_pairs_for_all_it_is_the_policy_that_picks():
    asked = [ask(NET, 2, {("r0",): 2, ("r1",): 2})]
    gpus = [("r0",), ("r0",), ("r1",), ("r1",)]
    assert pick_near_nics(asked, gpus, pick_first)((3, 1, 0, 2), 2, ()) == (3, 1)
    assert pick_near_nics(asked, [("r2",), *gpus], pick_first)((0, 4, 3, 2, 1), 2, ()) == (4, 3)


def test_devices_beyond_pairs_are_near_the_gpus_as_well():
    asked = [ask(NET, 3, {("r0",): 2, ("r1",): 8, (): 9})]
    shares = pair_gpus(asked, [("r0",)]).shares("main")
    assert {(each.place, each.count) for each in shares} == {("r0", 2), ("", 1)}


def test_thousands_of_gpus_and_places_take_no_time():
    """As a node could claim to have: each place is looked at once for the GPUs of one switch."""
    trees = [(f"r{number}",) for number in range(64)]
    asked = [ask(f"x/{pool}", 64, dict.fromkeys(trees, 1 << 30)) for pool in range(32)]
    gpus = [trees[number % 64] for number in range(1024)]
    assert pair_gpus(asked, gpus).count == 1024
    asked = [ask(f"x/{pool}", 1 << 30, {trees[0]: 1}) for pool in range(32)]
    assert pair_gpus(asked, gpus).count == 16


def grant(*shares, **containers):
    parts = tuple(
        ContainerGrant(name, kind, tuple(DeviceShare(uuid, 1, 100) for uuid in uuids))
        for name, (kind, uuids) in containers.items()
    )
    return Grant("uid", "default", "p", "n", parts, pools=tuple(PoolShare(*each) for each in shares))


INIT, APP = ContainerKind.INIT, ContainerKind.APP


def test_what_init_containers_have_is_handed_on():
    found = grant(
        ("first", NET, "a", 2), ("main", NET, "a", 1), ("side", NET, "b", 1), ("main", NET, "b", 1),
        first=(INIT, "x"), main=(APP, "x"), side=(APP, "y"),
    )  # fmt: skip
    assert taken_by_grants([found, found]) == {(NET, "a"): 4, (NET, "b"): 4}
    assert taken_by_grants([grant(main=(APP, "x"))]) == {}


POOLS = (NodePool(NET, (PoolPlace(("r0",), 2), PoolPlace(("r1",), 2, 1))),)


def test_a_grant_says_how_its_devices_are_aligned():
    above = {"x": ("r0",), "y": ("r1",), "z": ("r2",)}
    both = grant(("main", NET, "r0", 1), ("main", NET, "r1", 1), main=(APP, "xy"))
    assert pairs_of(both, above, POOLS) == [ContainerPairs("main", 2, 2, 2)]
    assert pairs_of(grant(("main", NET, "gone", 1), main=(APP, "x")), above, POOLS) == [ContainerPairs("main", 1, 1, 0)]
    assert pairs_of(grant(main=(APP, "x")), above, POOLS) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((2, 2, 2), "2 of 2 GPUs have their network device under the same PCIe switch"),
        ((1, 4, 1), "1 of 1 GPU has its network device under the same PCIe switch"),
        ((8, 2, 1), "1 of 2 network devices has a GPU under the same PCIe switch"),
        ((8, 1, 0), "0 of 1 network device has its GPU under the same PCIe switch"),
    ],
)
def test_alignment_is_told_in_a_sentence(found, said):
    assert pairs_sentence([ContainerPairs("main", *found)]) == said
