"""The documents on one pod, and on the events about one object: read from the API server when somebody asks, once for
all who wait, and at most once a second."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from purser.adapters.object_details import read_events, read_pod_details
from purser.core.state import PodDetails, StateEvents
from purser.kube import Client, Clock, KubeError
from purser.recent import Recent
from purser.scheduler.cache import ClusterCache
from purser.scheduler.read_api.documents import EncodedState, SharedValue

MAX_DOCUMENTS = 64
"""Of each kind that are kept for a moment."""
READ_TIMEOUT_S = 2.0
"""Requests that wait for the API server take up the places of those for other documents."""

_ABOUT = ("kind", "name", "uid")
_VALUE = re.compile(r"[A-Za-z0-9.-]{1,253}")
"""Of names, kinds and uids: nothing in it goes on with another field."""

_Key = tuple[str, ...]


class ObjectPage:
    """Requests that wait for the same document share it."""

    def __init__(self, client: Client, cache: ClusterCache, clock: Clock) -> None:
        self._client, self._cache, self._clock = client, cache, clock
        self._pods: Recent[_Key, SharedValue[EncodedState | None]] = Recent(MAX_DOCUMENTS)
        self._events: Recent[_Key, SharedValue[EncodedState]] = Recent(MAX_DOCUMENTS)

    async def pod(self, namespace: str, name: str) -> EncodedState | None:
        """A pod's; None: there is no such pod that asks for GPUs. Who may read the state may know of no others. Raises
        `purser.kube.KubeError`."""
        known = self._cache.pod(namespace, name)
        if known is None or not self._cache.readings.of(known).asks_for_devices:
            return None

        async def read() -> EncodedState | None:
            async with self._limit():
                found = await read_pod_details(self._client, namespace, name)
            return None if found is None else _encoded(found)

        return await self._pods.recall((namespace, name), lambda: SharedValue(read, self._clock)).current()

    async def events(self, namespace: str, query: Mapping[str, str]) -> EncodedState | None:
        """Those about an object; None: the query does not name one by ``kind``, ``name`` or ``uid``. Raises
        `purser.kube.KubeError`."""
        about = {key: query[key] for key in _ABOUT if query.get(key)}
        if not about or not all(map(_VALUE.fullmatch, about.values())):
            return None

        async def read() -> EncodedState:
            async with self._limit():
                return _encoded(await read_events(self._client, namespace, about))

        key = (namespace, *(f"{key}={value}" for key, value in about.items()))
        return await self._events.recall(key, lambda: SharedValue(read, self._clock)).current()

    @asynccontextmanager
    async def _limit(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                yield
        except TimeoutError:
            raise KubeError(f"the API server did not answer within {READ_TIMEOUT_S:g} s") from None


def _encoded(document: PodDetails | StateEvents) -> EncodedState:
    text = msgspec.json.encode(document)
    return EncodedState(f'"{hashlib.blake2b(text, digest_size=16).hexdigest()}"', (text,))
