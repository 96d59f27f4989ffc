"""A pod that was deleted and takes its time to end is counted on to go, but not for ever: its author says how long."""

from purser.kube.resources import PODS
from purser.scheduler.cache import nominations
from purser.scheduler.preemption import preemptor
from tests.unit.scheduler.extender_world import eventually, replica, server


async def test_a_grace_period_of_a_year_ends_preemption_on_a_node_for_an_hour_at_most():
    async with server() as api, replica(api) as world:
        slow, low = await world.add_pod("slow", 8000), await world.add_pod("low", 8000)
        await world.add_node("n", cards=2, memory=8000)
        for pod in (slow, low):
            assert await world.bind(pod, "n") == ""
        running = {"status": {"phase": "Running", "startTime": "2030-01-01T00:00:00Z"}}
        await world.client.patch_merge(PODS, "slow", running, "default", subresource="status")
        await world.client.delete(PODS, "slow", "default", grace_period_seconds=31_536_000)
        await eventually(lambda: world.cache.pod_by_uid(slow.metadata.uid).metadata.deletion_timestamp)
        await eventually(lambda: world.cache.budgets.are_known)
        high = await world.add_pod("high", 8000, priority=9)
        nominated = []
        for wait_s in (nominations.MAX_GRACE_S / 2, nominations.MAX_GRACE_S / 2 + nominations.OVERDUE_TERMINATION_S):
            world.clock.ahead_s += wait_s
            await world.filter(high, "n")
            world.clock.ahead_s += preemptor.PREEMPTION_DELAY_S
            await world.extender.retry_refused()
            nominated.append((await world.stored(high)).status.nominated_node_name)
        assert nominated == ["", "n"]
        assert (await world.stored(low)).metadata.deletion_timestamp
