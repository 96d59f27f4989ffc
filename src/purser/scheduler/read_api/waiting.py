"""Requests that wait until the state is another than the one that their client knows.

Who waits looks at the state as often as it is made anew, which all share: the API server is not asked for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from aiohttp import web

from purser.scheduler.read_api.clients import has_gone
from purser.scheduler.read_api.documents import MIN_DOCUMENT_AGE_S
from purser.scheduler.read_api.places import Places

MAX_WAIT_S = 30
LOOK_PERIOD_S = MIN_DOCUMENT_AGE_S


def wait_of(query: Mapping[str, str]) -> int:
    """For how many seconds a request may wait. Raises aiohttp's 400."""
    text = query.get("wait", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 2 and int(text) <= MAX_WAIT_S):
        raise web.HTTPBadRequest(text=f"wait must be a whole number of seconds from 0 to {MAX_WAIT_S}\n")
    return int(text)


class ChangeWaits:
    """All requests that wait."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._has_ended = asyncio.Event()

    async def until(
        self, has_changed: Callable[[], Awaitable[bool]], request: web.Request, user: str, seconds: int
    ) -> None:
        """Return once there is a change, the time is over, the client has gone, or the server ends. Raises what
        ``has_changed`` raises, and aiohttp's 429 and 503."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        async with self._places.one(user):
            while not await has_changed():
                left = end - loop.time()
                if left <= 0 or self._has_ended.is_set() or has_gone(request):
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(LOOK_PERIOD_S, left)):
                        await self._has_ended.wait()

    async def end(self, _: object = None) -> None:
        """Let none wait any longer."""
        self._has_ended.set()
