import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
from tests.waiting import eventually

from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.resources import EVENTS
from purser.lab.apiserver import ApiServer
from purser.lab.controllers.workloads import cronjob
from purser.lab.controllers.workloads.cronjob import CRON_JOBS, latest_turn
from purser.lab.controllers.workloads.job import JOBS


class Clock:
    """Moved by hand: who sleeps wakes at each move."""

    def __init__(self):
        self.time = datetime.now(UTC).replace(second=30)
        self.moved = asyncio.Event()

    def now(self):
        return self.time

    async def sleep(self, _):
        moved = self.moved
        await moved.wait()

    def pass_minutes(self, count):
        self.time += timedelta(minutes=count)
        self.moved.set()
        self.moved = asyncio.Event()


class World:
    def __init__(self, client, clock):
        self.client = client
        self.clock = clock

    async def make(self, **spec):
        containers = [{"name": "c", "image": "i"}]
        template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}}}
        body = {"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": template, **spec}}
        await self.client.create(CRON_JOBS, body, "default")

    async def jobs(self, count):
        async def probe():
            found = (await self.client.list(JOBS, "default")).items
            return found if len(found) == count else None

        return await eventually(probe)

    async def end(self, job, kind="Complete"):
        ended = {"type": kind, "status": "True"}
        patch = {"status": {"conditions": [ended], "completionTime": "2026-01-01T00:00:00Z"}}
        await self.client.patch_merge(JOBS, job["metadata"]["name"], patch, "default", subresource="status")

    async def event(self, reason):
        async def probe():
            return [e.message for e in (await self.client.list(EVENTS, "default")).items if e.reason == reason]

        return (await eventually(probe))[0]

    async def status(self, **fields):
        async def probe():
            found = (await self.client.get(CRON_JOBS, "c", "default")).get("status") or {}
            return all(found.get(key) == value for key, value in fields.items())

        await eventually(probe)


@pytest.fixture
async def world(tmp_path):
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServer(tls=False))
        config = ClusterConfig.load(api.write_kubeconfig(tmp_path / "kubeconfig"))
        client = await stack.enter_async_context(Client(config))
        cron_jobs, jobs, clock = Informer(client, CRON_JOBS), Informer(client, JOBS), Clock()
        recorder = EventRecorder(client, "cronjob-controller", "cronjob-controller")
        work = (cron_jobs.run(), jobs.run(), recorder.run(), cronjob.run(client, cron_jobs, jobs, recorder, clock))
        tasks = [asyncio.create_task(each) for each in work]
        await cron_jobs.synced()
        await jobs.synced()
        yield World(client, clock)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_job_starts_at_each_turn_and_only_so_many_are_kept(world):
    await world.make(successfulJobsHistoryLimit=1)
    await world.status(lastScheduleTime=None)
    world.clock.pass_minutes(1)
    (first,) = await world.jobs(1)
    minutes = int(world.clock.now().timestamp()) // 60
    assert first["metadata"]["name"] == f"c-{minutes}"
    assert first["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    assert await world.event("SuccessfulCreate") == f"Created job c-{minutes}"
    await world.end(first)
    world.clock.pass_minutes(1)
    second = next(job for job in await world.jobs(2) if job["metadata"]["uid"] != first["metadata"]["uid"])
    await world.end(second)
    assert (await world.jobs(1))[0]["metadata"]["uid"] == second["metadata"]["uid"]
    await world.status(active=None, lastSuccessfulTime="2026-01-01T00:00:00Z")


async def test_forbid_waits_for_the_job_before(world):
    await world.make(concurrencyPolicy="Forbid")
    world.clock.pass_minutes(1)
    (first,) = await world.jobs(1)
    world.clock.pass_minutes(1)
    assert "concurrency policy is Forbid" in await world.event("JobAlreadyActive")
    await world.end(first)
    await world.jobs(2)


async def test_replace_ends_the_job_before(world):
    await world.make(concurrencyPolicy="Replace")
    world.clock.pass_minutes(1)
    (first,) = await world.jobs(1)
    world.clock.pass_minutes(1)

    async def replaced():
        (only,) = await world.jobs(1)
        return only["metadata"]["uid"] != first["metadata"]["uid"]

    await eventually(replaced)


async def test_who_is_suspended_or_too_late_starts_nothing(world):
    await world.make(suspend=True, startingDeadlineSeconds=20)
    world.clock.pass_minutes(5)
    await world.client.patch_merge(CRON_JOBS, "c", {"spec": {"suspend": False}}, "default")
    assert "Missed scheduled time" in await world.event("MissSchedule")
    assert not (await world.client.list(JOBS, "default")).items


def test_turns_are_those_of_a_time_zone():
    now = datetime(2026, 11, 22, 12, 0, 5, tzinfo=UTC)
    spec = {"schedule": "30 19 * * *", "timeZone": "Asia/Tokyo"}
    assert latest_turn(spec, "2026-11-22T00:00:00Z", now) == datetime(2026, 11, 22, 10, 30, tzinfo=UTC)
    assert latest_turn(spec, "2026-11-22T10:30:00Z", now) is None
