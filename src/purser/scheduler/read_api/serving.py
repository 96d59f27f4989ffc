"""The HTTPS of the read API. It has a port, connections and limits of its own: whatever its clients do, those of
webhook and extender are not theirs.

An answer is written chunk by chunk, and given up where its client reads too slowly: what a client can hold of this
process is one chunk, and the document that all share.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from purser.connections import Limits
from purser.core.kubernetes.naming import is_label
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.read_api.access import STATE_PATH, AccessControl, AccessVerdict
from purser.scheduler.read_api.page import EncodedState, Scope, StatePage
from purser.scheduler.read_api.rollout_page import RolloutPage

log = structlog.get_logger("purser.scheduler")

READ_API_LIMITS = Limits(connections=64, request_s=10.0, idle_s=30.0)

NAMESPACE_STATE_PATH = "/v1/namespaces/{namespace}/state"
ROLLOUT_PATH = "/v1/rollout"
"""For those who may read the whole state."""

MAX_ANSWERS = 8
"""Documents that are sent at once."""
MAX_ANSWERS_OF_A_USER = 2
SEND_TIMEOUT_S = 30.0
"""For one document: of ten MiB, 3 Mbit/s."""
_CHUNK_BYTES = 64 * 1024
_RETRY_AFTER = {"Retry-After": "1"}
_HEADERS = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}


class SentAnswers:
    """How many documents are being sent, to whom."""

    def __init__(self) -> None:
        self._by_user: Counter[str] = Counter()

    @asynccontextmanager
    async def one(self, user: str) -> AsyncIterator[None]:
        """While one is sent. Raises aiohttp's 429 and 503."""
        if self._by_user[user] >= MAX_ANSWERS_OF_A_USER:
            raise web.HTTPTooManyRequests(
                text=f"{MAX_ANSWERS_OF_A_USER} responses are still being sent to you: read those first\n",
                headers=_RETRY_AFTER,
            )
        if self._by_user.total() >= MAX_ANSWERS:
            raise web.HTTPServiceUnavailable(text="too many concurrent responses: try again\n", headers=_RETRY_AFTER)
        self._by_user[user] += 1
        try:
            yield
        finally:
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]


def read_api_app(
    access: AccessControl, page: StatePage, rollouts: RolloutPage, metrics: SchedulerMetrics
) -> web.Application:
    """The read API, and nothing else: all pods of the cluster may be able to reach it."""
    answers = SentAnswers()

    async def state(request: web.Request) -> web.StreamResponse:
        namespace = request.match_info.get("namespace")
        if namespace is not None and not is_label(namespace):
            raise web.HTTPNotFound(text="the namespace in the path must be an RFC 1123 label\n")
        verdict = await access.verdict(request.headers.get("Authorization", ""), namespace)
        scope = None if namespace is None else Scope(namespace, verdict.sees_nodes)
        return await answered(request, verdict, lambda: page.current(scope))

    async def rollout(request: web.Request) -> web.StreamResponse:
        verdict = await access.verdict(request.headers.get("Authorization", ""))
        return await answered(request, verdict, rollouts.current)

    async def answered(
        request: web.Request, verdict: AccessVerdict, current: Callable[[], Awaitable[EncodedState]]
    ) -> web.StreamResponse:
        if verdict.status != 200:
            return _refusal(verdict.status, verdict.message)
        async with answers.one(verdict.user):
            try:
                document = await current()
            except Exception:
                log.exception("Failed to build a document", path=request.path)
                return web.Response(status=500, text="internal error in Purser: see the log of Purser's scheduler\n")
            if request.headers.get("If-None-Match") == document.tag:
                return web.Response(status=304, headers={**_HEADERS, "ETag": document.tag})
            return await _send(request, document)

    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            metrics.read(error.status)
            raise
        metrics.read(response.status)
        return response

    app = web.Application(middlewares=[counted])
    app.router.add_get(STATE_PATH, state, allow_head=False)
    app.router.add_get(NAMESPACE_STATE_PATH, state, allow_head=False)
    app.router.add_get(ROLLOUT_PATH, rollout, allow_head=False)
    return app


def _refusal(status: int, message: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else _RETRY_AFTER if status == 503 else {}
    return web.Response(status=status, text=f"{message}\n", headers=headers)


async def _send(request: web.Request, document: EncodedState) -> web.StreamResponse:
    response = web.StreamResponse(headers={**_HEADERS, "ETag": document.tag, "Content-Type": "application/json"})
    response.content_length = document.length
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await response.prepare(request)
            for chunk in _chunks(document.pieces):
                await response.write(chunk)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return response


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces, short ones together and long ones divided."""
    chunk = bytearray()
    for piece in pieces:
        chunk += piece
        while len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk[:_CHUNK_BYTES])
            del chunk[:_CHUNK_BYTES]
    yield bytes(chunk)
