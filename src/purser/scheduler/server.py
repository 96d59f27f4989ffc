"""The scheduler's HTTP: webhook and extender over TLS, metrics and health in the clear.

Bad input is answered with 400 and a sentence; what fails inside is logged and answered with 500. Neither ends the
server.
"""

import hmac
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from purser.scheduler.extender_api import Extender
from purser.scheduler.extender_fence import FencedError
from purser.scheduler.extender_wire import WireError, decode_args, decode_binding, decode_preemption
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.validation import Validation
from purser.scheduler.webhook import Mutation
from purser.scheduler.webhook_review import ReviewError, decode_review, encode_review
from purser.telemetry import telemetry_routes

log = structlog.get_logger("purser.scheduler")

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Generous: the names of 100 000 nodes with victims on each, or the largest pod twice, are less."""

_JSON = "application/json"

Verb = Callable[[bytes], Awaitable["Answer"]]
"""One path's work: from the body to the answer. Raises `WireError` or `ReviewError` for a bad body."""


class Answer(msgspec.Struct, frozen=True):
    """A body, and whether it holds an error that the caller will see."""

    body: bytes
    is_error: bool = False


@dataclass(frozen=True)
class ClientAuth:
    """Whom webhook and extender answer; nothing set means everybody who can reach them."""

    certificate: bool = False
    """A client certificate, which the TLS context has checked, will do."""
    token: str = field(default="", repr=False)
    """This bearer token will do."""

    def accepts(self, request: web.Request) -> bool:
        """Whether the request comes from somebody to answer."""
        if not (self.certificate or self.token):
            return True
        return (self.certificate and _has_certificate(request)) or (bool(self.token) and self._has_token(request))

    def _has_token(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode())


@dataclass(frozen=True)
class Backends:
    """Who answers what."""

    extender: Extender
    mutation: Mutation
    validation: Validation
    metrics: SchedulerMetrics
    not_ready: Callable[[], list[str]]
    """Why this process should not be asked yet; empty when it is ready."""


def https_app(backends: Backends, auth: ClientAuth = ClientAuth()) -> web.Application:
    """Everything: webhook, extender, health and metrics."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes(telemetry_routes(backends.metrics.registry, backends.not_ready))
    verbs = {**_webhook_verbs(backends), **_extender_verbs(backends.extender, backends.metrics)}
    for name, verb in verbs.items():
        app.router.add_post(f"/{name}", _endpoint(name, verb, backends.metrics))
    app.middlewares.append(_authenticated(auth))
    return app


def trust_clients(context: ssl.SSLContext, ca_file: Path) -> None:
    """Have clients asked for a certificate by a CA; one by another CA ends the handshake, none does not (health)."""
    context.load_verify_locations(ca_file)
    context.verify_mode = ssl.CERT_OPTIONAL


def _webhook_verbs(backends: Backends) -> dict[str, Verb]:
    async def mutate(body: bytes) -> Answer:
        return _review("mutate", body, backends.mutation, backends.metrics)

    async def validate(body: bytes) -> Answer:
        return _review("validate", body, backends.validation, backends.metrics)

    return {"mutate": mutate, "validate": validate}


def _review(name: str, body: bytes, webhook: Mutation | Validation, metrics: SchedulerMetrics) -> Answer:
    request = decode_review(body)
    decision = webhook.review(request)
    metrics.admitted(name, decision.word, decision.why)
    if not decision.allowed:
        who = f"{request.namespace}/{request.name or '(generated name)'}"
        log.info("A webhook refused a pod", webhook=name, pod=who, reason=decision.why, message=decision.message)
    return Answer(encode_review(request, decision), is_error=False)


def _extender_verbs(extender: Extender, metrics: SchedulerMetrics) -> dict[str, Verb]:
    async def filter_(body: bytes) -> Answer:
        with metrics.stage("filter", "decode"):
            args = decode_args(body)
        result = await extender.filter(args)
        with metrics.stage("filter", "encode"):
            return Answer(msgspec.json.encode(result), is_error=bool(result.error))

    async def prioritize(body: bytes) -> Answer:
        with metrics.stage("prioritize", "decode"):
            args = decode_args(body)
        scores = await extender.prioritize(args)
        with metrics.stage("prioritize", "encode"):
            return Answer(msgspec.json.encode(scores))

    async def bind(body: bytes) -> Answer:
        result = await extender.bind(decode_binding(body))
        return Answer(msgspec.json.encode(result), is_error=bool(result.error))

    async def preempt(body: bytes) -> Answer:
        return Answer(msgspec.json.encode(await extender.preempt(decode_preemption(body))))

    return {"filter": filter_, "prioritize": prioritize, "bind": bind, "preempt": preempt}


def _endpoint(name: str, verb: Verb, metrics: SchedulerMetrics) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        started = perf_counter()
        response, outcome = await _answer(name, verb, body)
        metrics.answered(name, outcome, perf_counter() - started)
        return response

    return handle


async def _answer(name: str, verb: Verb, body: bytes) -> tuple[web.Response, str]:
    try:
        answer = await verb(body)
    except (WireError, ReviewError) as error:
        log.warning("A request makes no sense", verb=name, error=str(error))
        return web.Response(status=400, text=f"{error}\n"), "bad-request"
    except FencedError as error:
        log.info("A request came to a replica that may not decide now", verb=name, error=str(error))
        return web.Response(status=503, text=f"{error}\n"), "error"
    except Exception:
        log.exception("A request failed", verb=name)
        return web.Response(status=500, text="this failed inside Purser: see the log of its scheduler\n"), "failed"
    return web.Response(body=answer.body, content_type=_JSON), "error" if answer.is_error else "ok"


def _authenticated(auth: ClientAuth) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "POST" and not auth.accepts(request):
            return web.Response(status=401, text="a client certificate or a bearer token is needed\n")
        return await handler(request)

    return check


def _has_certificate(request: web.Request) -> bool:
    return request.transport is not None and bool(request.transport.get_extra_info("peercert"))
