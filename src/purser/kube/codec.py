"""Bytes of the API to typed values.

Two kindnesses keep one odd object from blinding a component: null stands for a field's zero value (Go writes it for
empty lists and maps), and an object that still does not fit its Struct is left out of lists and watches, which say so
(see `purser.kube.failures`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import msgspec
import structlog

from purser.core.decoding import JsonReader, UnreadableError, convert_value, without_nulls
from purser.kube.errors import DecodeError, Status, error_from_status
from purser.kube.objects import ObjectReference
from purser.kube.resources import Raw, Resource, meta_of
from purser.kube.watching import Bookmark, Change, ChangeType, WatchEvent

T = TypeVar("T")

log = structlog.get_logger("purser.kube")

_MAX_ANSWER_BYTES = 1 << 30
"""Bytes of an answer; kube-apiserver bounds objects itself, and lists come in pages."""

OnUnreadable = Callable[[ObjectReference | None, str], None]
"""Called for each object that is left out: with what is known of it, and why."""


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
    uid: str | None = None


class _ObjectWithIdentity(msgspec.Struct, frozen=True, gc=False):
    metadata: _Identity


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list."""

    items: list[T]
    resource_version: str
    continue_token: str
    left_out: tuple[ObjectReference, ...] = ()
    """What is there and cannot be read."""


def _struct_reader(kind: type[T], name: str) -> JsonReader[T]:
    """Of pages and watches, on which a component spends most of its time."""
    return JsonReader(kind, name, max_bytes=_MAX_ANSWER_BYTES, max_depth=None)


_envelope_reader = _struct_reader(_Envelope, "a line of a watch")
_status_reader = _struct_reader(Status, "a Status")
_identity_reader = _struct_reader(_ObjectWithIdentity, "an object's metadata")
_raw_page_reader = _struct_reader(_Page[msgspec.Raw], "a list")
_object_reader: JsonReader[Any] = JsonReader(Any, "an object", max_bytes=_MAX_ANSWER_BYTES)
_CHANGES = {kind.value: kind for kind in ChangeType}


class Codec(Generic[T]):
    """Reads one resource's objects, lists and watch events."""

    def __init__(self, resource: Resource[T]):
        self.resource = resource
        self._is_raw = resource.struct is Raw
        # Whole objects are handed on as they are: what others do with them must not run out of stack.
        depth: dict[str, Any] = {} if self._is_raw else {"max_depth": None}
        page: type[_Page[T]] = cast(Any, _Page)[resource.struct]
        self._objects: JsonReader[T] = JsonReader(resource.struct, resource.kind, max_bytes=_MAX_ANSWER_BYTES, **depth)
        self._pages: JsonReader[_Page[T]] = JsonReader(
            page, f"a list of {resource.plural}", max_bytes=_MAX_ANSWER_BYTES, **depth
        )

    def object(self, data: bytes | msgspec.Raw) -> T:
        """One object. Raises `DecodeError`."""
        try:
            return self._objects.read(data)
        except UnreadableError as error:
            return self._without_nulls(data, error)

    def page(self, data: bytes, on_unreadable: OnUnreadable = lambda about, problem: None) -> Page[T]:
        """One page of a list, without the objects that cannot be read. Raises `DecodeError` when it is not a list."""
        left_out: list[ObjectReference] = []

        def leave_out(about: ObjectReference | None, problem: str) -> None:
            left_out.extend([about] if about is not None else ())
            on_unreadable(about, problem)

        try:
            page = self._pages.read(data)
            items = page.items or []
        except UnreadableError:
            page, items = self._page_by_item(data, leave_out)
        if self._is_raw:
            items = [item for item in items if self._has_metadata(item, leave_out)]
            for item in items:
                self._name_kind(cast(Raw, item))
        return Page(items, page.metadata.resource_version, page.metadata.continue_token, tuple(left_out))

    def event(self, line: bytes, on_unreadable: OnUnreadable = lambda about, problem: None) -> WatchEvent[T] | None:
        """One line of a watch; None for what cannot be read or is not known.

        Raises the `ApiError` that an ERROR event carries, and `DecodeError` for a line that is not an event at all.
        """
        try:
            envelope = _envelope_reader.read(line)
        except UnreadableError as error:
            raise DecodeError(f"a line of the watch on {self.resource.plural} is not an event: {error}") from error
        if change := _CHANGES.get(envelope.type):
            obj = self._decode_or_none(envelope.object, on_unreadable)
            return Change(change, obj) if obj is not None else None
        return self._decode_bookmark(envelope)

    def _decode_bookmark(self, envelope: _Envelope) -> Bookmark | None:
        try:
            if envelope.type == "BOOKMARK":
                return Bookmark(_identity_reader.read(envelope.object).metadata.resource_version)
            if envelope.type == "ERROR":
                raise error_from_status(_status_reader.read(envelope.object))
        except UnreadableError as error:
            about = f"the {envelope.type} event of the watch on {self.resource.plural}"
            raise DecodeError(f"cannot read {about}: {error}") from error
        log.warning("An unknown watch event is ignored", resource=self.resource.plural, type=envelope.type[:32])
        return None

    def _page_by_item(self, data: bytes, on_unreadable: OnUnreadable) -> tuple[_Page[Any], list[T]]:
        try:
            page = _raw_page_reader.read(data)
        except UnreadableError as error:
            raise DecodeError(f"the list of {self.resource.plural} cannot be read: {error}") from error
        objects = (self._decode_or_none(item, on_unreadable) for item in page.items or ())
        return page, [obj for obj in objects if obj is not None]

    def _decode_or_none(self, data: msgspec.Raw, on_unreadable: OnUnreadable) -> T | None:
        try:
            obj = self.object(data)
        except DecodeError as error:
            on_unreadable(self._reference(data), str(error))
            return None
        return obj if not self._is_raw or self._has_metadata(obj, on_unreadable) else None

    def _has_metadata(self, obj: T, on_unreadable: OnUnreadable) -> bool:
        try:
            meta_of(obj)
        except DecodeError as error:
            on_unreadable(None, str(error))
            return False
        return True

    def _without_nulls(self, data: bytes | msgspec.Raw, first: UnreadableError) -> T:
        kind = self.resource.kind
        try:
            return convert_value(without_nulls(_object_reader.read(data)), self.resource.struct, kind)
        except UnreadableError:
            raise DecodeError(f"{kind} {self._name_of(data)}{str(first).removeprefix(kind)}") from first

    def _reference(self, data: bytes | msgspec.Raw) -> ObjectReference | None:
        """What can be read of an object that cannot."""
        try:
            known = _identity_reader.read(data).metadata
        except UnreadableError:
            return None
        about = ObjectReference(
            api_version=self.resource.api_version,
            kind=self.resource.kind,
            namespace=known.namespace or "",
            name=known.name or "",
            uid=known.uid or "",
        )
        return about if about.name else None

    def _name_of(self, data: bytes | msgspec.Raw) -> str:
        about = self._reference(data)
        return f"{about.namespace or '-'}/{about.name}" if about is not None else "without a readable name"

    def _name_kind(self, item: Raw) -> None:
        # Lists name the kind once, for all items; readers of whole objects expect it in each.
        item.setdefault("apiVersion", self.resource.api_version)
        item.setdefault("kind", self.resource.kind)


_codecs: dict[Resource[Any], Codec[Any]] = {}


def codec_of(resource: Resource[T]) -> Codec[T]:
    """The codec of a resource, made once: building one takes longer than a request."""
    codec: Codec[T] | None = _codecs.get(resource)
    if codec is None:
        codec = _codecs[resource] = Codec(resource)
    return codec
