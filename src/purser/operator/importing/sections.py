"""Sections that both operators know: what is taken over, field by field, and what is said to be lost."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from purser.operator.policy.decoding import in_words
from purser.operator.policy.fields import EnvVar

Raw = dict[str, Any]
UNKNOWN = "Purser has no such setting"
_SOURCE = "the variable is left out: it has a source, and Purser's have values only"


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """Why fields are not taken over, by their places below the spec; a section's holds for all that is in it."""

    unknown: Mapping[str, str] = {}
    """Of fields that Purser does not know. Those that are not here: `UNKNOWN`."""
    other: Mapping[str, str] = {}
    """Of fields that both know, but not for the same thing."""

    def of(self, where: str, known: bool) -> str:
        """Why a field is not taken over; empty: it is."""
        return self.other.get(where, "") if known else self.unknown.get(where, UNKNOWN)


class Ledger(msgspec.Struct, frozen=True):
    """What one object loses, line by line: each a field of it and the reason."""

    prefix: str
    """Of every place: ``spec``, ``NVIDIADriver h100: spec``."""
    lines: list[str]

    def lose(self, value: Any, where: str, why: str) -> None:
        """Every value that is set below ``where`` has a line of its own."""
        self.lines.extend(f"{self.prefix}.{each}: {why}" for each in _leaves(value, where))


def section(kind: type[msgspec.Struct], given: Raw, path: str, reasons: Reasons, lost: Ledger) -> Raw:
    """The fields of a section that Purser knows; the others are said to be lost; ``path``: of the section."""
    known = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    found: Raw = {}
    for name, value in given.items():
        where = f"{path}.{name}" if path else name
        if value is None:
            continue
        if why := reasons.of(where, name in known):
            lost.lose(value, where, why)
            continue
        kept = _value(hints[known[name]], value, where, reasons, lost)
        if kept is not None:
            found[name] = kept
    return found


def _value(hint: Any, value: Any, where: str, reasons: Reasons, lost: Ledger) -> Any:
    """A value as Purser writes it; None where it cannot be."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, dict):
        return section(hint, value, where, reasons, lost)
    if (kind := _struct_of_list(hint)) and isinstance(value, list):
        return _list(kind, value, where, reasons, lost)
    if _is_int_or_text(hint) and isinstance(value, str) and value.isdecimal() and value.isascii():
        value = int(value)
    try:
        return msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, hint)))
    except (msgspec.ValidationError, OverflowError) as error:
        lost.lose(value, where, in_words(error))
        return None


def _list(kind: type[msgspec.Struct], given: list[Any], where: str, reasons: Reasons, lost: Ledger) -> list[Any]:
    """Its items, one by one. Of variables with one name the last counts, as in a container."""
    found: list[Any] = []
    for place, each in enumerate(given):
        at = f"{where}[{place}]"
        if kind is EnvVar and _has_source(each):
            lost.lose(each, at, _SOURCE)
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


def _is_int_or_text(hint: Any) -> bool:
    members = [get_args(each)[0] if get_origin(each) is Annotated else each for each in get_args(hint)]
    return int in members and str in members


def _leaves(value: Any, where: str) -> Iterator[str]:
    """The places of all values in it that are set."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(each, f"{where}.{name}")
    elif value is not None:
        yield where
