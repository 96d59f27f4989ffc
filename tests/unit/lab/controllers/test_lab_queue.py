import asyncio

from tests.unit.kube.servers import ManualClock, eventually

from purser.lab.controllers.scheduling.queue import MAX_BACKOFF_S, UNSCHEDULABLE_FLUSH_PERIOD_S, SchedulingQueue


def queue_of(*uids, priorities=None):
    clock = ManualClock()
    queue = SchedulingQueue(clock)
    for uid in uids:
        queue.add(uid, (priorities or {}).get(uid, 0))
    return queue, clock


async def refused(queue, count):
    """Try so many pods, in the order in which the queue has them, and put each back."""
    tried = []
    for _ in range(count):
        uid, mark = await asyncio.wait_for(queue.pop(), 5)
        queue.put_back(uid, mark)
        tried.append(uid)
    return tried


async def test_the_more_important_first_then_first_come_first_served():
    queue, _ = queue_of("a", "b", "c", priorities={"c": 1})
    assert await refused(queue, 3) == ["c", "a", "b"]


async def test_pods_that_are_due_together_keep_their_order_however_they_failed():
    queue, clock = queue_of("refused", "broken")
    await refused(queue, 1)
    uid, mark = await asyncio.wait_for(queue.pop(), 5)
    queue.put_back(uid, mark, is_error=True)
    queue.move_all()
    assert queue.resting() == 2
    clock.advance(MAX_BACKOFF_S)
    assert await refused(queue, 2) == ["refused", "broken"]


async def test_a_pod_in_backoff_waits_by_the_clock_it_was_given():
    queue, clock = queue_of("a")
    await refused(queue, 1)
    queue.move_all()
    popped = asyncio.create_task(queue.pop())
    await eventually(lambda: clock.sleepers)
    assert not popped.done()
    clock.advance(1.0)
    assert (await asyncio.wait_for(popped, 5))[0] == "a"


async def test_resting_are_those_that_were_tried_and_are_not_due():
    queue, clock = queue_of("a", "b")
    assert queue.resting() == 0
    await refused(queue, 1)
    assert queue.resting() == 1
    await refused(queue, 1)
    assert queue.resting() == 2
    clock.advance(UNSCHEDULABLE_FLUSH_PERIOD_S)
    assert queue.resting() == 0
    queue.remove("a")
    assert await refused(queue, 1) == ["b"]
