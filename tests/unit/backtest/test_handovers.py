"""Ends that pods who waited tell, where the source knows them less well."""

import math

import pytest
from tests.unit.simulator.builders import whole

from purser.backtest.handovers import MAX_HANDOVER_S, with_handovers
from purser.backtest.history import HistoryPod, comparable_time, creation


def pod(name, created_s, bound_s=math.inf, ended_s=math.inf, node="n"):
    return HistoryPod(name, whole(1), created_s, node, bound_s, ended_s)


def ends(*pods, gpus=1):
    found = with_handovers(pods, [1000.0] * len(pods), {"n": 1000.0 * gpus, "m": 1000.0})
    return [each.ended_s for each in found]


def test_who_waited_for_the_room_says_when_it_was_there():
    assert ends(pod("a", 0, 0, 100), pod("b", 50, 107.25, 200)) == [107.25, 207.25]


def test_an_end_that_is_cut_off_to_its_second_may_be_after_the_one_that_followed():
    assert ends(pod("a", 0, 0, 100.5), pod("b", 50, 100.1, 200.5)) == [100.1, 200.5]


@pytest.mark.parametrize(
    "other",
    [
        pod("had room", 50, 110, 150),
        pod("did not wait", 109.5, 110, 150),
        pod("elsewhere", 50, 110, 150, node="m"),
        pod("much later", 50, 100 + MAX_HANDOVER_S + 1, 150),
        pod("waits still", 50),
    ],
    ids=lambda pod: pod.name,
)
def test_others_say_nothing_of_an_end(other):
    gpus = 2 if other.name == "had room" else 1
    assert ends(pod("a", 0, 0, 100), other, gpus=gpus)[0] == 100


def test_of_several_who_left_the_last_one_made_the_room_and_the_others_ended_as_much_later():
    pods = [pod("a", 0, 0, 90), pod("b", 0, 0, 100), pod("c", 50, 104, 500)]
    found = with_handovers(pods, [1000.0, 1000.0, 2000.0], {"n": 2000.0})
    assert [each.ended_s for each in found] == [94, 104, 504]


def test_whole_seconds_are_compared_with_exact_times_at_their_middle():
    assert [comparable_time(10.0, 5.25), comparable_time(10.0, 5.0), comparable_time(10.25, 5.25)] == [
        10.5,
        10.0,
        10.25,
    ]
    assert comparable_time(math.inf, 5.25) == math.inf
    assert [creation(10.0, 10.02), creation(10.0, 11.2), creation(10.0, 15.25), creation(10.0, 8.0)] == [
        10.02,
        11.2,
        10.5,
        8.0,
    ]
