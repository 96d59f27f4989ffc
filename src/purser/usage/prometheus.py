"""A Prometheus' HTTP API, as far as it is asked: one expression at one time."""

from collections.abc import Mapping
from types import TracebackType

import aiohttp
import msgspec
from yarl import URL

from purser.core.decoding import JsonReader, UnreadableError, brief

MAX_ANSWER_BYTES = 32 * 1024 * 1024
"""Of one query: thousands of namespaces are far less."""


class PrometheusError(Exception):
    """It did not answer, or not as Prometheus does; the message says which expression it was asked."""


class PrometheusSample(msgspec.Struct, frozen=True):
    """One series of an answer."""

    metric: Mapping[str, str]
    """Its labels."""
    value: tuple[float, str]
    """Unix time and the value, as text."""


class _Result(msgspec.Struct, frozen=True):
    result: list[PrometheusSample] = []


class _Answer(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = ""
    data: _Result = _Result()


_answers: JsonReader[_Answer] = JsonReader(_Answer, "the answer", max_bytes=MAX_ANSWER_BYTES)


class Prometheus:
    """One server, or what speaks like one (Thanos, Mimir, VictoriaMetrics). Use as an async context manager."""

    def __init__(self, url: str, *, token: str = "", timeout_s: float = 120.0) -> None:
        """``url`` is that of the server, without ``/api/v1``; ``token`` goes along as a bearer token. Raises ValueError
        for what is none."""
        self._url = URL(url) / "api/v1/query"
        if not self._url.host:
            raise ValueError("the URL names no host")
        if not (token.isascii() and token.isprintable()):
            raise ValueError("the token has characters that no HTTP header can have")
        if token and self._url.user:
            raise ValueError("there are a token and a user in the URL: give one of them")
        self._shown = self._url.with_user(None)
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
        try:
            async with self._session.post(self._url, data=form) as response:
                answer = _answers.read(await _body(response))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise PrometheusError(f"{self._shown} does not answer: {str(error) or 'it takes too long'}") from error
        except UnreadableError as error:
            raise PrometheusError(f"{self._shown} is no Prometheus (status {response.status}): {error}") from error
        if answer.status != "success":
            raise PrometheusError(f"{self._shown} refuses {expression}: {brief(answer.error or str(response.status))}")
        try:
            return [(each.metric, float(each.value[1])) for each in answer.data.result]
        except ValueError as error:
            raise PrometheusError(f"{self._shown}: {error}") from error


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """All of it, as chunks come, or more than is read of one."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            break
    return bytes(body)
