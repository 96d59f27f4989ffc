"""A bare HTTP client for the Kubernetes API: no model, no retries, nothing interpreted."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests import waiting

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
DEADLINE = 60.0


@dataclass(frozen=True)
class Answer:
    """Status, decoded body and headers of one response."""

    status: int
    body: Any
    headers: Any

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def causes(self) -> set[tuple[str, str]]:
        """(reason, field) of every cause."""
        return {(cause["reason"], cause["field"]) for cause in self.body["details"]["causes"]}

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    def ok(self) -> "Answer":
        assert 200 <= self.status < 300, (self.status, self.body)
        return self


class Watch:
    """An open watch: events one by one."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def next(self, seconds: float = DEADLINE) -> dict[str, Any]:
        line = await asyncio.wait_for(self._response.content.readline(), seconds)
        assert line, "the watch ended"
        return json.loads(line)  # type: ignore[no-any-return]

    async def rest(self) -> list[dict[str, Any]]:
        """Everything until the server ends the watch."""
        data = await asyncio.wait_for(self._response.content.read(), DEADLINE)
        return [json.loads(line) for line in data.splitlines()]


class Api:
    """One API server, reached by its kubeconfig."""

    def __init__(self, kubeconfig: Path, *, embedded: bool) -> None:
        self.embedded = embedded
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        self.kubeconfig = kubeconfig
        self.url = cluster["server"]
        self.token = user["token"]
        self._ssl = _tls(cluster)
        self._session = aiohttp.ClientSession(read_bufsize=4 * 1024 * 1024)
        self.minor = 0

    async def connect(self) -> None:
        answer = await self.get("/version")
        self.minor = int(answer.body["minor"].rstrip("+"))

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json",
        headers: dict[str, str] | None = None, token: str | None = None, **query: Any,
    ) -> Answer:  # fmt: skip
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.token if token is None else token}", "User-Agent": "contract/1"}
        if data is not None:
            sent["Content-Type"] = content_type
        async with self._session.request(
            method, self.url + path, data=data, headers={**sent, **(headers or {})}, params=_text(query), ssl=self._ssl
        ) as response:
            raw = await response.read()
            is_json = "json" in response.headers.get("Content-Type", "")
            return Answer(response.status, json.loads(raw) if is_json else raw.decode(), response.headers)

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.request("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.request("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.request("PUT", path, body, **query)

    async def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Answer:
        return await self.request("PATCH", path, body, content_type=content_type, **query)

    async def apply(self, path: str, body: Any, manager: str, **query: Any) -> Answer:
        return await self.request("PATCH", path, body, content_type=APPLY, fieldManager=manager, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.request("DELETE", path, body, **query)

    @asynccontextmanager
    async def raw(self, path: str, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """A GET whose answer is not looked at."""
        sent = {"Authorization": f"Bearer {self.token}", **headers}
        async with self._session.get(self.url + path, headers=sent, ssl=self._ssl) as response:
            yield response

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Watch]:
        headers = {"Authorization": f"Bearer {self.token}"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(
            self.url + path, params=_text({"watch": True, **query}), headers=headers, ssl=self._ssl, timeout=timeout
        ) as response:
            yield Watch(response)


async def until(what: str, probe: Callable[[], Awaitable[Any]]) -> Any:
    """Poll until `probe` gives something true."""
    while not (value := await probe()):
        assert not waiting.is_over(), f"not in time: {what}"
        await asyncio.sleep(0.02)
    return value


def _text(query: dict[str, Any]) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()}


def _tls(cluster: dict[str, Any]) -> ssl.SSLContext | bool:
    if cluster.get("insecure-skip-tls-verify"):
        return False
    if "certificate-authority-data" in cluster:
        return ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    return ssl.create_default_context(cafile=cluster["certificate-authority"])
