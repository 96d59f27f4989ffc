"""A history replayed: the error of its reconstruction, other policies, fewer nodes."""

import msgspec
import numpy as np
import pytest
from tests.unit.backtest.told import BEGIN_S, dump_of, listed, truth
from tests.unit.simulator.builders import node, share, small_demo, timed, whole

from purser.backtest.comparing import backtest
from purser.backtest.events import history_of_dump
from purser.backtest.history import History, HistoryNode, HistoryPod, Omissions
from purser.backtest.reconstruction import Reconstruction
from purser.simulator.results import CURVE_POINTS


def pod(name, shape, created_s, bound_s=np.inf, ended_s=np.inf, node="n1"):
    return HistoryPod(name, shape, BEGIN_S + created_s, node, BEGIN_S + bound_s, BEGIN_S + ended_s)


def history(nodes, pods, end_s=100.0):
    there = tuple(each if isinstance(each, HistoryNode) else HistoryNode(each) for each in nodes)
    return History("test", BEGIN_S, BEGIN_S + end_s, there, tuple(pods))


def test_the_events_of_a_simulated_run_replay_as_it_ran():
    known = truth(small_demo(), "purser", 40_000.0)
    omissions = Omissions()
    of = Reconstruction(history_of_dump(dump_of(listed(known.items), omissions), "test", omissions))
    found = backtest(of, "purser", ["purser"], with_nodes=False)
    assert found.source.waited_pods >= 3
    assert of.source.allocation_percent == pytest.approx(known.allocation_percent, abs=0.1)
    assert found.error.allocation_points < 0.2 and found.error.moment_points < 0.2
    assert found.error.waiting_percent < 2


def test_what_the_source_says():
    pods = [
        pod("a", whole(1), 0, 0, 50),
        pod("b", whole(2), 10, 50),
        pod("c", share(500), 90, 95),
        pod("d", whole(2), 60, node=""),
    ]
    course = Reconstruction(history([node("n1", 2)], pods)).source
    assert course.allocation_percent == pytest.approx((50 + 2 * 50 + 0.5 * 5) / 2)
    assert course.waited_mean_s == pytest.approx((0 + 40 + 5 + 40) / 4)
    assert (course.waited_p50_s, course.waited_pods, course.unplaced) == (22.5, 3, 1)


def test_who_ran_before_the_beginning_has_not_waited():
    of = Reconstruction(history([node("n1")], [pod("a", whole(1), -500, -100, 50), pod("b", whole(1), 10, 50, 80)]))
    assert of.source.waited_mean_s == 40
    replayed = of.replay("purser")
    assert replayed.waited_mean_s == 40
    assert of.error_of("purser", replayed).moment_points == 0


def test_the_error_is_over_time_and_whichever_way():
    """The source has b wait for no reason the simulator knows."""
    of = Reconstruction(history([node("n1", 2)], [pod("a", whole(1), 0, 0, 20), pod("b", whole(1), 10, 30, 50)]))
    replayed = of.replay("purser")
    error = of.error_of("purser", replayed)
    assert replayed.allocation_percent == of.source.allocation_percent
    assert error.moment_points == pytest.approx(100 * (20 + 20) / 200)
    assert (error.allocation_points, error.waiting_percent) == (0, 100)
    assert (error.waited_p50_s, error.waited_p95_s) == (10, pytest.approx(19))


def test_waiting_that_the_source_has_not_is_of_no_percentage():
    twice = [pod("a", whole(1), 0, 0, 50), pod("b", whole(1), 10, 10, 20)]
    of = Reconstruction(history([node("n1", 1)], twice))
    assert of.error_of("purser", of.replay("purser")).waiting_percent is None


def test_nodes_that_come_and_go_count_while_they_are_there():
    late = HistoryNode(node("n2"), BEGIN_S + 40)
    gone = HistoryNode(node("n1"), until_s=BEGIN_S + 60)
    pods = [
        pod("a", whole(1), 0, 0, 30),
        pod("b", whole(1), 10, 30, 60),
        pod("c", whole(1), 20, 40, 50, node="n2"),
        pod("d", whole(1), 50, 50, 90, node="n2"),
        pod("e", whole(1), 70, 90, 95, node="n2"),
    ]
    of = Reconstruction(history([gone, late], pods))
    replayed = of.replay("purser")
    assert of.source.allocation_percent == pytest.approx(100 * (30 + 30 + 10 + 40 + 5) / (60 + 60))
    assert msgspec.structs.asdict(of.error_of("purser", replayed)) == {
        "policy": "purser",
        "allocation_points": 0,
        "moment_points": 0,
        "waiting_percent": 0,
        "waited_p50_s": 0,
        "waited_p95_s": 0,
    }


def test_policies_are_compared_and_nodes_done_without():
    """Two shares leave room for a whole GPU only where they are packed."""
    pods = [
        pod("a", share(500), 0, 0, 90),
        pod("b", share(500), 1, 1, 90, node="n2"),
        pod("c", whole(1), 10, 10, 40, node="n3"),
    ]
    of = Reconstruction(history([node("n1"), node("n2"), node("n3")], pods))
    assert of.nodes_by_use() == ("n3", "n2", "n1")
    found = {each.policy: each for each in backtest(of, "spread", ["spread", "binpack"]).policies}
    assert (found["spread"].nodes_needed, found["binpack"].nodes_needed) == (3, 2)


def test_a_policy_that_waits_longer_needs_more_nodes_than_there_are():
    pods = [
        pod("a", share(500), 0, 0, 90),
        pod("b", share(500), 1, 1, 90),
        pod("c", whole(1), 10, 10, 40, node="n2"),
    ]
    [spread] = backtest(Reconstruction(history([node("n1"), node("n2")], pods)), "binpack", ["spread"]).policies
    assert spread.nodes_needed is None
    assert spread.course.waited_mean_s > 20


def test_a_curve_has_as_many_points_as_a_plot_has_room_for():
    of = Reconstruction(history([node("n1", 2)], [pod("a", whole(1), 0, 0, 50)]))
    curve = of.curve(of.source)
    assert {len(each) for each in curve.values()} == {CURVE_POINTS}
    assert curve["allocation_percent"][:150] == [50] * 150 and curve["allocation_percent"][150:] == [0] * 150


def test_a_history_without_waiting_for_a_pod_that_fits_nowhere():
    of = Reconstruction(history([node("n1")], [pod("a", whole(2), 0, node=""), pod("b", whole(1), 0, 0, 10)]))
    found = backtest(of, "purser", ["purser"])
    assert (found.source.unplaced, found.replayed.unplaced) == (1, 1)
    assert found.policies[0].nodes_needed == 1


def test_departures_end_where_the_order_says_and_not_with_the_last_pod():
    of = Reconstruction(history([node("n1")], [pod("a", whole(1), 0, 0), pod("b", whole(1), 50, node="")]))
    assert of.replay("purser").waited_mean_s == of.source.waited_mean_s == 25
    assert timed([node("n1")], []).has_times


def test_what_a_decision_takes_is_taken_for_every_pod_and_holds_gpus_meanwhile():
    """Half a second, by those who had a place at once; c waits for a."""
    pods = [
        pod("a", whole(1), 0, 0.5, 50.5),
        pod("b", whole(1), 10, 10.5, 99, node="n2"),
        pod("c", whole(1), 20, 51, 81),
    ]
    of = Reconstruction(history([node("n1"), node("n2")], pods))
    replayed = of.replay("purser")
    assert replayed.waited_mean_s == pytest.approx(of.source.waited_mean_s) == pytest.approx((0.5 + 0.5 + 31) / 3)
    assert replayed.allocation_percent == pytest.approx(of.source.allocation_percent)
    assert of.error_of("purser", replayed).moment_points == pytest.approx(0, abs=1e-9)
