"""The store: one etcd-like revision counter over collections of encoded objects, each with a bounded history of
events.

An object is kept as the bytes it is served with, so that a change is encoded once however many lists and watches
read it. A `StoredObject` never changes. What lists and watches select by (labels, fields) is copied out of the object
when it is written.
"""

import bisect
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from . import jsonio
from .errors import Obj, expired

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as of one revision."""

    key: Key
    uid: str
    revision: int
    body: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    owners: tuple[str, ...]
    views: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """The object in other notations (another API version, a table row), each made at most once."""

    def object(self) -> Obj:
        """A fresh decoded copy; the caller may change it."""
        return jsonio.decode(self.body)  # type: ignore[no-any-return]

    def view(self, name: str, make: Callable[[Obj], Obj]) -> bytes:
        """The bytes of `make(object)`, remembered under `name`."""
        if (made := self.views.get(name)) is None:
            made = self.views[name] = jsonio.encode(make(self.object()))
        return made


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One change of one object: `before` is None for a new object; a deletion's `after` is its final state."""

    type: str
    before: StoredObject | None
    after: StoredObject

    @property
    def revision(self) -> int:
        """The store's revision of this change."""
        return self.after.revision


@dataclass(slots=True)
class Selection:
    """What a list or watch is about: a namespace ("" means all) and predicates over labels and fields."""

    namespace: str = ""
    name: str = ""
    matches: Callable[[StoredObject], bool] | None = None
    index_value: str | None = None
    """Exact value demanded of the collection's indexed field, if any: spares looking at everything else."""

    def covers(self, record: StoredObject) -> bool:
        """Whether the record belongs to the selection."""
        if self.namespace and record.key[0] != self.namespace:
            return False
        if self.name and record.key[1] != self.name:
            return False
        return self.matches is None or self.matches(record)


Subscriber = Callable[[StoreEvent], None]


class Collection:
    """All objects of one stored resource.

    `fields_of` extracts the selectable fields; `indexed_field` names the one that lists and watches usually select
    by (pods by `spec.nodeName`), so that 5 000 kubelets cost no more than the pods they have.
    """

    def __init__(
        self, counter: Iterator[int], fields_of: Callable[[Obj], dict[str, str]], indexed_field: str, history: int
    ) -> None:
        self._counter = counter
        self._fields_of = fields_of
        self._indexed_field = indexed_field
        self._records: dict[Key, StoredObject] = {}
        self._keys: list[Key] = []
        self._index: dict[str, set[Key]] = {}
        self._history: deque[StoreEvent] = deque(maxlen=history)
        self._dropped_revision = 0
        self._subscribers: dict[str | None, set[Subscriber]] = {}
        self.revision = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: Key) -> StoredObject | None:
        """The current record."""
        return self._records.get(key)

    def records(self, selection: Selection | None = None) -> list[StoredObject]:
        """Current records of a selection, ordered by namespace and name as etcd orders them."""
        if selection is None:
            return [self._records[key] for key in self._keys]
        return [record for key in self._candidates(selection) if selection.covers(record := self._records[key])]

    def records_at(self, revision: int, selection: Selection) -> list[StoredObject]:
        """The selection as it was at an earlier revision, found by undoing younger events; 410 when they are gone."""
        if revision < self._dropped_revision:
            raise expired(f"The provided resource version is too old: {revision} ({self._dropped_revision})")
        undone: dict[Key, StoredObject | None] = {}
        for event in reversed(self._history):
            if event.revision <= revision:
                break
            undone[event.after.key] = event.before
        if not undone:
            return self.records(selection)
        merged: dict[Key, StoredObject | None] = {**self._records, **undone}
        return [record for key in sorted(merged) if (record := merged[key]) and selection.covers(record)]

    def put(self, obj: Obj) -> StoredObject:
        """Insert or replace; stamps `metadata.resourceVersion` into `obj`."""
        metadata = obj["metadata"]
        before = self._records.get((metadata.get("namespace", ""), metadata["name"]))
        after = self._encode(obj)
        self._records[after.key] = after
        if before is None:
            bisect.insort(self._keys, after.key)
        self._reindex(before, after)
        self._publish(StoreEvent(MODIFIED if before else ADDED, before, after))
        return after

    def remove(self, obj: Obj) -> StoredObject:
        """Delete the object, whose final state is `obj`."""
        before = self._records.pop((obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))
        del self._keys[bisect.bisect_left(self._keys, before.key)]
        after = self._encode(obj)
        self._reindex(before, None)
        self._publish(StoreEvent(DELETED, before, after))
        return after

    def events_since(self, revision: int) -> list[StoreEvent]:
        """Events younger than a revision; raises 410 when some of them have left the history."""
        if revision < self._dropped_revision:
            raise expired(f"too old resource version: {revision} ({self._dropped_revision})")
        younger = itertools.takewhile(lambda event: event.revision > revision, reversed(self._history))
        return list(younger)[::-1]

    def drop_history(self) -> None:
        """Forget all events, as a compaction does: every older revision is now too old."""
        self._history.clear()
        self._dropped_revision = self.revision

    def subscribe(self, subscriber: Subscriber, index_value: str | None = None) -> Callable[[], None]:
        """Call `subscriber` with each event (of the given index value only, before or after); returns the undo."""
        group = self._subscribers.setdefault(index_value, set())
        group.add(subscriber)

        def unsubscribe() -> None:
            group.discard(subscriber)
            if not group and self._subscribers.get(index_value) is group:
                del self._subscribers[index_value]

        return unsubscribe

    def _candidates(self, selection: Selection) -> Iterable[Key]:
        if selection.namespace and selection.name:
            key = (selection.namespace, selection.name)
            return [key] if key in self._records else []
        if selection.index_value is not None and self._indexed_field:
            return sorted(self._index.get(selection.index_value, ()))
        if not selection.namespace:
            return list(self._keys)
        first = bisect.bisect_left(self._keys, (selection.namespace, ""))
        last = bisect.bisect_left(self._keys, (selection.namespace + "\0", ""))
        return self._keys[first:last]

    def _encode(self, obj: Obj) -> StoredObject:
        self.revision = next(self._counter)
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(self.revision)
        return StoredObject(
            key=(metadata.get("namespace", ""), metadata["name"]),
            uid=metadata["uid"],
            revision=self.revision,
            body=jsonio.encode(obj),
            labels=metadata.get("labels") or {},
            fields=self._fields_of(obj),
            owners=tuple(owner["uid"] for owner in metadata.get("ownerReferences") or ()),
        )

    def _reindex(self, before: StoredObject | None, after: StoredObject | None) -> None:
        old = self._index_value(before)
        new = self._index_value(after)
        if before is not None and old is not None and old != new:
            keys = self._index[old]
            keys.discard(before.key)
            if not keys:
                del self._index[old]
        if after is not None and new is not None:
            self._index.setdefault(new, set()).add(after.key)

    def _index_value(self, record: StoredObject | None) -> str | None:
        return record.fields.get(self._indexed_field) if record and self._indexed_field else None

    def _publish(self, event: StoreEvent) -> None:
        if len(self._history) == self._history.maxlen:
            self._dropped_revision = self._history[0].revision
        self._history.append(event)
        values = {None, self._index_value(event.before), self._index_value(event.after)}
        for value in values:
            for subscriber in tuple(self._subscribers.get(value, ())):
                subscriber(event)


class ObjectStore:
    """All collections under one revision counter, and the indexes the garbage collector asks."""

    def __init__(self, history: int) -> None:
        self._history = history
        self._revision = 0
        self._counter = self._count()
        self._followers: list[Callable[[str, StoreEvent], None]] = []
        self.collections: dict[str, Collection] = {}
        self.by_uid: dict[str, tuple[str, Key]] = {}
        self.dependents: dict[str, set[tuple[str, Key]]] = {}

    @property
    def revision(self) -> int:
        """The latest revision handed out."""
        return self._revision

    def collection(self, name: str, fields_of: Callable[[Obj], dict[str, str]], indexed_field: str = "") -> Collection:
        """The collection of that name, made on first use."""
        if name not in self.collections:
            made = Collection(self._counter, fields_of, indexed_field, self._history)
            made.subscribe(lambda event: self._note(name, event))
            self.collections[name] = made
        return self.collections[name]

    def follow(self, follower: Callable[[str, StoreEvent], None]) -> None:
        """Call `follower` with every event of every collection, after the indexes know it."""
        self._followers.append(follower)

    def drop_history(self) -> None:
        """Compact everything: resource versions up to now can no longer be watched from or paged at."""
        for collection in self.collections.values():
            collection.revision = self._revision
            collection.drop_history()

    def _count(self) -> Iterator[int]:
        while True:
            self._revision += 1
            yield self._revision

    def _note(self, name: str, event: StoreEvent) -> None:
        self._index(name, event)
        for follower in self._followers:
            follower(name, event)

    def _index(self, name: str, event: StoreEvent) -> None:
        place = (name, event.after.key)
        if event.before:
            for owner in event.before.owners:
                self._forget_dependent(owner, place)
        if event.type == DELETED:
            self.by_uid.pop(event.after.uid, None)
            return
        self.by_uid[event.after.uid] = place
        for owner in event.after.owners:
            self.dependents.setdefault(owner, set()).add(place)

    def _forget_dependent(self, owner: str, place: tuple[str, Key]) -> None:
        places = self.dependents.get(owner, set())
        places.discard(place)
        if not places:
            self.dependents.pop(owner, None)
