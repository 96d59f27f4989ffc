import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.kube.servers import ManualClock, eventually

from purser.kube import QueueClosed, WorkQueue, run_workers


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_keys_come_in_order_and_each_waits_once():
    queue = WorkQueue()
    for key in "abab":
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_a_delayed_key_comes_when_its_time_has_come_and_the_shortest_delay_counts():
    clock = ManualClock()
    queue = WorkQueue(clock=clock)
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 7)
    await settle()
    clock.advance(4.9)
    await settle()
    assert len(queue) == 0
    clock.advance(0.1)
    assert await asyncio.wait_for(queue.get(), 5) == "a"
    queue.done("a")
    clock.advance(100)
    await settle()
    assert len(queue) == 0


async def test_back_off_grows_per_key_up_to_the_cap_until_the_key_is_forgotten():
    class Recorded(WorkQueue):
        def add_after(self, key, seconds):
            delays.append((key, seconds))

    delays = []
    queue = Recorded(initial_s=1, cap_s=8)
    for _ in range(6):
        queue.retry("a")
    queue.retry("b")
    queue.forget("a")
    queue.retry("a")
    for (key, delay), (wanted, whole) in zip(
        delays, [*(("a", w) for w in (1, 2, 4, 8, 8, 8)), ("b", 1), ("a", 1)], strict=True
    ):
        assert key == wanted
        assert whole / 2 <= delay <= whole


async def test_shutdown_drains_what_waits_and_drops_what_is_delayed():
    queue = WorkQueue(clock=ManualClock())
    worked = []

    async def work(key):
        await asyncio.sleep(0)
        worked.append(key)
        if key == "a" and len(worked) == 1:
            queue.add("a")

    for key in "abc":
        queue.add(key)
    queue.add_after("later", 5)
    workers = asyncio.create_task(run_workers(queue, work, workers=2))
    await asyncio.sleep(0)
    await asyncio.wait_for(queue.shutdown(), 5)
    await asyncio.wait_for(workers, 5)
    assert sorted(set(worked)) == ["a", "b", "c"]
    queue.add("d")
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_shutdown_without_draining_waits_only_for_what_is_worked_on():
    queue = WorkQueue()
    queue.add("a")
    queue.add("b")
    await queue.get()
    closing = asyncio.create_task(queue.shutdown(drain=False))
    await settle()
    assert not closing.done()
    queue.done("a")
    await asyncio.wait_for(closing, 5)
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_a_reconcile_that_fails_is_tried_again_and_stops_nobody():
    queue = WorkQueue(initial_s=0.001, cap_s=0.001)
    tries = {"good": 0, "bad": 0}

    async def reconcile(key):
        tries[key] += 1
        if key == "bad" and tries[key] < 3:
            raise RuntimeError("not yet")

    queue.add("bad")
    queue.add("good")
    workers = asyncio.create_task(run_workers(queue, reconcile))
    await eventually(lambda: tries == {"good": 1, "bad": 3})
    await asyncio.wait_for(queue.shutdown(), 5)
    await asyncio.wait_for(workers, 5)


@examples(60)
@given(script=st.lists(st.sampled_from(["a", "b", "c", "yield"]), max_size=60), workers=st.integers(1, 4))
def test_every_change_is_seen_and_no_key_is_worked_on_twice_at_once(script, workers):
    asyncio.run(_feed(script, workers))


async def _feed(script, workers):
    queue = WorkQueue(initial_s=0.0001, cap_s=0.0001)
    latest, seen, working = {}, {}, set()

    async def reconcile(key):
        assert key not in working
        working.add(key)
        seen[key] = latest[key]
        for _ in range(3):
            await asyncio.sleep(0)
        working.discard(key)

    running = asyncio.create_task(run_workers(queue, reconcile, workers))
    for number, key in enumerate(script):
        if key == "yield":
            await asyncio.sleep(0)
        else:
            latest[key] = number
            queue.add(key)
    await asyncio.wait_for(queue.shutdown(), 10)
    await asyncio.wait_for(running, 10)
    assert seen == latest


async def test_workers_that_are_cancelled_leave_no_key_waiting_for_its_time():
    queue = WorkQueue()
    queue.add_after("later", 3600)
    before = asyncio.all_tasks() - {asyncio.current_task()}
    workers = asyncio.create_task(run_workers(queue, lambda key: asyncio.sleep(0)))
    await asyncio.sleep(0)
    workers.cancel()
    await asyncio.wait({workers})
    await asyncio.sleep(0)
    assert before and all(task.done() for task in before)
