"""Clients that leave before they are answered: aiohttp lets their requests go on."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from aiohttp import web

T = TypeVar("T")

LOOK_PERIOD_S = 0.25


class ClientGoneError(Exception):
    """There is nobody to answer any more."""


def has_gone(request: web.Request) -> bool:
    """Whether the connection is closed."""
    return request.transport is None or request.transport.is_closing()


async def while_there(request: web.Request, work: Awaitable[T]) -> T:
    """What the work gives; it is cancelled once the client has gone. Raises `ClientGoneError`, and what the work
    raises."""
    task = asyncio.ensure_future(work)
    try:
        while not has_gone(request):
            done, _ = await asyncio.wait((task,), timeout=LOOK_PERIOD_S)
            if done:
                return task.result()
        raise ClientGoneError
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
