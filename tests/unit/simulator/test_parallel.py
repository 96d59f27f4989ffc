"""Many runs at once: the same as one after the other."""

import msgspec
import pytest

from purser.simulator import demo
from purser.simulator.orders import draw_order
from purser.simulator.parallel import Task, run_all


def test_processes_come_to_what_one_process_comes_to() -> None:
    made_up = demo.workload()
    order = draw_order(made_up, 1, 60)
    tasks = [Task(name, order) for name in ("best-fit", "fragmentation")]
    seen: dict[int, int] = {}
    alone = run_all(made_up, tasks, 1, lambda place, events: None)
    together = run_all(made_up, tasks, 2, lambda place, events: seen.update({place: events}))
    assert [msgspec.structs.replace(run, pods_per_second=0) for run in together] == [
        msgspec.structs.replace(run, pods_per_second=0) for run in alone
    ]
    assert seen == {0: len(order.pods), 1: len(order.pods)}


def test_a_policy_that_there_is_none_of_is_refused_before_anything_runs() -> None:
    made_up = demo.workload()
    order = draw_order(made_up, 1, 60)
    with pytest.raises(ValueError, match="no policy for nodes is called 'nothing'"):
        run_all(made_up, [Task("best-fit", order), Task("nothing", order)], 2, lambda place, events: pytest.fail("ran"))
