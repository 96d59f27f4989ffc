"""Ends of coroutines: whatever others swallow, a task that was cancelled ends."""

import asyncio

import grpc
import pytest

from purser.agent.kubelet import plugin as plugins
from purser.kube.racing import raise_if_cancelled, until


async def swallows_cancellation():
    """As asyncio.wait_for does on Python 3.11 when what it waits for ends at that moment."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return


async def test_a_cancellation_that_was_swallowed_is_raised_after_all():
    async def work():
        await swallows_cancellation()
        raise_if_cancelled()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_nothing_is_raised_in_a_task_that_nobody_cancelled():
    raise_if_cancelled()


async def test_whichever_is_late_is_cancelled():
    assert await until(asyncio.sleep(0, "done"), asyncio.Event().wait()) == "done"
    assert await until(asyncio.Event().wait(), asyncio.sleep(0)) is None


async def test_a_plugin_that_is_taken_down_ends_though_grpc_swallows_the_cancellation(monkeypatch, tmp_path):
    real = grpc.aio.server

    def server(*args, **kwargs):
        made = real(*args, **kwargs)
        stop = made.stop

        async def swallowing_stop(grace):
            await swallows_cancellation()
            await stop(None)

        made.stop = swallowing_stop
        return made

    class Plugin:
        def stop(self):
            stopping.set()

    stopping = asyncio.Event()
    monkeypatch.setattr(plugins.grpc.aio, "server", server)
    monkeypatch.setattr(plugins, "_self_check", lambda socket: asyncio.sleep(0))
    monkeypatch.setattr(plugins.api_pb2_grpc, "add_DevicePluginServicer_to_server", lambda *_: None)

    async def serve_and_go_on():
        async with plugins.serve(Plugin(), tmp_path / "p.sock"):
            pass
        await asyncio.Event().wait()

    task = asyncio.create_task(serve_and_go_on())
    await stopping.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=20)
    assert task.cancelled()
