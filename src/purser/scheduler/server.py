"""The scheduler's HTTPS: the webhook, which the API server asks, and the extender, which kube-scheduler asks, each on a
port of its own.

Bad input is answered with 400 and a sentence; what fails inside is logged and answered with 500. Neither ends the
server.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from purser.scheduler.bodies import EXTENDER_BODIES, WEBHOOK_BODIES, Bodies, BodyLimits
from purser.scheduler.extender_api import Extender
from purser.scheduler.extender_wire import WireError, decode_args, decode_binding, decode_preemption
from purser.scheduler.leadership_gate import NotLeadingError
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.webhook import Mutation, ReviewError, Validation, WorkloadWarnings, decode_review, encode_review

log = structlog.get_logger("purser.scheduler")

_JSON = "application/json"

Verb = Callable[[bytes], Awaitable["Response"]]
"""One path's work: from the body to the answer. Raises `WireError` or `ReviewError` for a bad body."""


class Response(msgspec.Struct, frozen=True):
    """A body, and whether it holds an error that the caller will see."""

    body: bytes
    is_error: bool = False


@dataclass(frozen=True)
class ClientAuth:
    """The clients of a server; nothing set means all that can reach it."""

    certificate: bool = False
    """Only clients with a certificate, which the TLS context has checked."""
    names: frozenset[str] = frozenset()
    """Of these, those alone whose certificate has one of these common names; empty: all."""

    def objection(self, request: web.Request) -> web.Response | None:
        """The answer to a request of an unauthorised client; None where the request is allowed."""
        if not self.certificate:
            return None
        certificate = request.transport and request.transport.get_extra_info("peercert")
        if not certificate:
            return web.Response(status=401, text="a client certificate is required\n")
        if self.names and self.names.isdisjoint(_common_names(certificate)):
            return web.Response(status=403, text="the client certificate's common name is not allowed\n")
        return None


def webhook_app(
    mutation: Mutation,
    validation: Validation,
    metrics: SchedulerMetrics,
    auth: ClientAuth = ClientAuth(),
    bodies: BodyLimits = WEBHOOK_BODIES,
) -> web.Application:
    """The webhook, and nothing else: all pods of the cluster may be able to reach it."""
    return _app(_webhook_verbs(mutation, validation, metrics), metrics, auth, bodies)


def extender_app(
    extender: Extender,
    metrics: SchedulerMetrics,
    auth: ClientAuth = ClientAuth(),
    bodies: BodyLimits = EXTENDER_BODIES,
) -> web.Application:
    """The extender, and nothing else: its clients can bind pods."""
    return _app(_extender_verbs(extender, metrics), metrics, auth, bodies)


def _app(verbs: dict[str, Verb], metrics: SchedulerMetrics, auth: ClientAuth, limits: BodyLimits) -> web.Application:
    app, bodies = web.Application(middlewares=[_authenticated(auth)]), Bodies(limits)
    for name, verb in verbs.items():
        app.router.add_post(f"/{name}", _endpoint(name, verb, bodies, metrics))
    return app


def trust_clients(context: ssl.SSLContext, ca_file: Path) -> None:
    """Request client certificates of a CA. One of another CA ends the handshake; a client without one gets an answer
    that says so.

    Raises OSError, as ssl.SSLError is, for a file that cannot be used.
    """
    context.load_verify_locations(ca_file)
    context.verify_mode = ssl.CERT_OPTIONAL


def _webhook_verbs(mutation: Mutation, validation: Validation, metrics: SchedulerMetrics) -> dict[str, Verb]:
    workloads = WorkloadWarnings(mutation)

    async def mutate(body: bytes) -> Response:
        return _review("mutate", body, mutation, metrics)

    async def validate(body: bytes) -> Response:
        return _review("validate", body, validation, metrics)

    async def warn(body: bytes) -> Response:
        return _review("warn", body, workloads, metrics)

    return {"mutate": mutate, "validate": validate, "warn": warn}


def _review(
    name: str, body: bytes, webhook: Mutation | Validation | WorkloadWarnings, metrics: SchedulerMetrics
) -> Response:
    request = decode_review(body)
    decision = webhook.review(request)
    metrics.admitted(name, decision.word, decision.why)
    if not decision.allowed:
        what = "/".join(filter(None, (request.namespace, request.name or "(generated name)")))
        resource = "/".join(filter(None, (request.resource.resource, request.sub_resource)))
        about = {"webhook": name, "resource": resource, "object": what}
        log.info("The webhook denied a request", **about, reason=decision.why, message=decision.message)
    return Response(encode_review(request, decision), is_error=False)


def _extender_verbs(extender: Extender, metrics: SchedulerMetrics) -> dict[str, Verb]:
    async def filter_(body: bytes) -> Response:
        with metrics.stage("filter", "decode"):
            args = decode_args(body)
        result = await extender.filter(args)
        with metrics.stage("filter", "encode"):
            return Response(msgspec.json.encode(result), is_error=bool(result.error))

    async def prioritize(body: bytes) -> Response:
        with metrics.stage("prioritize", "decode"):
            args = decode_args(body)
        scores = await extender.prioritize(args)
        with metrics.stage("prioritize", "encode"):
            return Response(msgspec.json.encode(scores))

    async def bind(body: bytes) -> Response:
        result = await extender.bind(decode_binding(body))
        return Response(msgspec.json.encode(result), is_error=bool(result.error))

    async def preempt(body: bytes) -> Response:
        return Response(msgspec.json.encode(await extender.preempt(decode_preemption(body))))

    return {"filter": filter_, "prioritize": prioritize, "bind": bind, "preempt": preempt}


def _endpoint(name: str, verb: Verb, bodies: Bodies, metrics: SchedulerMetrics) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        started = perf_counter()
        try:
            async with bodies.of(request) as body:
                started = perf_counter()
                response, outcome = await _answer(name, verb, body)
        except web.HTTPException:
            metrics.answered(name, "turned-away", perf_counter() - started)
            raise
        metrics.answered(name, outcome, perf_counter() - started)
        return response

    return handle


async def _answer(name: str, verb: Verb, body: bytes) -> tuple[web.Response, str]:
    try:
        answer = await verb(body)
    except (WireError, ReviewError) as error:
        log.warning("Malformed request", verb=name, error=str(error))
        return web.Response(status=400, text=f"{error}\n"), "bad-request"
    except NotLeadingError as error:
        log.info("A request reached an inactive replica", verb=name, error=str(error))
        return web.Response(status=503, text=f"{error}\n"), "error"
    except Exception:
        log.exception("A request failed", verb=name)
        return web.Response(status=500, text="internal error in Purser: see the log of Purser's scheduler\n"), (
            "failed"
        )
    return web.Response(body=answer.body, content_type=_JSON), "error" if answer.is_error else "ok"


def _authenticated(auth: ClientAuth) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        objection = auth.objection(request)
        return await handler(request) if objection is None else objection

    return check


def _common_names(certificate: Mapping[str, Any]) -> list[str]:
    """A certificate as the ssl module represents it."""
    return [value for parts in certificate.get("subject", ()) for name, value in parts if name == "commonName"]
