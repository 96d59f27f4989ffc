"""The one decoder of untrusted input: annotations, request bodies, objects, files.

Every failure is an `UnreadableError`, whose message names what was read and the reason, in one short line. So each
caller can report it on the object that carried it. The limits on size and depth are the same for all readers, and do
not depend on the depth of Python's stack or its release.

    _grants = JsonReader(Grant, "annotation purser.dev/grant", max_bytes=64 * 1024)
    grant = _grants.read(text)
"""

import base64
from itertools import accumulate
from typing import Any, Generic, TypeVar

import msgspec

MAX_DEPTH = 100
"""Lists and objects within one another. Kubernetes' own objects stay below 40; each level costs a frame of the stack,
of which Python has 1000."""

MAX_MESSAGE = 240
"""Characters of a parser's complaint that are passed on: it may quote the text, however long that is."""

T = TypeVar("T")

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NESTING_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class UnreadableError(ValueError):
    """A text that others wrote and that cannot be read; the message names the text and the cause, in one line."""


class JsonReader(Generic[T]):
    """Reads one kind of JSON. Made once and kept: preparing a decoder takes longer than most texts."""

    def __init__(
        self, kind: type[T], name: str, *, max_bytes: int, max_depth: int | None = MAX_DEPTH, strict: bool = True
    ) -> None:
        """``kind`` is anything msgspec decodes into, ``name`` what error messages call the text.

        ``max_depth`` None, only for Structs and where each microsecond counts: what they skip nests as deep as msgspec
        follows it, several hundred levels. Not ``strict``: texts stand for numbers and booleans as well.
        """
        self._decoder = msgspec.json.Decoder(kind, strict=strict)
        self._name = name
        self._max_bytes = max_bytes
        self._max_depth = max_depth

    def read(self, text: str | bytes | msgspec.Raw) -> T:
        """The value. Raises `UnreadableError`, and nothing else whatever the text."""
        if len(text := as_bytes(text, self._name)) > self._max_bytes:
            raise size_error(self._name, len(text), self._max_bytes)
        if self._max_depth is not None:
            check_depth(text, self._name, self._max_depth)
        try:
            return self._decoder.decode(text)
        except Exception as error:  # whatever a parser makes of a text that others wrote is that text's fault
            raise unreadable(self._name, error) from error


def convert_value(value: Any, kind: type[T], name: str, *, strict: bool = True) -> T:
    """A plain value (of YAML, of an object without a Struct) as ``kind``. Raises `UnreadableError`."""
    try:
        return msgspec.convert(value, kind, strict=strict)
    except Exception as error:  # as above
        raise unreadable(name, error) from error


def check_nesting(value: Any, name: str, max_depth: int = MAX_DEPTH) -> None:
    """The same as `check_depth`, of a plain value."""
    level: list[Any] = [value]
    for _ in range(max_depth + 1):
        inner = [each for each in level if isinstance(each, dict | list)]
        if not inner:
            return
        level = [item for each in inner for item in (each.values() if isinstance(each, dict) else each)]
    raise UnreadableError(f"{name} cannot be read: it is nested deeper than {max_depth} levels")


def without_nulls(value: Any) -> Any:
    """A plain value without what is null in it: Go writes null for a field's zero value. Of values that nest no deeper
    than the limit."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def from_base64(text: str | bytes, name: str, *, max_bytes: int) -> bytes:
    """What a text in base64, without any other character, stands for. Raises `UnreadableError`."""
    if len(text) > max_bytes:
        raise size_error(name, len(text), max_bytes)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise UnreadableError(f"{name} is not base64: {brief(error)}") from error


def text_of(data: bytes, name: str, *, max_bytes: int) -> str:
    """UTF-8 as text. Raises `UnreadableError`."""
    if len(data) > max_bytes:
        raise size_error(name, len(data), max_bytes)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise unreadable(name, error) from error


def as_bytes(text: str | bytes | msgspec.Raw, name: str) -> bytes:
    """The bytes of a text, be it bytes already. Raises `UnreadableError` for half of a surrogate pair."""
    if not isinstance(text, str):
        return bytes(text)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise unreadable(name, error) from error


def check_depth(text: bytes, name: str, max_depth: int = MAX_DEPTH) -> None:
    """Raises `UnreadableError` for JSON that nests deeper. What is not JSON at all may pass: parsers refuse it.

    Costs no more than counting brackets where there are too few for it; else about as much as splitting the text, up to
    the last opening bracket, at its quotation marks.
    """
    text = text[: max(text.rfind(b"["), text.rfind(b"{")) + 1]  # a long list of names at the end costs nothing
    if text.count(b"[") + text.count(b"{") <= max_depth:
        return
    if b"\\" in text:
        # In this order: a backslash that is itself escaped escapes nothing.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(text.split(b'"')[::2]).translate(None, _NOT_BRACKETS)
    if max(accumulate(map(_NESTING_STEPS.__getitem__, brackets)), default=0) > max_depth:
        raise UnreadableError(f"{name} cannot be read: it is nested deeper than {max_depth} levels")


def unreadable(name: str, error: BaseException) -> UnreadableError:
    """The one error for whatever a parser raised."""
    if isinstance(error, RecursionError):
        return UnreadableError(f"{name} cannot be read: it is nested too deeply")
    return UnreadableError(f"{name} cannot be read: {brief(error)}")


def size_error(name: str, found: int, limit: int) -> UnreadableError:
    """The error for more bytes than the limit."""
    return UnreadableError(f"{name} has {found} bytes, more than the maximum of {limit}")


def brief(error: object, max_characters: int = MAX_MESSAGE) -> str:
    """One printable line of at most this many characters: the message may quote untrusted text."""
    text = " ".join(str(error)[: 4 * max_characters].split())
    if len(text) > max_characters:
        text = f"{text[: max_characters - 3]}..."
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
