"""Bytes of the API to typed values.

Two kindnesses keep one odd object from blinding a component: null stands for a field's zero value (Go writes it for
empty lists and maps), and an object that still does not fit its Struct is logged and left out of lists and watches.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import msgspec
import structlog

from purser.kube.errors import DecodeError, Status, error_from_status
from purser.kube.resources import Raw, Resource, meta_of
from purser.kube.watching import Bookmark, Change, ChangeType, WatchEvent

T = TypeVar("T")

log = structlog.get_logger("purser.kube")

_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, Generic[T], frozen=True):
    metadata: _PageMeta = _PageMeta()
    items: list[T] | None = None


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _Identity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str | None = None
    namespace: str | None = None
    resource_version: str = ""


class _Identified(msgspec.Struct, frozen=True, gc=False):
    metadata: _Identity


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list."""

    items: list[T]
    resource_version: str
    continue_token: str


_envelopes = msgspec.json.Decoder(_Envelope)
_statuses = msgspec.json.Decoder(Status)
_identities = msgspec.json.Decoder(_Identified)
_raw_pages = msgspec.json.Decoder(_Page[msgspec.Raw])
_CHANGES = {kind.value: kind for kind in ChangeType}


class Codec(Generic[T]):
    """Reads one resource's objects, lists and watch events."""

    def __init__(self, resource: Resource[T]):
        self.resource = resource
        self._is_raw = resource.struct is Raw
        self._objects = msgspec.json.Decoder(resource.struct)
        self._pages: msgspec.json.Decoder[_Page[T]] = msgspec.json.Decoder(cast(Any, _Page)[resource.struct])

    def object(self, data: bytes | msgspec.Raw) -> T:
        """One object. Raises `DecodeError`."""
        try:
            return self._objects.decode(data)
        except _UNREADABLE as error:
            return self._without_nulls(data, error)

    def page(self, data: bytes) -> Page[T]:
        """One page of a list, without the objects that cannot be read. Raises `DecodeError` when it is no list."""
        try:
            page = self._pages.decode(data)
            items = page.items or []
        except _UNREADABLE:
            page, items = self._page_by_item(data)
        if self._is_raw:
            items = [item for item in items if self._has_metadata(item)]
            for item in items:
                self._name_kind(cast(Raw, item))
        return Page(items, page.metadata.resource_version, page.metadata.continue_token)

    def event(self, line: bytes) -> WatchEvent[T] | None:
        """One line of a watch; None for what cannot be read or is not known.

        Raises the `ApiError` that an ERROR event carries, and `DecodeError` for a line that is no event at all.
        """
        try:
            envelope = _envelopes.decode(line)
        except _UNREADABLE as error:
            raise DecodeError(f"a line of the watch on {self.resource.plural} is no event: {error}") from error
        if change := _CHANGES.get(envelope.type):
            obj = self._object_or_none(envelope.object)
            return Change(change, obj) if obj is not None else None
        return self._other_event(envelope)

    def _other_event(self, envelope: _Envelope) -> Bookmark | None:
        try:
            if envelope.type == "BOOKMARK":
                return Bookmark(_identities.decode(envelope.object).metadata.resource_version)
            if envelope.type == "ERROR":
                raise error_from_status(_statuses.decode(envelope.object))
        except _UNREADABLE as error:
            raise DecodeError(f"an odd {envelope.type} event on {self.resource.plural}: {error}") from error
        log.warning("An unknown watch event is ignored", resource=self.resource.plural, type=envelope.type)
        return None

    def _page_by_item(self, data: bytes) -> tuple[_Page[Any], list[T]]:
        try:
            page = _raw_pages.decode(data)
        except _UNREADABLE as error:
            raise DecodeError(f"the list of {self.resource.plural} cannot be read: {error}") from error
        objects = (self._object_or_none(item) for item in page.items or ())
        return page, [obj for obj in objects if obj is not None]

    def _object_or_none(self, data: msgspec.Raw) -> T | None:
        try:
            obj = self.object(data)
        except DecodeError as error:
            log.error("An object cannot be read and is left out", resource=self.resource.plural, error=str(error))
            return None
        return obj if not self._is_raw or self._has_metadata(obj) else None

    def _has_metadata(self, obj: T) -> bool:
        try:
            meta_of(obj)
        except DecodeError as error:
            log.error("An object is left out", resource=self.resource.plural, error=str(error))
            return False
        return True

    def _without_nulls(self, data: bytes | msgspec.Raw, first: Exception) -> T:
        try:
            whole = msgspec.json.decode(data)
            return msgspec.convert(_drop_nulls(whole), self.resource.struct)
        except _UNREADABLE as error:
            raise DecodeError(f"{self.resource.kind} {_name_of(data)} cannot be read: {first}") from error

    def _name_kind(self, item: Raw) -> None:
        # Lists name the kind once, for all items; whoever reads whole objects expects it in each.
        item.setdefault("apiVersion", self.resource.api_version)
        item.setdefault("kind", self.resource.kind)


_codecs: dict[Resource[Any], Codec[Any]] = {}


def codec_of(resource: Resource[T]) -> Codec[T]:
    """The codec of a resource, made once: building one takes longer than a request."""
    codec: Codec[T] | None = _codecs.get(resource)
    if codec is None:
        codec = _codecs[resource] = Codec(resource)
    return codec


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value if item is not None]
    return value


def _name_of(data: bytes | msgspec.Raw) -> str:
    try:
        metadata = _identities.decode(data).metadata
    except _UNREADABLE:
        return "without a readable name"
    return f"{metadata.namespace or '-'}/{metadata.name}"
