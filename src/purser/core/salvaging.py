"""What can be read of a value with mistakes in it: whoever mistypes one entry of a file is not to lose the others.

A mistake costs the smallest part of the value that has a meaning by itself: a field of an object, an item of a list of
objects. Each is reported in one sentence: where it stands, what is there, what to write, and that it is left out.
"""

import re
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from purser.core.decoding import UnreadableError, brief, convert_value
from purser.core.wording import counted

T = TypeVar("T")

MAX_SHOWN = 60
"""Characters of a value that a sentence shows."""

_AMBIGUOUS_TEXT = re.compile(r"[-+.0-9e]*|true|false|null|yes|no|on|off", re.ASCII | re.IGNORECASE)
"""Texts that without quotation marks are taken for values of other types."""

_ENTRY_IGNORED = "The entry is ignored"
_NOTHING: Final = object()
_BOUNDS = {"ge": "of {} or more", "gt": "greater than {}", "le": "of at most {}", "lt": "less than {}"}

Advice = Mapping[tuple[Any, str], str]
"""By Struct and the name of its field in the file, what to write there where the type alone does not say it."""


def salvage(
    value: Any,
    kind: type[T],
    name: str,
    mistakes: list[str],
    *,
    whole: Collection[type] = (),
    advice: Advice = types.MappingProxyType({}),
    at: str = "",
) -> T:
    """The value as this Struct, without what of it cannot be read; a sentence for each such part goes to ``mistakes``.

    ``name``: what sentences call the file. ``at``: where the value stands in it. ``whole``: Structs that mean nothing
    without one of their fields. Raises `UnreadableError` where the value as a whole is none.
    """
    found: list[str] = []
    plain = _Reading(name, whole, advice, found).of(value, kind, at)
    if plain is _NOTHING:
        raise UnreadableError(found[0] if found else f"{name} cannot be read")
    mistakes += found
    return convert_value(plain, kind, _named(name, at))


def mistake_sentence(name: str, at: str, value: Any, write: str, cost: str = "The value is ignored") -> str:
    """The sentence for a value that is left out, or because of which something else is."""
    return f"{_named(name, at)} is {shown(value)}, but must be {write}. {cost}"


def _named(name: str, at: str) -> str:
    return f"{name}: {at}" if at else name


def cap_sentences(sentences: Sequence[str], most: int, name: str) -> tuple[str, ...]:
    """So many sentences at most; the last one then counts those that are not there."""
    if len(sentences) <= most:
        return tuple(sentences)
    return (
        *sentences[: most - 1],
        f"{name}: fix these first to see {counted(len(sentences) - most + 1, 'more message')}",
    )


def shown(value: Any) -> str:
    """A value as a sentence shows it, in the words of JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | list):
        of = ("an object", "an empty object") if isinstance(value, dict) else ("a list", "an empty list")
        return of[0] if value else of[1]
    text = brief(value, MAX_SHOWN)
    return f'the string "{text}"' if isinstance(value, str) and _AMBIGUOUS_TEXT.fullmatch(text) else text


class _Reading:
    """Of one value."""

    def __init__(self, name: str, whole: Collection[type], advice: Advice, mistakes: list[str]) -> None:
        self._name = name
        self._whole = whole
        self._advice = advice
        self._mistakes = mistakes

    def of(self, value: Any, kind: Any, at: str, write: str = "", cost: str = "The value is ignored") -> Any:
        """The value without mistakes, or `_NOTHING`."""
        struct, item = _struct_type(kind), _item_type(kind)
        if struct is not None and isinstance(value, dict):
            return self._object(value, struct, at)
        if item is not None and isinstance(value, list):
            each = [self.of(one, item, f"{at}[{place}]") for place, one in enumerate(value)]
            return [one for one in each if one is not _NOTHING]
        if struct is None and item is None:
            try:
                convert_value(value, kind, at)
            except UnreadableError:
                pass
            else:
                return value
        self._mistakes.append(mistake_sentence(self._name, at, value, write or words_of(kind), cost))
        return _NOTHING

    def _object(self, value: dict[Any, Any], struct: type, at: str) -> Any:
        found: dict[str, Any] = {}
        is_whole, is_ignored, before = struct in self._whole, False, len(self._mistakes)
        cost = _ENTRY_IGNORED if is_whole else "The value is ignored"
        for field in msgspec.structs.fields(struct):
            key, inner = field.encode_name, f"{at}.{field.encode_name}".removeprefix(".")
            write = self._advice.get((struct, key)) or words_of(field.type)
            if key in value:
                kept = self.of(value[key], field.type, inner, write, cost)
                if kept is not _NOTHING:
                    found[key] = kept
            elif field.required:
                where = _named(self._name, at)
                self._mistakes.append(f"{where} lacks {key}, which must be {write}. {_ENTRY_IGNORED}")
            is_ignored = is_ignored or (field.required and key not in found)
        if is_ignored or (is_whole and len(self._mistakes) > before):
            return _NOTHING
        return self._build_struct(found, struct, at) if is_whole else found

    def _build_struct(self, found: dict[str, Any], struct: type, at: str) -> Any:
        """What the Struct itself says of its fields."""
        try:
            convert_value(found, struct, f"{self._name}: {at}")
        except UnreadableError as error:
            self._mistakes.append(f"{str(error).removesuffix(' - at `$`')}. {_ENTRY_IGNORED}")
            return _NOTHING
        return found


def _members(kind: Any) -> tuple[Any, ...]:
    """Those of a union, but for None."""
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(each for each in get_args(kind) if each is not type(None))
    return (kind,)


def _struct_type(kind: Any) -> type | None:
    return next((one for one in _members(kind) if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


def _item_type(kind: Any) -> type | None:
    """Of a list of Structs their type."""
    for one in _members(kind):
        plain = get_args(one)[0] if get_origin(one) is Annotated else one
        if get_origin(plain) is tuple and (struct := _struct_type(get_args(plain)[0])) is not None:
            return struct
    return None


_WORDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    dict: "an object",
    Any: "a value",
}


def words_of(kind: Any) -> str:
    """What to write for a value of this type: ``a whole number from 2``."""
    members = _members(kind)
    if len(members) > 1:
        return " or ".join(dict.fromkeys(map(words_of, members)))
    (one,) = members
    if get_origin(one) is Annotated:
        plain, *metas = get_args(one)
        limits = {key: bound for meta in metas for key in _BOUNDS if (bound := getattr(meta, key, None)) is not None}
        if limits.keys() == {"ge", "le"}:
            return f"{words_of(plain)} from {limits['ge']} to {limits['le']}"
        bounds = (_BOUNDS[key].format(bound) for key, bound in limits.items())
        return " ".join((words_of(plain), *bounds))
    if get_origin(one) is Literal:
        return " or ".join(map(str, filter(None, get_args(one))))
    if get_origin(one) is tuple:
        return "a list of objects" if _item_type(one) else f"a list in which each item is {words_of(get_args(one)[0])}"
    if _struct_type(one) is not None:
        return "an object"
    if get_origin(one) is dict and get_origin(inner := get_args(one)[1]) is dict:
        return f"an object of objects in which each value is {words_of(get_args(inner)[1])}"
    return _WORDS.get(get_origin(one) or one, "a value")
