"""Sections that both operators know: what is taken over, field by field, and what is not."""

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from purser.operator.importing.telling import Losses, says_something
from purser.operator.policy.decoding import in_words
from purser.operator.policy.fields import EnvVar

Raw = dict[str, Any]
UNKNOWN = "Purser has no such setting"
_SOURCE = "the variable {} is left out: it has a source, and Purser's have values only"


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """Why fields are not taken over, by their places below the spec; a section's holds for all that is in it."""

    unknown: Mapping[str, str] = {}
    """Of fields that Purser does not know. Those that are not here: `UNKNOWN`."""
    other: Mapping[str, str] = {}
    """Of fields that both know, but not for the same thing."""

    def of(self, where: str, known: bool) -> str:
        """Why a field is not taken over; empty: it is."""
        return self.other.get(where, "") if known else self.unknown.get(where, UNKNOWN)

    def is_met(self, where: str, value: Any) -> bool:
        """Whether Purser does what a field that it does not know asks for: nothing, of something known not to be."""
        return where in self.unknown and not says_something(value)


def section(kind: type[msgspec.Struct], given: Raw, path: str, reasons: Reasons, lost: Losses) -> Raw:
    """The fields of a section that Purser knows; the others are said to be lost; ``path``: of the section."""
    hints = _hints(kind)
    found: Raw = {}
    for name, value in given.items():
        where = f"{path}.{name}" if path else name
        if value is None:
            continue
        if name not in hints and reasons.is_met(where, value):
            continue
        if why := reasons.of(where, name in hints):
            lost.lose(value, where, why)
            continue
        kept = _value(hints[name], value, where, reasons, lost)
        if kept is not None:
            found[name] = kept
    return found


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The types of its fields, by the names that they have in objects."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


def _value(hint: Any, value: Any, where: str, reasons: Reasons, lost: Losses) -> Any:
    """A value as Purser writes it; None where it cannot be."""
    hint = _unless_absent(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, dict):
        return _whole(hint, section(hint, value, where, reasons, lost), where, lost)
    if (kind := _struct_of_list(hint)) and isinstance(value, list):
        return _list(kind, value, where, reasons, lost)
    if _is_int_or_text(hint) and isinstance(value, str) and value.isdecimal() and value.isascii():
        value = int(value)
    try:
        return msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, hint)))
    except (msgspec.ValidationError, OverflowError) as error:
        lost.lose(value, where, in_words(error))
        return None


def _whole(kind: type[msgspec.Struct], kept: Raw, where: str, lost: Losses) -> Raw | None:
    """The section, where it has all that it must have."""
    if missing := [name for name in _needed(kind) if name not in kept]:
        lost.lose_whole(where, f"it lacks the field {missing[0]}")
        return None
    return kept


@cache
def _needed(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind) if field.required)


def _list(kind: type[msgspec.Struct], given: list[Any], where: str, reasons: Reasons, lost: Losses) -> list[Any]:
    """Its items, one by one. Of variables with one name the last counts, as in a container."""
    found: list[Any] = []
    for place, each in enumerate(given):
        at = f"{where}[{place}]"
        if kind is EnvVar and _has_source(each):
            lost.lose_whole(at, _SOURCE.format(each.get("name")))
            found = [other for other in found if other["name"] != each.get("name")]
            continue
        kept = section(kind, each, at, reasons, lost) if isinstance(each, dict) else None
        try:
            msgspec.convert(kept, kind)
        except msgspec.ValidationError as error:
            lost.lose(each, at, in_words(error))
        else:
            found.append(kept)
    if kind is not EnvVar:
        return found
    return list({each["name"]: each for each in found if each}.values())


def _has_source(variable: Any) -> bool:
    return isinstance(variable, dict) and variable.get("valueFrom") is not None


def _struct_of_list(hint: Any) -> type[msgspec.Struct] | None:
    arguments = get_args(hint)
    if get_origin(hint) is tuple and isinstance(arguments[0], type) and issubclass(arguments[0], msgspec.Struct):
        return arguments[0]
    return None


def _unless_absent(hint: Any) -> Any:
    """The type of a field that may be absent, where it is there."""
    members = [each for each in get_args(hint) if each is not type(None)]
    is_optional = get_origin(hint) in (Union, UnionType) and len(members) == 1
    return members[0] if is_optional else hint


def _is_int_or_text(hint: Any) -> bool:
    members = [get_args(each)[0] if get_origin(each) is Annotated else each for each in get_args(hint)]
    return int in members and str in members
