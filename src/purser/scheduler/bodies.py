"""The bodies of requests, within bounds: of one, and of all that are held at once.

What counts is what has come, not what was announced: who announces much and sends little takes nothing from others.
Where all together are too many, the one that has been on its way for longest is given up, for it is the likeliest to be
held back on purpose; where none is on its way, the new one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import StreamReader, web
from aiohttp.web_protocol import RequestPayloadError

from purser.core.kubernetes.quantities import MIB

RETRY_AFTER_S = 1


@dataclass(frozen=True)
class BodyLimits:
    """Bytes of one body, and of all that are held at once."""

    per_body: int
    in_total: int


WEBHOOK_BODIES = BodyLimits(per_body=8 * MIB, in_total=64 * MIB)
"""kube-apiserver takes no request of more than 3 MiB; an AdmissionReview of an update carries the object twice."""

EXTENDER_BODIES = BodyLimits(per_body=32 * MIB, in_total=128 * MIB)
"""The names of 100 000 nodes with victims on each are less."""


class Bodies:
    """The bodies that one server holds."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._held = 0
        self._incoming: dict[asyncio.Timeout, None] = {}
        """By what each that is not complete can be given up, the oldest first."""

    @property
    def held(self) -> int:
        """Bytes of all bodies that are read or worked on."""
        return self._held

    @asynccontextmanager
    async def of(self, request: web.Request) -> AsyncIterator[bytes]:
        """The body of a request, held until left. Raises aiohttp's answers: 413 for one too large, 503 for too many."""
        if (request.content_length or 0) > self._limits.per_body:
            raise self._too_large()
        taken = bytearray()
        try:
            yield await self._read(request.content, taken)
        finally:
            self._held -= len(taken)

    async def _read(self, content: StreamReader, taken: bytearray) -> bytes:
        try:
            async with asyncio.timeout(None) as timeout:
                self._incoming[timeout] = None
                try:
                    while chunk := await content.readany():
                        taken += chunk
                        self._held += len(chunk)
                        if len(taken) > self._limits.per_body:
                            raise self._too_large()
                        self._make_room(timeout)
                finally:
                    self._incoming.pop(timeout, None)
        except TimeoutError:
            raise web.HTTPServiceUnavailable(
                text="too many large concurrent requests: try again\n", headers={("Retry-After"): str(RETRY_AFTER_S)}
            ) from None
        except (ConnectionError, RequestPayloadError) as error:
            raise web.HTTPBadRequest(text="the request body is incomplete or malformed\n") from error
        return bytes(taken)

    def _make_room(self, newest: asyncio.Timeout) -> None:
        if self._held <= self._limits.in_total:
            return
        oldest = next(iter(self._incoming), newest)
        self._incoming.pop(oldest, None)
        if oldest is newest:
            raise TimeoutError
        oldest.reschedule(asyncio.get_running_loop().time())

    def _too_large(self) -> web.HTTPRequestEntityTooLarge:
        limit = self._limits.per_body
        return web.HTTPRequestEntityTooLarge(
            max_size=limit, actual_size=limit, text=f"the request body has more than {limit} bytes\n"
        )
