"""What controllers do so that deletion comes to an end: the garbage collector and the namespace controller.

Both work from the store's indexes (dependents by owner uid, objects by namespace), in the background of the requests.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import structlog

from . import definitions, deletion, writes
from .cluster import SYSTEM, ApiRequest, Cluster
from .deletion import FOREGROUND, ORPHAN
from .errors import Obj, StatusError
from .store import DELETED, Collection, Key, Selection, StoreEvent

log = structlog.get_logger("purser.lab.apiserver")

EVENT_LIFE_SECONDS = 3600
"""After this Events are dropped, as by the real server's `--event-ttl`."""

Place = tuple[str, Key]
"""Collection and key of an object."""


class Collector:
    """Follows every collection and deletes what lost its owner or its namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queue: asyncio.Queue[Place] = asyncio.Queue()
        self._queued: set[Place] = set()
        self._terminating: set[str] = set()
        self._undefining: set[str] = set()
        self._events: deque[tuple[float, Key, int]] = deque()
        self._expired: set[Key] = set()
        cluster.store.follow(self._observe_object)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            place = await self._queue.get()
            self._queued.discard(place)
            try:
                await self._reconcile_object(place)
            except StatusError as error:
                if error.code not in (404, 409):
                    log.warning("Garbage collection failed", storage=place[0], key=place[1], error=error.message)
                if error.code == 409:
                    self._enqueue([place])
            except Exception:
                log.exception("Garbage collection failed", storage=place[0], key=place[1])

    def _observe_object(self, storage: str, event: StoreEvent) -> None:
        store, after = self._cluster.store, event.after
        if event.type == DELETED:
            self._enqueue(store.dependents.get(after.uid, ()))
            self._enqueue(store.by_uid[owner] for owner in after.owners if owner in store.by_uid)
            if storage == "namespaces":
                self._terminating.discard(after.key[1])
            elif after.key[0] in self._terminating:
                self._enqueue([("namespaces", ("", after.key[0]))])
            if storage in self._undefining:
                self._enqueue([(definitions.STORAGE, ("", storage))])
            return
        if storage == "events":
            self._age_events(event)
        if after.owners or b'"deletionTimestamp"' in after.body:
            self._enqueue([(storage, after.key)])

    def _age_events(self, event: StoreEvent) -> None:
        """Note an Event for its end of life; queue those that have reached it: whenever another one is written."""
        now = time.monotonic()
        self._events.append((now + EVENT_LIFE_SECONDS, event.after.key, event.revision))
        while self._events and self._events[0][0] <= now:
            _, key, revision = self._events.popleft()
            record = self._cluster.store.collections["events"].get(key)
            if record and record.revision == revision:
                self._expired.add(key)
                self._enqueue([("events", key)])

    def _enqueue(self, places: Iterable[Place]) -> None:
        for place in tuple(places):
            if place not in self._queued:
                self._queued.add(place)
                self._queue.put_nowait(place)

    async def _reconcile_object(self, place: Place) -> None:
        storage, key = place
        collection = self._cluster.store.collections[storage]
        record = collection.get(key)
        if record is None:
            return
        obj = record.object()
        if storage == "events" and key in self._expired:
            self._expired.discard(key)
            collection.remove(obj)
        elif storage == "namespaces" and obj["metadata"].get("deletionTimestamp"):
            await self._empty_namespace(key[1])
        elif obj["metadata"].get("deletionTimestamp"):
            await self._finish(place, obj)
        elif record.owners:
            await self._check_owners(place, obj)

    def _call(self, place: Place) -> ApiRequest:
        storage, (namespace, name) = place
        return ApiRequest(
            self._cluster.resource(storage), namespace, name, user=SYSTEM, manager="kube-controller-manager"
        )

    async def _check_owners(self, place: Place, obj: Obj) -> None:
        """An object with no owner left is deleted; references to missing owners are dropped while others remain."""
        owners = obj["metadata"]["ownerReferences"]
        solid = [owner for owner in owners if self._owner_state(owner, place[1][0]) == "solid"]
        waiting = [owner for owner in owners if self._owner_state(owner, place[1][0]) == "waiting"]
        if solid and len(solid) < len(owners):
            await self._set_metadata(place, ownerReferences=solid)
        elif not solid:
            policy = (
                "Foreground" if waiting and self._cluster.store.dependents.get(obj["metadata"]["uid"]) else "Background"
            )
            options: Obj = {"propagationPolicy": policy, "preconditions": {"uid": obj["metadata"]["uid"]}}
            await deletion.delete(self._cluster, self._call(place), options)

    def _owner_state(self, owner: Obj, namespace: str) -> str:
        """`solid`, `absent`, or `waiting` for its dependents to go first."""
        place = self._cluster.store.by_uid.get(owner["uid"])
        if place is None and self._cluster.registry.by_kind(owner["apiVersion"], owner["kind"]) is None:
            return "solid"  # a kind that is not served cannot be known to be gone
        if place is None or place[1][0] not in ("", namespace):
            return "absent"
        record = self._cluster.store.collections[place[0]].get(place[1])
        metadata: Obj = record.object()["metadata"] if record else {}
        waits_for_dependents = metadata.get("deletionTimestamp") and FOREGROUND in (metadata.get("finalizers") or ())
        return "waiting" if waits_for_dependents else "solid"

    async def _finish(self, place: Place, obj: Obj) -> None:
        """Carry out the propagation that a deletion asked for, then take its finalizer off."""
        finalizers = obj["metadata"].get("finalizers") or []
        if definitions.CLEANUP in finalizers and place[0] == definitions.STORAGE:
            await self._delete_custom_objects(place)
            return
        dependents = tuple(self._cluster.store.dependents.get(obj["metadata"]["uid"], ()))
        if ORPHAN in finalizers:
            for dependent in dependents:
                await self._remove_owner(dependent, obj["metadata"]["uid"])
            await self._remove_finalizer(place, ORPHAN)
        elif FOREGROUND in finalizers:
            self._enqueue(dependents)
            if not any(self._blocks(dependent, obj["metadata"]["uid"]) for dependent in dependents):
                await self._remove_finalizer(place, FOREGROUND)

    def _blocks(self, place: Place, owner: str) -> bool:
        obj = self._cluster.object(place[0], *place[1]) or {"metadata": {}}
        references = obj["metadata"].get("ownerReferences") or ()
        return any(each["uid"] == owner and each.get("blockOwnerDeletion") for each in references)

    async def _remove_owner(self, place: Place, owner: str) -> None:
        obj = self._cluster.object(place[0], *place[1])
        if obj:
            kept = [each for each in obj["metadata"].get("ownerReferences") or () if each["uid"] != owner]
            await self._set_metadata(place, ownerReferences=kept)

    async def _remove_finalizer(self, place: Place, finalizer: str) -> None:
        obj = self._cluster.object(place[0], *place[1])
        if obj:
            kept = [each for each in obj["metadata"].get("finalizers") or () if each != finalizer]
            await self._set_metadata(place, finalizers=kept)

    async def _set_metadata(self, place: Place, **values: Any) -> None:
        def changed(live: Obj) -> Obj:
            metadata = {key: value for key, value in {**live["metadata"], **values}.items() if value != []}
            return {**live, "metadata": metadata}

        await writes.update(self._cluster, self._call(place), changed)

    async def _delete_custom_objects(self, place: Place) -> None:
        """Delete all objects of a definition (its name is their collection's); when none is left, let it go."""
        storage = place[1][1]
        self._undefining.add(storage)
        collection = self._cluster.store.collections[storage]
        left = [
            record.key for record in collection.records() if not await self._delete(storage, collection, record.key)
        ]
        if not left:
            self._undefining.discard(storage)
            await self._remove_finalizer(place, definitions.CLEANUP)

    async def _empty_namespace(self, name: str) -> None:
        """Delete everything in a terminating namespace; when nothing is left, let the namespace go."""
        self._terminating.add(name)
        left = False
        for storage, collection in tuple(self._cluster.store.collections.items()):
            for record in collection.records(Selection(namespace=name)) if storage != "namespaces" else ():
                left = not await self._delete(storage, collection, record.key) or left
        if not left:
            place = ("namespaces", ("", name))
            namespace = self._cluster.object("namespaces", "", name) or {}
            if not namespace.get("metadata", {}).get("finalizers"):
                call = self._call(place)
                call.subresource = "finalize"
                await writes.update(self._cluster, call, lambda live: {**live, "spec": {}})

    async def _delete(self, storage: str, collection: Collection, key: Key) -> bool:
        record = collection.get(key)
        if record is not None and not record.object()["metadata"].get("deletionTimestamp"):
            await deletion.delete(self._cluster, self._call((storage, key)), {"propagationPolicy": "Background"})
        return collection.get(key) is None
