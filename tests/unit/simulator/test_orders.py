"""Orders of events: from a file, drawn, and by times."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from tests.unit.simulator.builders import node, share, timed, whole, workload

from purser.simulator import demo
from purser.simulator.orders import draw_order, read_order, timed_order
from purser.simulator.problems import InputError
from purser.simulator.workload import fleet_of

TWO = workload([node("a"), node("b-1")], [share(500), share(300)])


def test_a_file_says_who_comes_when_and_which_node_is_first(tmp_path: Path) -> None:
    path = tmp_path / "seed7.txt.gz"
    path.write_bytes(gzip.compress(b"# a comment\np p1\np p0\np p1-tuned-12\nn 0001-a\nn 0000-b-1\n"))
    order = read_order(path, TWO)
    assert (order.pods.tolist(), order.ranks, order.seed, order.label) == ([1, 0, 1], (1, 0), 7, "seed7.txt.gz")
    fleet = fleet_of(TWO, order)
    assert (fleet.names[0], fleet.rank[fleet.rows.get("a")]) == ("b-1", 1)


def test_without_ranks_nodes_are_first_as_they_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "order"
    path.write_text("p p0\n")
    assert read_order(path, TWO).ranks == (0, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p p0\np nobody\n", ":2:3: no listed pod is named 'nobody'"),
        ("p nobody-tuned-1\n", ":1:3: no listed pod is named 'nobody-tuned-1'"),
        ("p p0\nn 1-nowhere\n", ":2:5: no listed node is named 'nowhere'"),
        ("p p0\nn a\n", ":2:3: 'a' is not a node with a rank"),
        ("p p0\nn 1-a\nn 2-a\n", ":3:5: node 'a' already has a rank"),
        ("p p0\nn 1-a\n", ":1:1: the file has no rank for 1 of the listed nodes, for example b-1"),
        ("q p0\n", ":1:1: the line starts with 'q'"),
        ("# nothing\n", ":1:1: the file has no pods"),
    ],
)
def test_an_error_in_a_file_has_its_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "order"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_order(path, TWO)
    assert str(path) + says in str(caught.value)


@pytest.mark.parametrize("load", [60, 100, 130])
def test_a_drawn_order_asks_for_its_load_and_a_seed_always_draws_the_same(load: int) -> None:
    made_up = demo.workload()
    demand = np.array([pod.shape.gpu_count * pod.shape.gpu_memory_mib for pod in made_up.pods])
    first, again, other = (draw_order(made_up, seed, load) for seed in (1, 1, 2))
    assert demand[first.pods].sum() / made_up.capacity_milli == pytest.approx(load / 100, abs=0.005)
    assert (first.pods.tolist(), first.ranks) == (again.pods.tolist(), again.ranks)
    assert first.pods.tolist() != other.pods.tolist()
    assert sorted(first.ranks) == list(range(len(made_up.nodes)))


def test_all_pods_come_before_any_is_repeated_and_those_that_do_not_are_counted() -> None:
    made_up = demo.workload()
    more, less = draw_order(made_up, 1, 130), draw_order(made_up, 1, 50)
    assert sorted(more.pods[: len(made_up.pods)].tolist()) == list(range(len(made_up.pods)))
    assert more.left_out == 0
    assert less.left_out == len(made_up.pods) - len(set(less.pods[: len(made_up.pods) - less.left_out].tolist()))


def test_pods_come_at_their_times_from_the_first_one_on() -> None:
    late = timed([node("a")], [(30, 5, share(1)), (10, 5, share(2)), (10, 5, share(3))])
    order = timed_order(late, 1)
    assert order.pods.tolist() == [1, 2, 0]
    assert order.arrives_s is not None
    assert order.arrives_s.tolist() == [0, 0, 20]


def test_with_a_load_as_much_is_asked_for_at_a_time_if_nobody_waits() -> None:
    made_up = timed([node(f"n{n}", 8) for n in range(10)], [(60 * n, 600, whole(1 + n % 4)) for n in range(200)])
    order = timed_order(made_up, 3, 90)
    assert order.arrives_s is not None
    end = order.arrives_s[-1]
    demand = np.array([pod.shape.gpu_count for pod in made_up.pods])[order.pods]
    asked = (demand * np.minimum(600, end - order.arrives_s)).sum() / end
    assert asked / made_up.gpus == pytest.approx(0.9, rel=0.01)
    assert (np.diff(order.arrives_s) >= 0).all()
