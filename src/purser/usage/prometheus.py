"""A Prometheus' HTTP API, as far as it is asked: one expression at one time, or at regular times."""

import asyncio
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Generic, TypeVar

import aiohttp
import msgspec
from yarl import URL

from purser.core.decoding import JsonReader, UnreadableError, brief

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""Of one query: thousands of namespaces are far less."""


CHECK_URL = "check that --prometheus is the URL of Prometheus, without /api/v1"
REACH_ADVICE = "check --prometheus, or forward a port to Prometheus with kubectl port-forward"
LOGIN_ADVICE = "use a valid token, or add a user to the URL"
TRUST_ADVICE = "set SSL_CERT_FILE to a file with its CA certificate"


class PrometheusError(Exception):
    """It did not answer, or not as Prometheus does; the message says in a sentence what is wrong and what to do."""


class PrometheusSample(msgspec.Struct, frozen=True):
    """One series of an answer."""

    metric: Mapping[str, str]
    """Its labels."""
    value: tuple[float, str]
    """Unix time and the value, as text."""


class PrometheusSeries(msgspec.Struct, frozen=True):
    """One series of an answer that has several times."""

    metric: Mapping[str, str]
    values: tuple[tuple[float, str], ...]
    """Unix times and values, as text."""


T = TypeVar("T")
S = TypeVar("S", PrometheusSample, PrometheusSeries)


class _Result(msgspec.Struct, Generic[S], frozen=True):
    result: list[S] = []


class _Answer(msgspec.Struct, Generic[S], frozen=True):
    status: str = ""
    error: str = ""
    data: _Result[S] = _Result()


_answer_reader: JsonReader[_Answer[PrometheusSample]] = JsonReader(
    _Answer[PrometheusSample], "the answer", max_bytes=MAX_ANSWER_BYTES
)
_range_answer_reader: JsonReader[_Answer[PrometheusSeries]] = JsonReader(
    _Answer[PrometheusSeries], "the answer", max_bytes=MAX_ANSWER_BYTES
)


class Prometheus:
    """One server, or what speaks like one (Thanos, Mimir, VictoriaMetrics). Use as an async context manager."""

    def __init__(self, url: str, *, token: str = "", timeout_s: float = 120.0) -> None:
        """``url`` is that of the server, without ``/api/v1``; ``token`` goes along as a bearer token. Raises ValueError
        for what is none."""
        self._url = URL(url) / "api/v1"
        if not self._url.host:
            raise ValueError("the URL has no host name")
        if not (token.isascii() and token.isprintable()):
            raise ValueError("the token has characters that are not allowed in an HTTP header")
        if token and self._url.user:
            raise ValueError("a token and a user in the URL are mutually exclusive: use only one of them")
        self._server = f"Prometheus at {URL(url).with_user(None).with_query(None)}"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def __aenter__(self) -> "Prometheus":
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=self._timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def ask(self, expression: str, at_s: float) -> list[tuple[Mapping[str, str], float]]:
        """Labels and value of each series at a unix time. Raises `PrometheusError`."""
        form = {"query": expression, "time": f"{at_s:.3f}"}
        found = await self._results("query", form, _answer_reader)
        return await self._numbers(lambda: [(each.metric, float(each.value[1])) for each in found])

    async def ask_range(
        self, expression: str, start_s: float, end_s: float, step_s: float
    ) -> list[tuple[Mapping[str, str], list[tuple[float, float]]]]:
        """Labels of each series, and its unix times and values from ``start_s`` to ``end_s``. Raises
        `PrometheusError`."""
        form = {"query": expression, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        found = await self._results("query_range", form, _range_answer_reader)
        return await self._numbers(
            lambda: [(each.metric, [(at, float(value)) for at, value in each.values]) for each in found]
        )

    async def _results(self, path: str, form: Mapping[str, str], reader: JsonReader[_Answer[S]]) -> list[S]:
        try:
            async with self._session.post(self._url / path, data=form) as response:
                if response.status in (401, 403):
                    raise PrometheusError(
                        f"{self._server} rejected the credentials (status {response.status}): {LOGIN_ADVICE}"
                    )
                body = await _body(response)
            answer = await asyncio.to_thread(reader.read, body)  # 30 MB take more than a second
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise PrometheusError(f"{self._server} {self._failure(error)}") from error
        except UnreadableError as error:
            what = f"responds, but not like Prometheus (status {response.status})"
            raise PrometheusError(f"{self._server} {what}: {CHECK_URL}") from error
        if answer.status != "success":
            what = f"rejected {brief(form['query'])}: {brief(answer.error or str(response.status))}"
            raise PrometheusError(f"{self._server} {what}")
        return answer.data.result

    async def _numbers(self, read: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(read)  # as above
        except ValueError as error:
            what = f"returned a value that is not a number ({brief(error)})"
            raise PrometheusError(f"{self._server} {what}: {CHECK_URL}") from error

    def _failure(self, error: Exception) -> str:
        """What went wrong between here and the server, and what to do."""
        match error:
            case aiohttp.ClientConnectorCertificateError():
                why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
                return f"has a certificate that is not trusted ({why}): {TRUST_ADVICE}"
            case aiohttp.ClientConnectorSSLError():
                return "does not support TLS: use an http:// URL"
            case aiohttp.ClientConnectorDNSError():
                return f"cannot be reached (no such host): {REACH_ADVICE}"
            case aiohttp.ClientConnectorError():
                return f"cannot be reached ({_reason(error.os_error)}): {REACH_ADVICE}"
            case aiohttp.InvalidURL() | aiohttp.TooManyRedirects() | aiohttp.ClientResponseError():
                return f"does not respond like Prometheus: {CHECK_URL}"
            case TimeoutError():
                return f"did not respond within {self._timeout.total:g} s: use a shorter period, or try again"
        return f"closed the connection without a response: {CHECK_URL}"


def _reason(error: OSError) -> str:
    """The kernel's own words: ``connection refused``. aiohttp wraps those of several addresses in others."""
    return os.strerror(error.errno).lower() if error.errno is not None and error.errno > 0 else "no connection"


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """All of it, as chunks come, or more than is read of one."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            break
    return bytes(body)
