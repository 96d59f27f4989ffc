"""The cluster by the scheduler's read API: the API server gets no requests.

A state that has not changed is not sent again (``If-None-Match``).
"""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.core.state import ClusterState, Rollout, StateWaiting
from purser.core.wording import counted
from purser.kube import Clock, ConfigError, KubeError

T = TypeVar("T")

POLL_INTERVAL_S = 2.0
ANSWER_TIMEOUT_S = 30.0
_ROLLOUT_PATH = "/v1/rollout"
MAX_STATE_ANSWER_BYTES = 256 << 20
"""100 000 GPUs with a pod on each have some 80 MiB."""
_MAX_REASON_BYTES = 2000
_MAX_TOKEN_FILE_BYTES = 64 * 1024

_states = JsonReader(ClusterState, "the scheduler's state", max_bytes=MAX_STATE_ANSWER_BYTES, max_depth=None)
_rollouts = JsonReader(Rollout, "the scheduler's rollout document", max_bytes=MAX_STATE_ANSWER_BYTES, max_depth=None)


class ReadRefusedError(KubeError):
    """The token is not known, has expired, or its user may not read."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        """401: the token is not known or has expired; 403: its user may not read."""


@dataclass(frozen=True)
class ReadApi:
    """Where it is, and how to log in."""

    url: str
    """``https://HOST:PORT``."""
    token: Callable[[], str]
    """Called for each request, since tokens are renewed. Raises `ConfigError` where there is none."""
    ca_file: Path | None = None
    """None: what the system trusts."""
    namespace: str = ""
    """Whose part of the state to read; empty: the whole."""


def token_in(file: Path) -> Callable[[], str]:
    """A file's token, read each time."""

    def read() -> str:
        try:
            with file.open("rb") as opened:
                text = opened.read(_MAX_TOKEN_FILE_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token-file {file}: {error}") from error
        if not is_token(text):
            raise ConfigError(f"--token-file {file} must contain only a token")
        return text

    return read


def is_token(text: str) -> bool:
    """Whether it can be sent as a bearer token: nothing in it ends a header."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def read_state(text: bytes) -> ClusterState:
    """What a scheduler answered. Raises `UnreadableError`."""
    return _states.read(text)


class StateReader:
    """Reads the state; an async context manager."""

    def __init__(self, api: ReadApi) -> None:
        """Raises `ConfigError`."""
        try:
            parts = urlsplit(api.url)
        except ValueError as error:
            raise ConfigError(f"{brief(api.url)} is not a read API address: {error}") from error
        if parts.scheme != "https" or not parts.hostname or parts.username or parts.query or parts.fragment:
            raise ConfigError(f"{brief(api.url)} is not a read API address: must be https://HOST:PORT")
        self._api = api
        self._root = api.url.rstrip("/")
        self._state_path = f"/v1/namespaces/{api.namespace}/state" if api.namespace else "/v1/state"
        self._context = _trusting(api.ca_file)
        self._session: aiohttp.ClientSession | None = None
        self._tag = ""
        self._last: ClusterState | None = None

    async def __aenter__(self) -> "StateReader":
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
        self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def read(self) -> ClusterState:
        """The state now; the same object where it has not changed. Raises `ConfigError` for a token that cannot be
        read, `KubeError` for whatever is wrong with the answer."""
        found = await self._get(self._state_path, self._tag if self._last is not None else "")
        if found is None and self._last is not None:
            return self._last
        text, self._tag = found or (b"", "")
        self._last = self._decoded(self._state_path, lambda: read_state(text))
        return self._last

    async def read_rollout(self) -> Rollout:
        """What the operator rolls out; else as `read`. Raises `KubeError` as well for a namespace's reader."""
        if self._api.namespace:
            raise KubeError("Only viewers of the whole cluster can see the rollout: log in without a namespace.")
        text, _ = await self._get(_ROLLOUT_PATH) or (b"", "")
        return self._decoded(_ROLLOUT_PATH, lambda: _rollouts.read(text))

    async def _get(self, path: str, tag: str = "") -> tuple[bytes, str] | None:
        """An answer and its tag; None: it still has the given one."""
        assert self._session is not None
        url = self._root + path
        headers = {"Authorization": f"Bearer {self._api.token()}", **({"If-None-Match": tag} if tag else {})}
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False, ssl=self._context) as response:
                if response.status == 304 and tag:
                    return None
                if response.status != 200:
                    said = (await response.content.read(_MAX_REASON_BYTES)).decode(errors="replace")
                    message = f"{url} answered {response.status}: {brief(said) or response.reason}"
                    raise _error(response.status, message)
                return await _bounded(response.content), response.headers.get("ETag", "")
        except aiohttp.ClientConnectorCertificateError as error:
            self._context = _trusting(self._api.ca_file)  # for the next attempt: the file may have the next CA by now
            raise KubeError(f"{url} has a certificate that is not trusted: {brief(error)}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeError(f"{url} cannot be reached: {brief(error) or type(error).__name__}") from error

    def _decoded(self, path: str, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except UnreadableError as error:
            raise KubeError(f"{self._root}{path}: {error}") from error


class PolledScheduler:
    """A `StateSource`."""

    def __init__(self, reader: StateReader, api: ReadApi, clock: Clock, *, ends_when_refused: bool = False) -> None:
        """``ends_when_refused``: what was read before is not kept for somebody who may not read it any more."""
        self.where = api.url
        self._ends_when_refused = ends_when_refused
        self.state: ClusterState | None = None
        self.problem = ""
        self._reader, self._clock = reader, clock

    def wants(self, uids: Sequence[str]) -> None:
        """The scheduler knows the reasons that it knows."""

    async def run(self, on_change: Callable[[], None]) -> None:
        """Poll until cancelled. Raises `KubeError` and `ConfigError` where the first answer cannot be had, and
        `ReadRefusedError` later on, if it ends with that."""
        while True:
            try:
                state, problem = await self._reader.read(), ""
            except (KubeError, ConfigError) as error:
                if self.state is None or (self._ends_when_refused and isinstance(error, ReadRefusedError)):
                    raise
                state, problem = self.state, f"not up to date: {error}"
            if state is not self.state or problem != self.problem:
                self.state, self.problem = state, problem
                on_change()
            await self._clock.sleep(POLL_INTERVAL_S)

    async def rollout(self) -> Rollout:
        """What the scheduler knows of it."""
        return await self._reader.read_rollout()

    async def details(self, namespace: str, pod: str) -> list[str]:
        """What the state says of a pod."""
        waiting = () if self.state is None else self.state.waiting
        found = next((each for each in waiting if (each.namespace, each.pod) == (namespace, pod)), None)
        return [] if found is None else reason_lines(found)


def reason_lines(pod: StateWaiting) -> list[str]:
    """All that is known of why a pod waits."""
    if not pod.reasons:
        return [pod.message or "This replica of the scheduler does not know the reason."]
    said = (f"{each.reason}: {each.text or counted(each.nodes, 'node')}" for each in pod.reasons)
    return [pod.message, *said]


def _trusting(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"{ca_file} must contain the CA of the scheduler's certificate: {error}") from error


def _error(status: int, message: str) -> KubeError:
    return ReadRefusedError(message, status) if status in (401, 403) else KubeError(message)


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    """All of an answer. Raises `KubeError` for one that does not end."""
    found = bytearray()
    async for chunk in content.iter_any():
        found += chunk
        if len(found) > MAX_STATE_ANSWER_BYTES:
            raise KubeError(f"the response is larger than {MAX_STATE_ANSWER_BYTES} bytes")
    return bytes(found)
