"""The documents on one pod, and on the events about one object: read from the API server when somebody asks."""

import re
from collections.abc import Mapping

from purser.adapters.object_details import read_events, read_pod_details
from purser.core.state import PodDetails, StateEvents
from purser.kube import Client
from purser.kube.pods import is_terminal
from purser.scheduler.cache import ClusterCache
from purser.scheduler.read_api.documents import EncodedState
from purser.scheduler.read_api.reads import SharedReads, read_in_time

_VALUE = re.compile(r"[A-Za-z0-9.-]{1,253}")
"""Of names, kinds and uids: nothing in it goes on with another field."""


class ObjectPage:
    """Requests for the same document share it."""

    def __init__(self, client: Client, cache: ClusterCache, reads: SharedReads) -> None:
        self._client, self._cache, self._reads = client, cache, reads

    async def pod(self, namespace: str, name: str, user: str) -> EncodedState | None:
        """A pod's; None: there is no such pod that holds or wants GPUs. Who may read the state may know of no others.
        Raises `purser.kube.KubeError` and `TooManyReadsError`."""
        known = self._cache.pod(namespace, name)
        if known is None or is_terminal(known) or not self._cache.readings.of(known).asks_for_devices:
            return None
        uid = known.metadata.uid

        async def read() -> PodDetails | None:
            found = await read_in_time(read_pod_details(self._client, namespace, name))
            return found if found is not None and found.uid == uid else None  # another pod may have the name by now

        return await self._reads.answer(("pod", namespace, name, uid), read, user)

    async def events(self, namespace: str, query: Mapping[str, str], user: str) -> EncodedState | None:
        """Those about an object; None: the query names none, by ``uid``, or by ``kind`` and ``name``. Raises
        `purser.kube.KubeError` and `TooManyReadsError`."""
        keys = ("uid",) if "uid" in query else ("kind", "name")
        about = {key: query.get(key, "") for key in keys}
        if not all(map(_VALUE.fullmatch, about.values())):
            return None

        async def read() -> StateEvents:
            return await read_in_time(read_events(self._client, namespace, about))

        return await self._reads.answer(("events", namespace, *keys, *about.values()), read, user)
