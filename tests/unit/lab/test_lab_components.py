import asyncio

from purser.lab import components
from purser.lab.components import Component


async def test_a_component_that_fails_is_started_again(monkeypatch):
    monkeypatch.setattr(components, "_RESTART_S", 0.0)
    starts = asyncio.Queue()

    async def run(stop):
        starts.put_nowait(None)
        if starts.qsize() == 1:
            raise RuntimeError("it broke")
        await stop.wait()

    component = Component("it", run)
    component.start()
    async with asyncio.timeout(5):
        while starts.qsize() < 2:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)
    assert component.is_running
    await component.stop()
    assert not component.is_running


async def test_kill_does_not_ask_and_stop_does():
    ended = []

    async def run(stop):
        try:
            await stop.wait()
            ended.append("asked")
        except asyncio.CancelledError:
            ended.append("killed")
            raise

    component = Component("it", run)
    for end in (component.kill, component.stop):
        component.start()
        component.start()
        await asyncio.sleep(0)
        await end()
    assert ended == ["killed", "asked"]


async def test_one_that_does_not_listen_is_killed_when_patience_ends():
    async def run(stop):
        await asyncio.Event().wait()

    component = Component("deaf", run)
    component.start()
    await asyncio.sleep(0)
    await component.stop(timeout_s=0.01)
    assert not component.is_running


async def test_one_that_fails_while_it_is_killed_is_not_started_again():
    """A TaskGroup that ends because a part of it failed swallows a cancellation that comes meanwhile."""
    failing, mending = asyncio.Event(), asyncio.Event()
    starts = 0

    async def fail():
        raise RuntimeError("it broke")

    async def end_slowly():
        try:
            await asyncio.Event().wait()
        finally:
            failing.set()
            await mending.wait()

    async def run(stop):
        nonlocal starts
        starts += 1
        async with asyncio.TaskGroup() as group:
            group.create_task(end_slowly())
            await asyncio.sleep(0)
            group.create_task(fail())

    component = Component("it", run)
    component.start()
    await failing.wait()
    killing = asyncio.create_task(component.kill())
    await asyncio.sleep(0)
    mending.set()
    async with asyncio.timeout(5):
        await killing
    assert starts == 1
    assert not component.is_running
