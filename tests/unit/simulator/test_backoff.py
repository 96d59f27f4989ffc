"""Who is tried when, as kube-scheduler does it."""

from collections.abc import Sequence

from tests.unit.simulator.builders import NO_GPU, node, timed, whole

from purser.core.fleet.facts import FleetNodeFacts
from purser.core.placement.shape import PodShape
from purser.simulator import departures
from purser.simulator.orders import timed_order


def waited(
    nodes: list[FleetNodeFacts], pods: Sequence[tuple[float, float, PodShape]], backs_off: bool = True
) -> list[float]:
    workload = timed(nodes, [*pods, (0, 1000, NO_GPU)])
    found = departures.run(workload, timed_order(workload, 1), "best-fit", backs_off=backs_off)
    come = [at for at, *_ in pods] + [0.0]
    waited_s = dict(zip(sorted(range(len(come)), key=come.__getitem__), found.waited_s.tolist(), strict=True))
    return [waited_s[number] for number in range(len(pods))]


def test_who_was_refused_long_ago_is_tried_as_soon_as_there_is_room() -> None:
    assert waited([node("a")], [(0, 100, whole(1)), (10, 50, whole(1))]) == [0, 90]


def test_who_was_refused_just_now_is_tried_when_its_back_off_ends() -> None:
    assert waited([node("a")], [(0, 100, whole(1)), (99.5, 50, whole(1))]) == [0, 1]


def test_who_comes_while_another_one_backs_off_takes_the_room() -> None:
    """p1 of two GPUs is refused at 99.75, and due at 100.75."""
    pods = [(0, 100, whole(1)), (0, 300, whole(1)), (99.75, 50, whole(1)), (100.25, 20, whole(1))]
    assert waited([node("a", 2)], pods) == [0, 0, 120.25 - 99.75, 0]


def test_a_back_off_doubles_with_each_attempt_up_to_its_maximum() -> None:
    """Small pods leave one after the other. The large one is tried at 10, 20, 22, 26, 34, 44 and 54."""
    ends = (20, 22, 25, 30, 39, 49.5, 51)
    pods = [*((0, at, whole(1)) for at in ends), (10, 5, whole(7))]
    assert waited([node("a", 7)], pods)[-1] == 54 - 10
    assert waited([node("a", 7)], pods, backs_off=False)[-1] == 51 - 10


def test_those_that_are_due_together_are_tried_as_they_were_last_tried() -> None:
    pods = [(0, 100, whole(1)), (10, 50, whole(1)), (20, 10, whole(1))]
    assert waited([node("a")], pods) == [0, 90, 130]
