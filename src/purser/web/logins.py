"""Pages for people who log in with a bearer token of their own, as the Kubernetes Dashboard has it.

The token comes from a form and is kept in a cookie of the browser, or a proxy in front sends it with each request. The
read API accepts or refuses it: this server has no permissions of its own, and can show nobody more than they could read
themselves.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, quote

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from purser.core.kubernetes.naming import is_label
from purser.kube import KubeError
from purser.top.asking import ReadRefusedError, is_valid_token
from purser.web.access import PUBLIC_PATHS, is_local_host
from purser.web.feed import Feed
from purser.web.pages import FEED, SESSION, Pages, Session
from purser.web.viewers import NotServedError, Viewer, Viewers

log = structlog.get_logger("purser.web")

TOKEN_COOKIE = "purser-token"
NAMESPACE_COOKIE = "purser-namespace"
MAX_TOKEN_CHARACTERS = 3800
"""What browsers keep in a cookie is 4096 characters, its name and attributes included."""
_MAX_FIELD = 2000

_HTTPS_ADVICE = (
    "Browsers keep the token only over HTTPS or on localhost. Open these pages through a proxy with TLS, or forward "
    "the port."
)
MESSAGES = {
    401: "The token is not known, has expired, or is for another audience.",
    403: "The token's user is not allowed to see the cluster, or the namespace that was entered. Enter a namespace in "
    "which the user may list pods.",
}


class LoginAccess:
    """An `Access`."""

    def __init__(self, viewers: Viewers, pages: Pages) -> None:
        self._viewers, self._pages = viewers, pages

    @property
    def routes(self) -> Sequence[web.RouteDef]:
        """As `Access` has it."""
        return [
            web.get("/login", self._show_form),
            web.post("/login", self._log_in),
            web.post("/logout", self._log_out),
        ]

    @property
    def middleware(self) -> Middleware:
        """As `Access` has it."""

        @web.middleware
        async def only_with_a_token(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path.startswith(PUBLIC_PATHS) or request.path in ("/login", "/logout"):
                return await handler(request)
            viewer = _viewer_of(request)
            if not viewer.token:
                return _redirect_to_form(request, 0)
            try:
                request[FEED] = await self._feed_of(viewer)
            except ReadRefusedError as error:
                return _redirect_to_form(request, error.status)
            request[SESSION] = Session(viewer.namespace, is_by_cookie=_header_token(request) is None)
            return await handler(request)

        return only_with_a_token

    def problems(self) -> Sequence[str]:
        """As `Access` has it: whether the scheduler answers shows with each login."""
        return ()

    def end(self) -> None:
        """As `Access` has it."""
        self._viewers.end()

    async def _show_form(self, request: web.Request) -> web.Response:
        status = request.query.get("refused", "")
        message = MESSAGES.get(int(status), "") if status in map(str, MESSAGES) else ""
        return self._form(request, message, request.query.get("next", "/"), _viewer_of(request).namespace)

    async def _log_in(self, request: web.Request) -> web.Response:
        _refuse_other_sites(request)
        form = await _form_fields(request)
        token, namespace, then = (form.get(name, "").strip() for name in ("token", "namespace", "next"))
        from_header = _header_token(request)
        sent = token if from_header is None else from_header
        if from_header is None and _loses_cookies(request):
            return self._form(request, _HTTPS_ADVICE, then, namespace, 400)
        if not is_valid_token(sent) or (namespace and not is_label(namespace)):
            message = "The namespace must be an RFC 1123 label."
            if not is_valid_token(sent):
                message = "Enter a token: ASCII characters without spaces."
            return self._form(request, message, then, namespace, 400)
        if len(token) > MAX_TOKEN_CHARACTERS:
            message = "The token is too long for a cookie: put a proxy in front that sends it with each request."
            return self._form(request, message, then, namespace, 400)
        try:
            await self._feed_of(Viewer(sent, namespace))
        except ReadRefusedError as error:
            return self._form(request, MESSAGES[error.status], then, namespace, error.status)
        response = _redirect(_local(then))
        _set_cookie(response, NAMESPACE_COOKIE, namespace)
        if from_header is None:
            _set_cookie(response, TOKEN_COOKIE, token)
        return response

    async def _log_out(self, request: web.Request) -> web.Response:
        _refuse_other_sites(request)
        self._viewers.forget(_viewer_of(request))  # other tabs of the browser show nothing new either
        response = _redirect("/login")
        for name in (TOKEN_COOKIE, NAMESPACE_COOKIE):
            response.del_cookie(name, path="/", secure=True, httponly=True, samesite="Strict")
        return response

    async def _feed_of(self, viewer: Viewer) -> Feed:
        try:
            return await self._viewers.feed_of(viewer)
        except ReadRefusedError:
            raise
        except NotServedError as error:
            raise web.HTTPServiceUnavailable(text=f"{error}.") from error
        except KubeError as error:
            log.warning("Cannot read the scheduler's read API", error=str(error))
            raise web.HTTPServiceUnavailable(
                text="The scheduler's read API is unavailable: try again later, or see the log of purser web."
            ) from error

    def _form(self, request: web.Request, message: str, then: str, namespace: str, status: int = 200) -> web.Response:
        values = {
            "message": message,
            "next": _local(then),
            "namespace": namespace if is_label(namespace) else "",
            "needs_token": _header_token(request) is None,
        }
        return self._pages.page(request, "login.html", values, status)


def _viewer_of(request: web.Request) -> Viewer:
    """Of a header that a proxy sets, or of the cookies."""
    token = _header_token(request)
    if token is None:
        token = request.cookies.get(TOKEN_COOKIE, "")
    namespace = request.cookies.get(NAMESPACE_COOKIE, "")
    return Viewer(token if is_valid_token(token) else "", namespace if is_label(namespace) else "")


def _header_token(request: web.Request) -> str | None:
    """The bearer token that a proxy sends; None where it sends none, such as one that has asked for a password."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _loses_cookies(request: web.Request) -> bool:
    """Whether the browser will not send the cookie, which is for HTTPS and for localhost only: without this, a login
    would lead back to the form without a word."""
    is_plain = request.headers.get("Origin", "").startswith("http://")
    return is_plain and not is_local_host(request.headers.get("Host", ""))


def _redirect_to_form(request: web.Request, refused: int) -> web.Response:
    if request.path == "/events":
        raise web.HTTPUnauthorized(text="log in again\n")
    refusal = f"&refused={refused}" if refused else ""
    return _redirect(f"/login?next={quote(request.path_qs, safe='')}{refusal}")


def _redirect(where: str) -> web.Response:
    return web.Response(status=303, headers={"Location": where})


def _refuse_other_sites(request: web.Request) -> None:
    """Browsers say from which site a form was sent: nobody else's logs anybody in or out."""
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("Host"):
        raise web.HTTPForbidden(text="The form was sent by another site.")


def _set_cookie(response: web.Response, name: str, value: str) -> None:
    """Without an age: it ends with the browser's session. Browsers count http://localhost as secure."""
    response.set_cookie(name, value, path="/", secure=True, httponly=True, samesite="Strict")


async def _form_fields(request: web.Request) -> Mapping[str, str]:
    """As browsers send a form without files; aiohttp's own reader raises many kinds of errors for what is none."""
    return dict(parse_qsl((await request.read()).decode(errors="replace")))


def _local(then: str) -> str:
    """An address of these pages; ``/`` in place of any other, which a browser might take for another host's."""
    is_local = then.startswith("/") and not then.startswith("//") and then.isprintable() and "\\" not in then
    return then if is_local and len(then) <= _MAX_FIELD else "/"
