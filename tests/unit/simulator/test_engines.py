"""Both engines against cases computed by hand, and what holds whatever comes."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.simulator.builders import NO_GPU, as_listed, node, share, small_demo, timed, whole, workload

from purser.core.placement.policies import NODE_POLICIES, parse_policy
from purser.simulator import arrivals, demo, departures
from purser.simulator.deciding import Decider, check_overcommitted
from purser.simulator.metrics import Rows
from purser.simulator.orders import draw_order, timed_order


def test_each_pod_is_tried_once_in_the_order_of_arrival() -> None:
    two = workload([node("a"), node("b")], [share(600), share(600), share(500), share(400), whole(1), NO_GPU])
    found = arrivals.run(two, as_listed(two), "best-fit")
    assert found.rows.arrived.tolist() == [600, 1200, 1700, 2100, 3100, 3100]
    assert found.rows.allocated.tolist() == [600, 1200, 1200, 1600, 1600, 1600]
    assert (found.placed, found.failed, found.first_failure) == (4, {"share": 1, "1-GPU": 1}, 2)


def test_fragments_are_what_typical_pods_cannot_use() -> None:
    one = workload([node("a", 2)], [whole(1), whole(1)])
    found = arrivals.run(one, as_listed(one), "binpack")
    assert found.rows.fragments.tolist() == [0, 0]
    shares = workload([node("a", 1)], [share(600), share(600)])
    found = arrivals.run(shares, as_listed(shares), "binpack")
    # 400 thousandths are left of the GPU, and no pod of the mix wants so little.
    assert found.rows.fragments.tolist() == [400, 400]
    assert found.causes_at_full is not None
    assert found.causes_at_full.lacks_gpu == 400


def test_columns_are_means_over_all_rows_that_round_to_them() -> None:
    rows = Rows(np.array([994, 996, 1004, 1006]), 1000)
    rows.allocated[:] = [900, 910, 920, 930]
    assert rows.columns((99, 100, 101, 130), rows.allocation_percent) == {99: 90, 100: 91.5, 101: 93}


def test_a_pod_waits_for_others_to_leave_and_who_came_first_is_first() -> None:
    # One GPU. p0 holds it until 100. p1 and p2 wait; p1 takes it from 100 to 150, p2 from 150 to 160.
    pods = [(0, 100, whole(1)), (10, 50, whole(1)), (20, 10, whole(1)), (30, 170, NO_GPU)]
    found = departures.run(one := timed([node("a")], pods), timed_order(one, 1), "best-fit")
    assert (found.waited_s.tolist(), found.end_s) == ([0, 90, 130, 0], 200)
    assert found.pending_gpu_hours == pytest.approx(220 / 3600)
    assert found.moments.time_s.tolist() == [0, 10, 20, 30, 100, 150, 160, 200]
    assert found.moments.allocated.tolist() == [1000, 1000, 1000, 1000, 1000, 1000, 0, 0]
    assert found.moments.waiting.tolist() == [0, 1000, 2000, 2000, 1000, 0, 0, 0]


def test_who_never_found_a_place_is_counted_by_class() -> None:
    one = timed([node("a")], [(0, 100, whole(1)), (10, 50, whole(1)), (20, 10, whole(2))])
    found = departures.run(one, timed_order(one, 1), "best-fit")
    assert found.waited_s.tolist() == [0, 90, 80]
    assert (found.placed.tolist(), found.unplaced) == ([True, True, False], {"2-GPU": 1})


def test_time_ends_with_the_list_and_who_still_waits_has_waited_until_then() -> None:
    one = timed([node("a")], [(0, 100, whole(1)), (40, 20, whole(1))])
    found = departures.run(one, timed_order(one, 1), "best-fit")
    # Both would have left by 100 had nobody waited. p1 is placed just then.
    assert (found.end_s, found.waited_s.tolist()) == (100, [0, 60])
    assert found.pending_gpu_hours == pytest.approx(60 / 3600)
    assert found.moments.mean(found.moments.allocated, found.end_s) == 1000


def test_one_that_does_not_fit_does_not_hold_up_those_behind() -> None:
    # Two GPUs. p0 and p1 hold them, p2 wants both, p3 wants one; p0 leaves at 50, p1 at 100.
    pods = [(0, 50, whole(1)), (0, 100, whole(1)), (10, 10, whole(2)), (20, 10, whole(1))]
    two = timed([node("a", 2)], pods)
    found = departures.run(two, timed_order(two, 1), "best-fit")
    assert found.waited_s.tolist() == [0, 0, 90, 30]


def test_who_leaves_makes_room_for_who_waits_before_who_comes_at_the_same_moment() -> None:
    pods = [(0, 50, whole(1)), (10, 30, share(900)), (50, 30, share(900)), (50, 500, NO_GPU)]
    one = timed([node("a")], pods)
    found = departures.run(one, timed_order(one, 1), "best-fit")
    assert found.waited_s.tolist() == [0, 40, 30, 0]


def test_nobody_waits_where_there_is_room_and_all_that_is_taken_is_given_back() -> None:
    pods = [(float(n), 5.0, share(100)) for n in range(50)]
    found = departures.run(made := timed([node("a"), node("b")], pods), timed_order(made, 1), "spread")
    assert found.pending_gpu_hours == 0
    assert found.moments.allocated[-1] == 0
    assert found.moments.time_s[-1] == found.end_s == 54


SHAPES = st.one_of(
    st.builds(share, st.integers(1, 999), st.integers(0, 9000)),
    st.builds(whole, st.integers(1, 4), st.integers(0, 9000), st.sampled_from([(), ("A",), ("B",), ("A", "B")])),
    st.just(NO_GPU),
)
NODES = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("AB"), st.integers(1000, 20_000)), min_size=1, max_size=6
).map(lambda rows: [node(f"n{n}", gpus, model, cpu) for n, (gpus, model, cpu) in enumerate(rows)])
PODS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), SHAPES), min_size=1, max_size=40)


@given(NODES, PODS, st.sampled_from(sorted(NODE_POLICIES)))
def test_no_policy_ever_overcommits_and_the_ledger_balances(nodes, pods, policy: str) -> None:
    made = timed(nodes, [(float(at), float(lasts), shape) for at, lasts, shape in pods])
    found = arrivals.run(made, as_listed(made), policy)
    assert found.placed + sum(found.failed.values()) == len(pods)
    assert 0 <= found.rows.allocated[-1] <= made.capacity_milli
    later = departures.run(made, timed_order(made, 1), policy)
    assert (later.moments.allocated <= made.capacity_milli).all()
    assert (later.waited_s >= 0).all()
    assert (later.moments.waiting >= 0).all()


@given(NODES, PODS)
def test_who_waits_never_fits_anywhere(nodes, pods) -> None:
    """What is left out of trying again is only what would fail: a simulation that tries everybody agrees."""
    made = timed(nodes, [(float(at), float(lasts), shape) for at, lasts, shape in pods])
    order = timed_order(made, 1)
    found = departures.run(made, order, "best-fit")
    assert found.waited_s.tolist() == pytest.approx(naive(made, order))


def naive(made, order) -> list[float]:
    """Every moment: all who are due leave, all who wait are tried, who comes is tried."""
    decider = Decider(made, order, "best-fit", learns=False)
    came = order.arrives_s.tolist()
    lasts = [made.pods[pod].lasts_s for pod in order.pods]
    end = max(at + last for at, last in zip(came, lasts, strict=True))
    waits: list[float | None] = [None] * len(came)
    leaving: list[tuple[float, object]] = []
    waiting: list[int] = []

    def attempt(event: int, now: float) -> bool:
        placement = decider.place(made.pods[order.pods[event]].shape)
        if placement is not None:
            waits[event] = now - came[event]
            leaving.append((now + lasts[event], placement))
        return placement is not None

    def leave(until: float) -> None:
        nonlocal waiting, leaving
        while due := [at for at, _ in leaving if at <= until]:
            now = min(due)
            gone = [placement for at, placement in leaving if at == now]
            leaving = [pair for pair in leaving if pair[0] != now]
            for placement in gone:
                decider.release(placement)
            waiting = [event for event in waiting if not attempt(event, now)]

    for event, now in enumerate(came):
        leave(now)
        if not attempt(event, now):
            waiting.append(event)
    leave(end)
    return [end - at if wait is None else wait for wait, at in zip(waits, came, strict=True)]


@pytest.mark.parametrize("policy", ["random", "fragmentation"])
def test_the_same_order_always_comes_to_the_same_end(policy: str) -> None:
    made_up = small_demo()
    order = draw_order(made_up, 5, 110)
    first, second = (arrivals.run(made_up, order, policy) for _ in range(2))
    assert (first.rows.allocated == second.rows.allocated).all()
    assert (first.rows.fragments == second.rows.fragments).all()


def test_a_policy_can_learn_the_mix_instead() -> None:
    made_up = small_demo()
    order = draw_order(made_up, 5, 110)
    told, learnt = (arrivals.run(made_up, order, "fragmentation", learns) for learns in (False, True))
    assert (told.rows.allocated != learnt.rows.allocated).any()
    assert learnt.rows.allocated[-1] > 0.9 * told.rows.allocated[-1]


def test_overcommitting_would_be_noticed() -> None:
    one = workload([node("a")], [share(600)])
    decider = Decider(one, as_listed(one), "binpack", learns=False)
    placement = decider.place(share(600))
    assert placement is not None
    decider.fleet.take(placement.row, placement.gpus, placement.taken)
    with pytest.raises(AssertionError, match="allocated more than"):
        check_overcommitted(decider.fleet)


def test_fragments_kept_row_by_row_are_those_of_the_whole_fleet() -> None:
    made_up = demo.workload()
    decider = Decider(made_up, draw_order(made_up, 1, 100), "spread", learns=False)
    placements = [decider.place(pod.shape) for pod in made_up.pods[:300]]
    for placement in placements[::3]:
        if placement is not None:
            decider.release(placement)
    causes = msgspec.structs.asdict(decider.causes())
    assert decider.fragments.total == pytest.approx(sum(causes.values()) - causes["usable"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("nothing", "policy 'nothing' for nodes"),
        ("best-fit/nothing", "unknown policy 'nothing' for GPUs"),
        ("best-fit/", "has no GPU policy after the slash"),
        ("best-fit=-1", "invalid weight '-1' for policy 'best-fit'"),
    ],
)
def test_a_policy_that_there_is_none_of_is_refused_with_those_that_there_are(words: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_policy(words)
