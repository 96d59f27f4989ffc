"""The documents on one pod, and on the events about one object: read from the API server when somebody asks, once for
all who ask within a second."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from purser.adapters.object_details import read_events, read_pod_details
from purser.core.state import PodDetails, StateEvents
from purser.kube import Client, Clock, KubeError
from purser.kube.pods import is_terminal
from purser.kube.sharing import SharedAnswer
from purser.recent import Recent
from purser.scheduler.cache import ClusterCache
from purser.scheduler.read_api.documents import EncodedState, encoded_state

MAX_DOCUMENTS = 64
"""That are kept until others are asked for, each of half a MiB at most."""
FRESH_FOR_S = 1.0
READ_TIMEOUT_S = 2.0
"""Requests that wait for the API server take up the places of those for other documents."""
MAX_READS_PER_S, MAX_READS_OF_A_USER_PER_S = 20, 5
"""From the API server, which counts them as the scheduler's."""

_VALUE = re.compile(r"[A-Za-z0-9.-]{1,253}")
"""Of names, kinds and uids: nothing in it goes on with another field."""

_Answer = SharedAnswer[EncodedState | None]


class TooManyReadsError(Exception):
    """The API server is not asked again before the next second."""


class ObjectPage:
    """Requests for the same document share it."""

    def __init__(self, client: Client, cache: ClusterCache, clock: Clock) -> None:
        self._client, self._cache, self._clock = client, cache, clock
        self._known: Recent[tuple[str, ...], _Answer] = Recent(MAX_DOCUMENTS)
        self._reads: Counter[str] = Counter()
        """Since ``_second`` began, by user."""
        self._second = 0.0

    async def pod(self, namespace: str, name: str, user: str) -> EncodedState | None:
        """A pod's; None: there is no such pod that holds or wants GPUs. Who may read the state may know of no others.
        Raises `purser.kube.KubeError` and `TooManyReadsError`."""
        known = self._cache.pod(namespace, name)
        if known is None or is_terminal(known) or not self._cache.readings.of(known).asks_for_devices:
            return None
        uid = known.metadata.uid

        async def read() -> PodDetails | None:
            found = await read_pod_details(self._client, namespace, name)
            return found if found is not None and found.uid == uid else None  # another pod may have the name by now

        return await self._answer(("pod", namespace, name, uid), read, user)

    async def events(self, namespace: str, query: Mapping[str, str], user: str) -> EncodedState | None:
        """Those about an object; None: the query names none, by ``uid``, or by ``kind`` and ``name``. Raises
        `purser.kube.KubeError` and `TooManyReadsError`."""
        keys = ("uid",) if "uid" in query else ("kind", "name")
        about = {key: query.get(key, "") for key in keys}
        if not all(map(_VALUE.fullmatch, about.values())):
            return None

        async def read() -> StateEvents:
            return await read_events(self._client, namespace, about)

        return await self._answer(("events", namespace, *keys, *about.values()), read, user)

    async def _answer(
        self, key: tuple[str, ...], read: Callable[[], Awaitable[PodDetails | StateEvents | None]], user: str
    ) -> EncodedState | None:
        answer = self._known.get(key)
        if answer is None or answer.is_old:
            self._count(user)
            answer = self._known.put(key, SharedAnswer(_encoding(read), self._clock, FRESH_FOR_S))
        return await answer.answer()

    def _count(self, user: str) -> None:
        now = self._clock.monotonic()
        if now >= self._second + 1:
            self._second = now
            self._reads.clear()
        if self._reads[user] >= MAX_READS_OF_A_USER_PER_S or self._reads.total() >= MAX_READS_PER_S:
            raise TooManyReadsError
        self._reads[user] += 1


def _encoding(
    read: Callable[[], Awaitable[PodDetails | StateEvents | None]],
) -> Coroutine[Any, Any, EncodedState | None]:
    async def encoded() -> EncodedState | None:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                found = await read()
        except TimeoutError:
            raise KubeError(f"the API server did not answer within {READ_TIMEOUT_S:g} s") from None
        return None if found is None else encoded_state(found)

    return encoded()
