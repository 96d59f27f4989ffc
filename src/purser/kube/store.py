"""What an informer knows: a mapping from key to object."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from purser.kube.failures import ObjectFailures
from purser.kube.resources import Resource, key_of, meta_of

T = TypeVar("T")


class Store(Mapping[str, T], Generic[T]):
    """Objects by ``namespace/name`` (or ``name``) and by uid. Only its informer writes to it."""

    def __init__(self) -> None:
        self._by_key: dict[str, T] = {}
        self._by_uid: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def by_uid(self, uid: str) -> T | None:
        """The object with this uid, None when there is none (any more)."""
        return self._by_uid.get(uid)

    def put(self, obj: T) -> None:
        """Add an object, or a newer state of one."""
        self._by_key[key_of(obj)] = obj
        self._by_uid[meta_of(obj).uid] = obj

    def remove(self, key: str) -> None:
        """Forget the object under a key that is there."""
        self._by_uid.pop(meta_of(self._by_key.pop(key)).uid, None)


class StaticStore(Generic[T]):
    """What there was of one resource at one moment, in an informer's place."""

    def __init__(self, resource: Resource[T], items: Iterable[T], failures: ObjectFailures) -> None:
        self.resource = resource
        self.failures = failures
        """Where failures of single objects are reported."""
        self.store: Store[T] = Store()
        for item in items:
            self.store.put(item)
