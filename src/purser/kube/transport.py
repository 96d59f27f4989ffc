"""HTTP to one API server: logins, deadlines, retries, and errors with names.

What is retried, within the call's deadline: reads after any failure that may pass; every request that was never sent
(connection refused); every request that the server declined with 429 and a Retry-After. A write that may have been
received is never sent twice.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from weakref import WeakSet

import aiohttp
import structlog
from yarl import URL

from purser.kube.backoff import Backoff
from purser.kube.clock import Clock
from purser.kube.config import ClusterConfig
from purser.kube.errors import (
    ApiUnavailableError,
    KubeError,
    ServerError,
    TlsError,
    TooManyRequestsError,
    UnauthorizedError,
    error_from_response,
)
from purser.kube.login import Login

log = structlog.get_logger("purser.kube")

_CONNECT_S = 10.0
_PLAIN = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)  # the call's own deadline does the rest
_CONNECTIONS = 128  # storms of bindings share these; every watch holds one
_MAX_CALL_ATTEMPTS = 5
"""Of one call while nothing answers. Waits that a server asks for (Retry-After) are bounded by the deadline."""

_RETRY_INITIAL_S = 0.1
_RETRY_CAP_S = 2.0
_CLOSE_S = 1.0
_CLOSE_POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class Call:
    """One request to be made."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing, so that it may be sent again."""
        return self.method == "GET"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Transport:
    """An HTTP session with an API server; an async context manager."""

    def __init__(self, config: ClusterConfig, *, user_agent: str, timeout: float, clock: Clock):
        self._config = config
        self._timeout = timeout
        self._clock = clock
        self._headers = {
            "User-Agent": user_agent,
            "Accept": "application/json",
            # gzip saves bandwidth inside the cluster's network and costs the API server CPU, which is dearer.
            "Accept-Encoding": "identity",
        }
        self._session: aiohttp.ClientSession | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._tls_login = Login()
        self._tls = config.ssl_context(self._tls_login)

    async def __aenter__(self) -> "Transport":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS, socket_factory=self._socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await self._wait_until_closed()

    async def request(self, call: Call) -> bytes:
        """The body of the answer. Raises `ApiError`, `ApiUnavailableError`, and `ConfigError` from the login."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                return await self._send_with_retries(call, deadline)
        except TimeoutError:
            raise ApiUnavailableError(
                f"{self._config.server} did not answer {call} within {self._timeout:g} s",
                outcome_unknown=not call.is_read,
            ) from None

    @asynccontextmanager
    async def stream(self, call: Call, inactivity_s: float) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of an answer without an end.

        Reading it raises `aiohttp.SocketTimeoutError` after ``inactivity_s`` seconds of silence, and else
        `aiohttp.ClientError` or OSError. Opening it raises `ApiError` or `ApiUnavailableError`; nothing is
        tried twice but a rejected login.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=inactivity_s)
        response = await self._with_login(call, timeout)
        try:
            yield response.content
        finally:
            response.close()

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        opened = socket.socket(family, kind, protocol)
        self._sockets.add(opened)
        return opened

    async def _wait_until_closed(self) -> None:
        """Until the server has answered TLS' goodbye on connections of watches and cancelled requests, for which
        aiohttp does not wait: a loop that ends before leaves them open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                while any(each.fileno() >= 0 for each in self._sockets):  # noqa: ASYNC110  # a socket gives no notice
                    await asyncio.sleep(_CLOSE_POLL_S)

    async def _send_with_retries(self, call: Call, deadline: float) -> bytes:
        backoff = Backoff(_RETRY_INITIAL_S, _RETRY_CAP_S)
        attempt = 1
        while True:
            try:
                response = await self._with_login(call)
                return await self._read(call, response)
            except KubeError as error:
                delay = retry_delay(call, error, attempt, backoff)
                if delay is None or asyncio.get_running_loop().time() + delay >= deadline:
                    raise
                log.debug("Retrying a request", call=str(call), error=str(error), delay_s=round(delay, 3))
            await self._clock.sleep(delay)
            attempt += 1

    async def _with_login(self, call: Call, timeout: aiohttp.ClientTimeout | None = None) -> aiohttp.ClientResponse:
        login = await self._config.login.login()
        try:
            return await self._open(call, login, timeout)
        except UnauthorizedError:
            fresh = await self._config.login.login(rejected=login)
            if fresh == login:
                raise
            return await self._open(call, fresh, timeout)

    async def _open(self, call: Call, login: Login, timeout: aiohttp.ClientTimeout | None) -> aiohttp.ClientResponse:
        response = await self._send(call, login, timeout)
        if response.status < 300:
            return response
        retry_after = response.headers.get("Retry-After")
        raise error_from_response(response.status, await self._read(call, response), retry_after)

    async def _send(self, call: Call, login: Login, timeout: aiohttp.ClientTimeout | None) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is used outside its `async with` block")
        headers = {"Authorization": f"Bearer {login.token}"} if login.token else {}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        tls = self._tls_for(login)
        try:
            return await self._session.request(
                call.method,
                URL(self._config.server + call.path, encoded=True).with_query(call.params),
                data=call.body,
                headers=headers,
                allow_redirects=False,
                ssl=tls if tls is not None else True,
                server_hostname=self._config.tls_server_name,
                timeout=timeout or _PLAIN,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise unavailable(call, self._config.server, error) from error

    async def _read(self, call: Call, response: aiohttp.ClientResponse) -> bytes:
        try:
            async with response:
                return await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise unavailable(call, self._config.server, error) from error

    def _tls_for(self, login: Login) -> ssl.SSLContext | None:
        if (login.certificate, login.key) != (self._tls_login.certificate, self._tls_login.key):
            self._tls = self._config.ssl_context(login)
            self._tls_login = login
        return self._tls


def retry_delay(call: Call, error: KubeError, attempt: int, backoff: Backoff) -> float | None:
    """Seconds until a failed call may be sent again; None when it may not."""
    if isinstance(error, TooManyRequestsError) and error.retry_after_s is not None:
        return error.retry_after_s + backoff.next()
    if isinstance(error, TlsError) or attempt >= _MAX_CALL_ATTEMPTS:
        return None
    if isinstance(error, ApiUnavailableError):
        return backoff.next() if call.is_read or not error.outcome_unknown else None
    if isinstance(error, ServerError | TooManyRequestsError):
        return backoff.next() if call.is_read else None
    return None


def unavailable(call: Call, server: str, error: Exception) -> ApiUnavailableError:
    """What a failure below HTTP means for a call."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        return TlsError(f"the certificate of {server} is not trusted: {why}")
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ServerFingerprintMismatch):
        return TlsError(f"no TLS connection to {server}: {connection_failure(error)}")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return ApiUnavailableError(f"{server} cannot be reached: {connection_failure(error)} ({call})")
    return ApiUnavailableError(
        f"{server} did not answer {call}: {connection_failure(error)}", outcome_unknown=not call.is_read
    )


def connection_failure(error: Exception) -> str:
    """The system's own words for a connection that could not be made: aiohttp's name the address again, and objects."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        inner = error.os_error
        return os.strerror(inner.errno) if inner.errno and inner.errno > 0 else inner.strerror or str(inner)
    return str(error) or type(error).__name__
