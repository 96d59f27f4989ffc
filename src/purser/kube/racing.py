"""Doing something no longer than until something else happens."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def until(work: Coroutine[Any, Any, T], end: Coroutine[Any, Any, object]) -> T | None:
    """The result of ``work``; None when ``end`` returned first. Whichever is late is cancelled and waited for."""
    work_task, ending = asyncio.ensure_future(work), asyncio.ensure_future(end)
    try:
        await asyncio.wait({work_task, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        work_task.cancel()
        ending.cancel()
        await asyncio.gather(work_task, ending, return_exceptions=True)
    return None if work_task.cancelled() else work_task.result()


def raise_if_cancelled() -> None:
    """Raise CancelledError where this task was cancelled and what it awaited kept that to itself.

    To be called after an await of other people's code that uses ``asyncio.wait_for``, which on Python 3.11 loses a
    cancellation that comes while it ends: ``grpc.aio.Server.stop`` with a time of grace does.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
