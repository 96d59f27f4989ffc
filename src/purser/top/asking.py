"""The cluster by the scheduler's read API: the API server gets no requests.

A state that has not changed is not sent again (``If-None-Match``), and the scheduler can be asked to answer when it has
changed (``?wait=``).
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import aiohttp

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.core.state import (
    ClusterState,
    NodeDetails,
    PodDetails,
    PodWhy,
    Rollout,
    StateEvent,
    StateEvents,
    StateStep,
    StateWaiting,
)
from purser.core.wording import counted
from purser.kube import Clock, ConfigError, KubeError
from purser.kube.sharing import SharedAnswer
from purser.kube.transport import connection_failure
from purser.recent import Recent
from purser.top.source import ADDITIONS_FRESH_S

Document = TypeVar("Document")
Key = TypeVar("Key", bound=Hashable)

POLL_INTERVAL_S = 2.0
WAIT_S = 30
"""For how long a request waits for a change: the most that the API allows."""
NO_WAIT_S = 300.0
"""For how long to poll after a request that waited has failed: a proxy may end all requests that take so long."""
ANSWER_TIMEOUT_S = 30.0
MAX_STATE_ANSWER_BYTES = 256 << 20
"""100 000 GPUs with a pod on each have some 90 MiB."""
MAX_NODE_ANSWER_BYTES = 16 << 20
"""256 devices, with what connects each two of them, have some 8 MiB."""
MAX_OBJECT_ANSWER_BYTES = 512 << 10
"""50 events, each with a message of a thousand characters that JSON has to escape, have some 300 KiB."""
MAX_OBJECTS = 64
"""Nodes whose details are kept, for as long as they are new; as many pods, and objects with events."""
_CAN_WAIT_LATER = (401, 403, 429, 503)
"""Answers that do not tell whether requests can wait: the token has expired, or there are too many that wait."""
_MAX_REASON_BYTES = 2000
_MAX_TOKEN_FILE_BYTES = 64 * 1024

_state_reader = JsonReader(ClusterState, "the scheduler's state", max_bytes=MAX_STATE_ANSWER_BYTES, max_depth=None)
_rollout_reader = JsonReader(
    Rollout, "the scheduler's rollout document", max_bytes=MAX_STATE_ANSWER_BYTES, max_depth=None
)
_node_reader = JsonReader(NodeDetails, "a node's details", max_bytes=MAX_NODE_ANSWER_BYTES)
_pod_reader = JsonReader(PodDetails, "a pod's details", max_bytes=MAX_OBJECT_ANSWER_BYTES)
_why_reader = JsonReader(PodWhy, "why a pod waits", max_bytes=MAX_OBJECT_ANSWER_BYTES)
_event_reader = JsonReader(StateEvents, "the events about an object", max_bytes=MAX_OBJECT_ANSWER_BYTES)


class ReadAnswerError(KubeError):
    """The scheduler answered with an error."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        """Of HTTP."""


class ReadRefusedError(ReadAnswerError):
    """The token is not known or has expired (401), or its user may not read (403)."""


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


def token_from_file(file: Path) -> Callable[[], str]:
    """A file's token, read each time."""

    def read() -> str:
        try:
            with file.open("rb") as opened:
                text = opened.read(_MAX_TOKEN_FILE_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token-file {file}: {error}") from error
        if not is_valid_token(text):
            raise ConfigError(f"--token-file {file} must contain only a token")
        return text

    return read


def is_valid_token(text: str) -> bool:
    """Whether it can be sent as a bearer token: nothing in it ends a header."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def read_state(text: bytes) -> ClusterState:
    """What a scheduler answered. Raises `UnreadableError`."""
    return _state_reader.read(text)


def read_node_details(text: bytes) -> NodeDetails:
    """What a scheduler answered on one node. Raises `UnreadableError`."""
    return _node_reader.read(text)


def read_pod_details(text: bytes) -> PodDetails:
    """What a scheduler answered on one pod. Raises `UnreadableError`."""
    return _pod_reader.read(text)


def read_why(text: bytes) -> PodWhy:
    """What a scheduler answered on why a pod waits. Raises `UnreadableError`."""
    return _why_reader.read(text)


def read_events(text: bytes) -> StateEvents:
    """What a scheduler answered on the events about an object. Raises `UnreadableError`."""
    return _event_reader.read(text)


def read_rollout(text: bytes) -> Rollout:
    """What a scheduler answered on the operator's rollout. Raises `UnreadableError`."""
    return _rollout_reader.read(text)


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
        self._root = f"{api.url.rstrip('/')}/v1"
        self._base = self._root + (f"/namespaces/{api.namespace}" if api.namespace else "")
        self._context = _tls_context(api.ca_file)
        self._session: aiohttp.ClientSession | None = None
        self._tag = ""
        self._last: ClusterState | None = None

    async def __aenter__(self) -> "StateReader":
        self._session = aiohttp.ClientSession(auto_decompress=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def read(self, wait_s: int = 0) -> ClusterState:
        """The state now; the same object where it has not changed. ``wait_s``: for how long to wait for a change of one
        that was read before; schedulers that cannot wait answer at once. Raises `ConfigError` for a token that cannot
        be read, `KubeError` for whatever is wrong with the answer."""
        tag = self._tag if self._last is not None else ""
        answer = await self._get(f"{self._base}/state", read_state, MAX_STATE_ANSWER_BYTES, tag, wait_s)
        if answer is not None:
            self._last, self._tag = answer
        assert self._last is not None, "the API answers 304 only to requests with a tag"
        return self._last

    async def read_node(self, name: str) -> NodeDetails | None:
        """A node's details; None: the scheduler knows no such node with GPUs, or is of a version that cannot tell.
        Raises as `read` does."""
        url = f"{self._base}/nodes/{quote(name, safe='')}"
        return await self._get_known(url, read_node_details, MAX_NODE_ANSWER_BYTES)

    async def read_pod(self, namespace: str, name: str) -> PodDetails | None:
        """A pod's details; None: there is no such pod, or the scheduler is of a version that cannot tell. Raises as
        `read` does."""
        url = f"{self._root}/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        return await self._get_known(url, read_pod_details, MAX_OBJECT_ANSWER_BYTES)

    async def read_why(self, namespace: str, name: str) -> PodWhy | None:
        """Why a pod waits, or where it is; None: there is no such pod, or the scheduler is of a version that cannot
        tell. Raises as `read` does."""
        url = f"{self._root}/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}/why"
        return await self._get_known(url, read_why, MAX_OBJECT_ANSWER_BYTES)

    async def read_events(self, namespace: str, about: Mapping[str, str]) -> StateEvents | None:
        """The events about an object, as `StateSource.events` has it; None: the scheduler is of a version that does not
        read them, or the user may not list them. Raises as `read` does."""
        url = f"{self._root}/namespaces/{quote(namespace, safe='')}/events?{urlencode(about)}"
        try:
            return await self._get_known(url, read_events, MAX_OBJECT_ANSWER_BYTES)
        except ReadRefusedError as error:
            if error.status == 403:
                return None
            raise

    async def _get_known(self, url: str, read: Callable[[bytes], Document], max_bytes: int) -> Document | None:
        """A document; None: there is none."""
        try:
            answer = await self._get(url, read, max_bytes)
        except ReadAnswerError as error:
            if error.status == 404:
                return None
            raise
        return None if answer is None else answer[0]

    async def read_rollout(self) -> Rollout:
        """What the operator rolls out. Raises as `read` does, and `KubeError` for a namespace's reader."""
        if self._api.namespace:
            raise KubeError("Only viewers of the whole cluster can see the rollout: log in without a namespace.")
        try:
            answer = await self._get(f"{self._base}/rollout", read_rollout, MAX_STATE_ANSWER_BYTES)
        except ReadAnswerError as error:
            if error.status == 404:
                why = f"The scheduler may be too old to report what the operator rolls out: {error}"
                raise KubeError(why) from error
            raise
        assert answer is not None, "the API answers 304 only to requests with a tag"
        return answer[0]

    async def _get(
        self, url: str, read: Callable[[bytes], Document], max_bytes: int, tag: str = "", wait_s: int = 0
    ) -> tuple[Document, str] | None:
        """A document, and its tag; None: it still has this tag, after so many seconds."""
        assert self._session is not None
        query = {"wait": str(wait_s)} if wait_s else None  # not in the URL, so that errors read the same
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S + wait_s)
        headers = {"Authorization": f"Bearer {self._api.token()}"} | ({"If-None-Match": tag} if tag else {})
        try:
            async with self._session.get(
                url, params=query, headers=headers, allow_redirects=False, ssl=self._context, timeout=timeout
            ) as response:
                if response.status == 304 and tag:
                    return None
                if response.status != 200:
                    said = (await response.content.read(_MAX_REASON_BYTES)).decode(errors="replace")
                    message = f"{url} answered {response.status}: {brief(said) or response.reason}"
                    raise _error(response.status, message)
                return read(await _bounded(response.content, max_bytes)), response.headers.get("ETag", "")
        except aiohttp.ClientConnectorCertificateError as error:
            self._context = _tls_context(
                self._api.ca_file
            )  # for the next attempt: the file may have the next CA by now
            raise KubeError(f"{url} has a certificate that is not trusted: {brief(error)}") from error
        except TimeoutError as error:
            raise KubeError(f"{url} did not answer within {ANSWER_TIMEOUT_S + wait_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise KubeError(f"{url} cannot be reached: {brief(connection_failure(error))}") from error
        except UnreadableError as error:
            raise KubeError(f"{url}: {error}") from error


class PolledScheduler:
    """A `StateSource`."""

    def __init__(
        self,
        reader: StateReader,
        api: ReadApi,
        clock: Clock,
        *,
        discards_when_refused: bool = False,
        waits: bool = False,
    ) -> None:
        """``discards_when_refused``: what was read before is not kept for somebody who may not read it any more.
        ``waits``: whether requests wait for a change, which few of one user can do at once."""
        self.where = api.url
        self._discards_when_refused, self._waits = discards_when_refused, waits
        self.state: ClusterState | None = None
        self.problem = ""
        self._reader, self._clock = reader, clock
        self._waits_from_s = 0.0
        """On the clock."""
        self._nodes: Recent[str, SharedAnswer[NodeDetails | None]] = Recent(MAX_OBJECTS)
        self._pods: Recent[tuple[str, str], SharedAnswer[PodDetails | None]] = Recent(MAX_OBJECTS)
        self._events: Recent[tuple[object, ...], SharedAnswer[StateEvents | None]] = Recent(MAX_OBJECTS)
        self._rollout: SharedAnswer[Rollout] | None = None
        self._one_by_one = asyncio.Lock()
        """Of answers: the scheduler sends few to a user at once."""

    def wants(self, uids: Sequence[str]) -> None:
        """The scheduler knows the reasons that it knows."""

    async def run(self, on_change: Callable[[], None]) -> None:
        """Poll, or wait for changes, until cancelled. Raises `KubeError` and `ConfigError` where the first answer
        cannot be had, and `ReadRefusedError` later on, if it ends with that."""
        while True:
            try:
                state, problem = await self._read(), ""
            except (KubeError, ConfigError) as error:
                if self.state is None or (self._discards_when_refused and isinstance(error, ReadRefusedError)):
                    raise
                state, problem = self.state, f"not up to date: {error}"
            if state is not self.state or problem != self.problem:
                self.state, self.problem = state, problem
                on_change()
            await self._clock.sleep(POLL_INTERVAL_S)

    async def _read(self) -> ClusterState:
        """A wait that fails says little: the state is read without one, and what that says counts."""
        is_known = self.state is not None and not self.problem
        is_cut = False
        if self._waits and is_known and self._clock.monotonic() >= self._waits_from_s:
            try:
                return await self._reader.read(WAIT_S)  # beside other answers: the scheduler does not count it as one
            except KubeError as error:
                is_cut = not (isinstance(error, ReadAnswerError) and error.status in _CAN_WAIT_LATER)
        async with self._one_by_one:
            state = await self._reader.read()
        if is_cut:
            self._waits_from_s = self._clock.monotonic() + NO_WAIT_S
        return state

    async def rollout(self) -> Rollout:
        """Asked of the scheduler once for all who look at it."""
        if self._rollout is None or self._rollout.is_old:
            self._rollout = SharedAnswer(self._read_alone(self._reader.read_rollout), self._clock, POLL_INTERVAL_S)
        return await self._rollout.answer()

    async def details(self, namespace: str, pod: str) -> list[str]:
        """What the state says of a pod."""
        waiting = () if self.state is None else self.state.waiting
        found = next((each for each in waiting if (each.namespace, each.pod) == (namespace, pod)), None)
        return [] if found is None else reason_lines(found)

    async def steps(self, namespace: str, pod: str, uid: str) -> Sequence[StateStep]:
        """Asked of the scheduler once for all who look at the pod."""
        found = await self._shared(
            self._pods, (namespace, pod), lambda: self._reader.read_pod(namespace, pod), ADDITIONS_FRESH_S
        )
        return found.steps if found is not None and found.uid == uid else ()

    async def events(self, namespace: str, about: Mapping[str, str]) -> Sequence[StateEvent] | None:
        """Asked of the scheduler once for all who look at the object."""
        key = (namespace, *about.items())
        found = await self._shared(
            self._events, key, lambda: self._reader.read_events(namespace, about), ADDITIONS_FRESH_S
        )
        return None if found is None else found.events

    async def node_details(self, name: str) -> NodeDetails | None:
        """Asked of the scheduler once for all who look at the node."""
        return await self._shared(self._nodes, name, lambda: self._reader.read_node(name), POLL_INTERVAL_S)

    async def _shared(
        self,
        known: Recent[Key, SharedAnswer[Document]],
        key: Key,
        read: Callable[[], Coroutine[Any, Any, Document]],
        fresh_for_s: float,
    ) -> Document:
        answer = known.get(key)
        if answer is None or answer.is_old:
            answer = known.put(key, SharedAnswer(self._read_alone(read), self._clock, fresh_for_s))
        return await answer.answer()

    async def _read_alone(self, read: Callable[[], Coroutine[Any, Any, Document]]) -> Document:
        async with self._one_by_one:
            return await read()


def reason_lines(pod: StateWaiting) -> list[str]:
    """All that is known of why a pod waits."""
    if not pod.reasons:
        return [pod.message or "This replica of the scheduler does not know the reason."]
    said = (f"{each.reason}: {each.text or counted(each.nodes, 'node')}" for each in pod.reasons)
    return [*filter(None, (pod.message,)), *said]


def _tls_context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"cannot load the scheduler's CA file {ca_file}: {error}") from error


def _error(status: int, message: str) -> ReadAnswerError:
    return (ReadRefusedError if status in (401, 403) else ReadAnswerError)(message, status)


async def _bounded(content: aiohttp.StreamReader, max_bytes: int) -> bytes:
    """All of an answer. Raises `KubeError` for one that does not end."""
    found = bytearray()
    async for chunk in content.iter_any():
        found += chunk
        if len(found) > max_bytes:
            raise KubeError(f"the response is larger than {max_bytes} bytes")
    return bytes(found)
