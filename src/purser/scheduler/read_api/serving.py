"""The HTTPS of the read API. It has a port, connections and limits of its own: whatever its clients do, those of
webhook and extender are not theirs.

An answer is written chunk by chunk, and given up where its client reads too slowly: what a client can hold of this
process is one chunk, and the document that all share.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from purser.connections import Limits
from purser.core.decoding import brief
from purser.core.kubernetes.naming import is_label
from purser.kube import KubeError
from purser.kube.resources import EVENTS, PODS, Resource
from purser.scheduler.explaining import NoTurnError
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.read_api.access import STATE_PATH, AccessControl, AccessVerdict
from purser.scheduler.read_api.clients import ClientGoneError, has_gone, while_there
from purser.scheduler.read_api.documents import EncodedState
from purser.scheduler.read_api.lists import ListKind, ListQueryError, read_part
from purser.scheduler.read_api.nodes import NodePage
from purser.scheduler.read_api.objects import ObjectPage
from purser.scheduler.read_api.page import Scope, StatePage
from purser.scheduler.read_api.places import RETRY_AFTER, Places
from purser.scheduler.read_api.reads import TooManyReadsError
from purser.scheduler.read_api.rollout_page import RolloutPage
from purser.scheduler.read_api.tags import is_known
from purser.scheduler.read_api.waiting import ChangeWaits, wait_of
from purser.scheduler.read_api.why import WhyPage

log = structlog.get_logger("purser.scheduler")

READ_API_LIMITS = Limits(connections=64, request_s=10.0, idle_s=30.0)

NAMESPACE_STATE_PATH = "/v1/namespaces/{namespace}/state"
ROLLOUT_PATH = "/v1/rollout"
"""Who may read the whole state may read it."""
LIST_PATHS = ("/v1/{kind}", "/v1/namespaces/{{namespace}}/{kind}")
"""Who may read the state, or the namespace's part of it, may read it."""
NODE_PATH = "/v1/nodes/{node}"
"""Who may read the whole state may read it."""
NAMESPACE_NODE_PATH = "/v1/namespaces/{namespace}/nodes/{node}"
POD_PATH = "/v1/namespaces/{namespace}/pods/{pod}"
WHY_PATH = f"{POD_PATH}/why"
EVENTS_PATH = "/v1/namespaces/{namespace}/events"
"""Who may list the namespace's events may read it."""

MAX_CONCURRENT_ANSWERS = 8
"""Documents that are sent at once."""
MAX_ANSWERS_OF_A_USER = 2
MAX_SEARCHES, MAX_SEARCHES_OF_A_USER = 8, 2
"""Requests for why a pod waits that wait for their turn, or are searched for: one search runs at a time."""
MAX_WAITS, MAX_WAITS_OF_A_USER = 32, 4
"""Requests that wait for a change: half of the connections stay for others."""
CLIENT_GONE = 499
"""Counted for those who leave before they have their answer, or do not read it in time; nobody is told."""
SEND_TIMEOUT_S = 30.0
"""For one document: of ten MiB, 3 Mbit/s."""
_CHUNK_BYTES = 64 * 1024
_HEADERS = {"Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True)
class Requester:
    """Who asks."""

    user: str
    scope: Scope | None
    """One namespace's part; None: the whole."""


Document = Callable[[web.Request, Requester], Awaitable[EncodedState]]
"""What a request asks for. Raises aiohttp's errors."""


def read_api_app(
    access: AccessControl,
    page: StatePage,
    nodes: NodePage,
    objects: ObjectPage,
    why_page: WhyPage,
    rollouts: RolloutPage,
    metrics: SchedulerMetrics,
) -> web.Application:
    """The read API, and nothing else: all pods of the cluster may be able to reach it."""
    answers = Places(MAX_CONCURRENT_ANSWERS, MAX_ANSWERS_OF_A_USER, "responses are still being sent")
    searches = Places(MAX_SEARCHES, MAX_SEARCHES_OF_A_USER, "requests about why a pod waits are still being answered")
    waits = ChangeWaits(Places(MAX_WAITS, MAX_WAITS_OF_A_USER, "requests are waiting for a change"))

    async def state(_: web.Request, reader: Requester) -> EncodedState:
        return await page.current(reader.scope)

    async def node(request: web.Request, reader: Requester) -> EncodedState:
        found = nodes.of(request.match_info["node"], reader.scope)
        if found is None:
            raise web.HTTPNotFound(text="no node with this name has GPUs that you are allowed to see\n")
        return found

    def lists(kind: ListKind) -> Document:
        async def part(request: web.Request, reader: Requester) -> EncodedState:
            namespace = None if reader.scope is None else reader.scope.namespace
            try:
                asked = read_part(request.query, kind, namespace)
            except ListQueryError as error:
                raise web.HTTPBadRequest(text=f"{error}\n") from None
            return await page.listed(kind, reader.scope, asked)

        return part

    async def rollout(_: web.Request, reader: Requester) -> EncodedState:
        return await rollouts.current()

    async def pod(request: web.Request, reader: Requester) -> EncodedState:
        found = await objects.pod(request.match_info["namespace"], request.match_info["pod"], reader.user)
        return _known_pod(found)

    async def why(request: web.Request, reader: Requester) -> EncodedState:
        assert reader.scope is not None, "the path names a namespace"
        return _known_pod(await why_page.of(request.match_info["pod"], reader.scope, reader.user))

    async def events(request: web.Request, reader: Requester) -> EncodedState:
        found = await objects.events(request.match_info["namespace"], request.query, reader.user)
        if found is None:
            raise web.HTTPBadRequest(
                text="specify the object whose events you want: ?kind=KIND&name=NAME or ?uid=UID\n"
            )
        return found

    def build_handler(document_of: Document, listed: Resource[Any]) -> Handler:
        """``listed``: what a namespace's readers must be allowed to list in it."""

        async def answer(request: web.Request) -> web.StreamResponse:
            namespace = request.match_info.get("namespace")
            if namespace is not None and not is_label(namespace):
                raise web.HTTPNotFound(text="the namespace in the path must be an RFC 1123 label\n")
            known = request.headers.getall("If-None-Match", ())
            asked_s = wait_of(request.query)
            seconds = asked_s if document_of is state and known else 0

            async def review() -> AccessVerdict:
                return await access.verdict(request.headers.get("Authorization", ""), namespace, listed)

            async def read(verdict: AccessVerdict) -> EncodedState:
                scope = None if namespace is None else Scope(namespace, verdict.sees_nodes)
                return await _made(document_of, request, Requester(verdict.user, scope))

            async def has_changed() -> bool:
                """Nothing is told meanwhile to who may not read any more, nor while that is not known."""
                found = await review()
                return found.status != 503 and (found.status != 200 or not is_known((await read(found)).tag, known))

            verdict = await review()
            if verdict.status == 200 and seconds:
                await waits.until(has_changed, request, verdict.user, seconds)
                if has_gone(request):
                    raise ClientGoneError
                verdict = await review()
            if verdict.status != 200:
                return _refusal(verdict.status, verdict.message)
            if document_of is why:
                async with searches.one(verdict.user):
                    document = await while_there(request, read(verdict))
                async with answers.one(verdict.user):
                    return await _send(request, document, known)
            async with answers.one(verdict.user):
                return await _send(request, await read(verdict), known)

        return answer

    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            metrics.read(error.status)
            raise
        except ClientGoneError:
            response = web.Response(status=CLIENT_GONE)
        metrics.read(response.status)
        return response

    app = web.Application(middlewares=[counted])
    documents: dict[str, tuple[Document, Resource[Any]]] = {
        STATE_PATH: (state, PODS),
        NAMESPACE_STATE_PATH: (state, PODS),
        NODE_PATH: (node, PODS),
        NAMESPACE_NODE_PATH: (node, PODS),
        ROLLOUT_PATH: (rollout, PODS),
        POD_PATH: (pod, PODS),
        WHY_PATH: (why, PODS),
        EVENTS_PATH: (events, EVENTS),
        **{path.format(kind=kind): (lists(kind), PODS) for kind in ListKind for path in LIST_PATHS},
    }
    for path, (document_of, listed) in documents.items():
        app.router.add_get(path, build_handler(document_of, listed), allow_head=False)
    app.on_shutdown.append(waits.end)
    return app


async def _made(document_of: Document, request: web.Request, reader: Requester) -> EncodedState:
    """The document. Raises aiohttp's errors for whatever goes wrong."""
    try:
        return await document_of(request, reader)
    except web.HTTPException:
        raise
    except TooManyReadsError:
        raise web.HTTPTooManyRequests(
            text="too many different pods or events were requested within one second: try again\n", headers=RETRY_AFTER
        ) from None
    except NoTurnError as error:
        raise web.HTTPServiceUnavailable(
            text=f"the scheduler did not search for this pod: {error}: try again\n",
            headers={"Retry-After": str(max(1, math.ceil(error.wait_s)))},
        ) from None
    except KubeError as error:
        raise web.HTTPServiceUnavailable(
            text=f"the API server cannot be read: {brief(error)}\n", headers=RETRY_AFTER
        ) from None
    except Exception:
        log.exception("Failed to build a document of the read API", path=request.path)
        raise web.HTTPInternalServerError(
            text="internal error in Purser: see the log of Purser's scheduler\n"
        ) from None


def _known_pod(found: EncodedState | None) -> EncodedState:
    if found is None:
        raise web.HTTPNotFound(text="the namespace has no pod with this name that requests GPUs\n")
    return found


def _refusal(status: int, message: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else RETRY_AFTER if status in (429, 503) else {}
    return web.Response(status=status, text=f"{message}\n", headers=headers)


async def _send(request: web.Request, document: EncodedState, known: Iterable[str]) -> web.StreamResponse:
    """All of it, or that its client knows it. Raises `ClientGoneError`."""
    if is_known(document.tag, known):
        return web.Response(status=304, headers={**_HEADERS, "ETag": document.tag})
    response = web.StreamResponse(headers={**_HEADERS, "ETag": document.tag, "Content-Type": "application/json"})
    response.content_length = document.length
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await response.prepare(request)
            for chunk in _chunks(document.pieces):
                await response.write(chunk)
            await response.write_eof()
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
        raise ClientGoneError from None
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
