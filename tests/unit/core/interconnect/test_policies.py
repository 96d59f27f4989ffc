"""What each policy hands out on known machines; results of go-gpuallocator's own tests."""

import pytest
from tests.unit.core.interconnect.machines import DGX1_PASCAL, DGX1_VOLTA, RTX8000, scored, tree

from purser.core.interconnect import (
    POLICIES,
    Ask,
    GpuSet,
    Policy,
    Topology,
    best_effort,
    dgx1_pascal,
    dgx1_volta,
    dgx2,
    simple,
)

ALL = tuple(range(8))


def chosen(
    policy: Policy, node: Topology, available: tuple[int, ...], size: int, required: tuple[int, ...] = ()
) -> set[int]:
    found = policy(node, Ask(available, size, required)).devices
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize(
    ("available", "size", "required", "expected"),
    [
        pytest.param((0, 2, 4, 5), 2, (), {4, 5}, id="single NVLink: rather on one switch"),
        pytest.param((0, 4, 5, 6), 2, (), {5, 6}, id="two NVLinks"),
        pytest.param((0, 3, 1), 2, (), {0, 3}, id="two NVLinks on one socket"),
        pytest.param((0, 1, 4), 2, (), {0, 4}, id="two NVLinks across sockets"),
        pytest.param(ALL, 1, (4,), {4}, id="one required of size 1"),
        pytest.param(ALL, 2, (4,), {4, 7}, id="one required of size 2"),
        pytest.param(ALL, 4, (4,), {4, 5, 6, 7}, id="one required of size 4"),
        pytest.param(ALL[1:], 4, (0, 1, 2, 3), set(), id="a required one is not available"),
        pytest.param(ALL, 4, (0, 2, 4, 6), {0, 2, 4, 6}, id="all required"),
        pytest.param(ALL, 4, (1, 2, 3, 4, 5, 6), set(), id="more required than wanted"),
        pytest.param((1, 2, 3, 4, 5), 1, (1, 2, 3, 4, 5, 6), set(), id="more required than available"),
        pytest.param(ALL, 0, (), set(), id="none wanted"),
        pytest.param(ALL, -1, (), set(), id="less than none wanted"),
        pytest.param(ALL, 9, (), set(), id="more wanted than there are"),
        pytest.param((), 1, (), set(), id="none available"),
    ],
)
def test_best_effort_on_a_dgx1_with_v100s(
    available: tuple[int, ...], size: int, required: tuple[int, ...], expected: set[int]
) -> None:
    assert chosen(best_effort, DGX1_VOLTA, available, size, required) == expected


SEQUENCES = [
    pytest.param(best_effort, DGX1_PASCAL, 1, [{place} for place in range(8)], id="best-effort, P100, 1"),
    pytest.param(best_effort, DGX1_PASCAL, 2, [{0, 2}, {1, 3}, {4, 6}, {5, 7}], id="best-effort, P100, 2"),
    pytest.param(best_effort, DGX1_PASCAL, 4, [{0, 1, 2, 3}, {4, 5, 6, 7}], id="best-effort, P100, 4"),
    pytest.param(best_effort, DGX1_PASCAL, 8, [set(ALL)], id="best-effort, P100, 8"),
    pytest.param(best_effort, DGX1_VOLTA, 1, [{place} for place in range(8)], id="best-effort, V100, 1"),
    pytest.param(best_effort, DGX1_VOLTA, 2, [{0, 3}, {1, 2}, {4, 7}, {5, 6}], id="best-effort, V100, 2"),
    pytest.param(best_effort, DGX1_VOLTA, 4, [{0, 1, 2, 3}, {4, 5, 6, 7}], id="best-effort, V100, 4"),
    pytest.param(best_effort, DGX1_VOLTA, 8, [set(ALL)], id="best-effort, V100, 8"),
    pytest.param(best_effort, RTX8000, 1, [{0}, {1}, {2}, {3}], id="best-effort, RTX 8000, 1"),
    pytest.param(best_effort, RTX8000, 2, [{0, 3}, {1, 2}], id="best-effort, RTX 8000, 2"),
    pytest.param(best_effort, RTX8000, 4, [{0, 1, 2, 3}], id="best-effort, RTX 8000, 4"),
    pytest.param(dgx1_pascal, DGX1_PASCAL, 1, [{place} for place in range(8)], id="static, P100, 1"),
    pytest.param(dgx1_pascal, DGX1_PASCAL, 2, [{0, 2}, {1, 3}, {4, 6}, {5, 7}], id="static, P100, 2"),
    pytest.param(dgx1_pascal, DGX1_PASCAL, 4, [{0, 1, 2, 3}, {4, 5, 6, 7}], id="static, P100, 4"),
    pytest.param(dgx1_pascal, DGX1_PASCAL, 8, [set(ALL)], id="static, P100, 8"),
    pytest.param(dgx1_volta, DGX1_VOLTA, 1, [{place} for place in range(8)], id="static, V100, 1"),
    pytest.param(dgx1_volta, DGX1_VOLTA, 2, [{0, 3}, {1, 2}, {4, 7}, {5, 6}], id="static, V100, 2"),
    pytest.param(dgx1_volta, DGX1_VOLTA, 4, [{0, 1, 2, 3}, {4, 5, 6, 7}], id="static, V100, 4"),
    pytest.param(dgx1_volta, DGX1_VOLTA, 8, [set(ALL)], id="static, V100, 8"),
    *(
        pytest.param(
            dgx2, tree(16, 6), k, [set(range(first, first + k)) for first in range(0, 16, k)], id=f"static, DGX-2, {k}"
        )
        for k in (1, 2, 4, 8, 16)
    ),
]


@pytest.mark.parametrize(("policy", "node", "size", "expected"), SEQUENCES)
def test_an_idle_machine_is_handed_out_set_by_set_until_nothing_is_left(
    policy: Policy, node: Topology, size: int, expected: list[set[int]]
) -> None:
    left = tuple(range(len(node.indexes)))
    handed = []
    while found := chosen(policy, node, left, size):
        handed.append(found)
        left = tuple(place for place in left if place not in found)
    assert handed == expected
    assert not left


@pytest.mark.parametrize(
    ("size", "required", "expected"),
    [
        *(pytest.param(k, (), ALL[:k], id=f"{k}: the lowest indexes") for k in range(1, 9)),
        pytest.param(1, (4,), (4,), id="the required one"),
        pytest.param(2, (4,), (4, 0), id="the required one first"),
        pytest.param(4, (4,), (4, 0, 1, 2), id="the required one first, then the lowest"),
        pytest.param(4, (0, 2, 4, 6), (0, 2, 4, 6), id="all required"),
        pytest.param(4, (1, 2, 3, 4, 5, 6), (), id="more required than wanted"),
        pytest.param(4, (0, 1, 8), (), id="a required one is not available"),
        pytest.param(0, (), (), id="none wanted"),
        pytest.param(9, (), (), id="more than there are"),
    ],
)
def test_simple(size: int, required: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert simple(DGX1_VOLTA, Ask(ALL, size, required)) == GpuSet(expected)


def test_simple_goes_by_index_whatever_the_order_of_the_available_ones() -> None:
    assert simple(DGX1_VOLTA, Ask((7, 3, 5, 1), 2)) == GpuSet((1, 3))


@pytest.mark.parametrize(
    ("available", "size", "required", "expected"),
    [
        pytest.param(ALL, 1, (4,), (4,), id="the required one"),
        pytest.param(ALL, 2, (4,), (4, 7), id="the pair of the required one"),
        pytest.param(ALL, 2, (7,), (7, 4), id="the required one first"),
        pytest.param(ALL, 4, (4,), (4, 5, 6, 7), id="the half of the required one"),
        pytest.param(ALL[1:], 4, (0, 1, 2, 3), (), id="a required one is not available"),
        pytest.param(ALL, 4, (0, 2, 4, 6), (), id="the required ones are in no valid set"),
        pytest.param(ALL, 4, (4, 5, 6, 7), (4, 5, 6, 7), id="all required"),
        pytest.param(ALL, 4, (1, 2, 3, 4, 5, 6), (), id="more required than wanted"),
        pytest.param((0, 1, 4, 7), 2, (), (4, 7), id="the first whole pair"),
        pytest.param((0, 1, 4, 6), 2, (), (), id="no whole pair"),
    ],
)
def test_the_static_policy_for_v100s(
    available: tuple[int, ...], size: int, required: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert dgx1_volta(DGX1_VOLTA, Ask(available, size, required)) == GpuSet(expected)


@pytest.mark.parametrize("policy", [dgx1_pascal, dgx1_volta, dgx2])
@pytest.mark.parametrize("size", [0, 3, 5, 6, 7, 9])
def test_static_policies_know_no_other_sizes(policy: Policy, size: int) -> None:
    assert policy(DGX1_VOLTA, Ask(ALL, size)) == GpuSet()


def test_static_policies_know_gpus_by_their_indexes() -> None:
    node = Topology((3, 0, 1), scored([[0] * 3] * 3).scores)
    assert dgx1_volta(node, Ask((0, 1, 2), 2)) == GpuSet((1, 0))


@pytest.mark.parametrize("policy", [pytest.param(policy, id=name) for name, policy in POLICIES.items()])
@pytest.mark.parametrize(
    "asked",
    [
        Ask((), 0),
        Ask((), 1),
        Ask((0, 1), -5),
        Ask((0, 1), 3),
        Ask((0, 1), 1, (0, 1)),
        Ask((0, 1), 2, (-1,)),
        Ask((0, 1), 2, (5,)),
    ],
    ids=str,
)
def test_what_is_impossible_gets_an_empty_set(policy: Policy, asked: Ask) -> None:
    assert policy(DGX1_VOLTA, asked) == GpuSet()
