"""The gate: one consistent look at the cluster per term of activity, and patience that ends."""

import asyncio

import pytest

from purser.kube import ApiUnavailableError
from purser.scheduler.leadership_gate import LeadershipGate, NotLeadingError


class Cluster:
    """Counts how often it was read."""

    def __init__(self):
        self.active, self.reads, self.gate, self.error = True, 0, asyncio.Event(), None
        self.gate.set()
        self.guard = LeadershipGate(lambda: self.active, self.read, timeout_s=0.05)

    async def read(self):
        self.reads += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error


async def test_the_cluster_is_read_once_however_many_requests_wait():
    cluster = Cluster()
    await asyncio.gather(*(cluster.guard.wait_until_open() for _ in range(5)))
    await cluster.guard.wait_until_open()
    assert cluster.reads == 1


async def test_a_lease_lost_and_won_again_between_two_requests_means_another_look():
    cluster = Cluster()
    await cluster.guard.wait_until_open()
    cluster.guard.leadership_changed(False)
    cluster.guard.leadership_changed(True)
    assert not cluster.guard.is_open
    await cluster.guard.wait_until_open()
    assert cluster.reads == 2


async def test_a_lease_lost_while_the_cluster_was_read_means_another_look():
    cluster = Cluster()
    cluster.gate.clear()
    waiting = asyncio.create_task(cluster.guard.wait_until_open())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cluster.guard.leadership_changed(False)
    cluster.guard.leadership_changed(True)
    cluster.gate.set()
    await waiting
    assert cluster.reads == 2


async def test_who_is_not_active_is_refused_even_after_having_been():
    cluster = Cluster()
    await cluster.guard.wait_until_open()
    cluster.active = False
    with pytest.raises(NotLeadingError, match="not active"):
        await cluster.guard.wait_until_open()
    cluster.active = True
    await cluster.guard.wait_until_open()
    assert cluster.reads == 2


async def test_patience_ends_and_the_reading_goes_on():
    cluster = Cluster()
    cluster.gate.clear()
    with pytest.raises(NotLeadingError, match="still reading"):
        await cluster.guard.wait_until_open()
    cluster.gate.set()
    await cluster.guard.wait_until_open()
    assert cluster.reads == 1


async def test_a_cluster_that_cannot_be_read_is_tried_again_by_the_next_request():
    cluster = Cluster()
    cluster.error = ApiUnavailableError("connection refused")
    with pytest.raises(NotLeadingError, match="connection refused"):
        await cluster.guard.wait_until_open()
    cluster.error = None
    await cluster.guard.wait_until_open()
    assert cluster.reads == 2


async def test_closing_ends_a_look_that_takes_too_long():
    cluster = Cluster()
    cluster.gate.clear()
    with pytest.raises(NotLeadingError):
        await cluster.guard.wait_until_open()
    await cluster.guard.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
