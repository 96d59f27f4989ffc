"""Takes sections over field by field, and reports what is lost on the way, the most important first."""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from itertools import groupby
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from purser.core.wording import NaturalKey, natural_sort_key
from purser.operator.policy.decoding import describe_error
from purser.operator.policy.fields import EnvVar


class Rank(IntEnum):
    """What a loss does, the worst first."""

    RUNS_DIFFERENTLY = 0
    """Something runs where it did not, or another one than did."""
    NOT_DEPLOYED = 1
    """A node gets nothing of something that it had."""
    FEATURE = 2
    """A feature that was on is off."""
    SETTING = 3
    """A setting that Purser does not have, or has for all nodes alike."""
    OFF = 4
    """It had no effect, and has none."""

    @property
    def headline(self) -> str:
        """What people read above the lines of this rank."""
        return _HEADLINES[self]


_HEADLINES = {
    Rank.RUNS_DIFFERENTLY: "so these run on different nodes than before or behave differently",
    Rank.NOT_DEPLOYED: "so these are no longer deployed to the affected nodes",
    Rank.FEATURE: "so these features are off",
    Rank.SETTING: "because Purser does not support these settings",
    Rank.OFF: "because these had no effect",
}


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not taken over, and why."""

    place: str
    """``NVIDIADriver h100: spec.args``"""
    why: str
    rank: Rank = Rank.SETTING


class Losses(msgspec.Struct, frozen=True):
    """What is not taken over of one object; objects of one import share the list."""

    prefix: str
    """Of every place: ``spec``, ``NVIDIADriver h100: spec``."""
    losses: list[Loss]

    def drop(self, value: Any, where: str, why: str, rank: Rank = Rank.SETTING) -> None:
        """Every value that is set below ``where``."""
        self.losses.extend(Loss(place=f"{self.prefix}.{each}", why=why, rank=rank) for each in leaves(value, where))

    def drop_section(self, where: str, why: str, rank: Rank = Rank.SETTING) -> None:
        """All that is below ``where``, as one thing."""
        self.losses.append(Loss(place=f"{self.prefix}.{where}", why=why, rank=rank))

    def note(self, what: str, why: str, rank: Rank = Rank.SETTING) -> None:
        """Something that is not a field: ``what`` is reported verbatim."""
        self.losses.append(Loss(place=what, why=why, rank=rank))


def leaves(value: Any, where: str) -> Iterator[str]:
    """The places of all values in it that are set."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from leaves(each, f"{where}.{name}")
    elif value is not None:
        yield where


def at(value: Any, place: str) -> Any:
    """What stands at a place such as ``driver.profiles[0].gds``; None where nothing does."""
    for name in place.split("."):
        field, bracket, number = name.partition("[")
        value = value.get(field) if isinstance(value, dict) else None
        if bracket:
            items = value if isinstance(value, list) else []
            value = items[int(number[:-1])] if int(number[:-1]) < len(items) else None
    return value


def is_requested(value: Any) -> bool:
    """Whether it asks for anything: empty and false values do not."""
    if isinstance(value, dict):
        return any(is_requested(each) for each in value.values())
    return value not in (None, False, "", [])


class Line(msgspec.Struct, frozen=True, order=True):
    """What people read of losses that share place and reason."""

    rank: Rank
    key: NaturalKey
    """By which lines of a rank are sorted."""
    text: str
    """``spec.a.b, .c: why``"""


def lines(losses: Iterable[Loss]) -> tuple[Line, ...]:
    """One line for the fields of one section that share a reason."""
    found = {(each.rank, each.why, *_divided(each)) for each in losses}
    ordered = sorted(found, key=lambda each: (each[0], each[2], each[1], natural_sort_key(each[3])))
    lines = []
    for (rank, section, why), fields in groupby(ordered, key=lambda each: (each[0], each[2], each[1])):
        first, *others = [name for *_, name in fields]
        names = ", .".join([f"{section}.{first}" if first else section, *others])
        lines.append(Line(rank, natural_sort_key(names), f"{names}: {why}"))
    return tuple(sorted(lines))


def _divided(loss: Loss) -> tuple[str, str]:
    """The section, and the field in it; what matters most, and what is not a field, stands alone."""
    is_field = loss.place.startswith("spec.") or ": spec." in loss.place
    if not is_field or loss.rank is not Rank.SETTING:
        return loss.place, ""
    section, _, name = loss.place.rpartition(".")
    return section, name


# --- sections


Raw = dict[str, Any]
UNKNOWN = "Purser has no such setting"
_SOURCE = "variable {} is removed: it uses valueFrom, and Purser supports plain values only"


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """Why fields are not taken over, by their places below the spec; a section's holds for all that is in it."""

    unknown: Mapping[str, str] = {}
    """Of fields that Purser does not know. Those that are not here: `UNKNOWN`."""
    other: Mapping[str, str] = {}
    """Of fields that both know, but not for the same thing."""
    ranks: Mapping[str, Rank] = {}
    """Of fields whose loss is more than that of a setting."""

    def of(self, where: str, known: bool) -> str:
        """Why a field is not taken over; empty: it is."""
        return self.other.get(where, "") if known else self.unknown.get(where, UNKNOWN)

    def is_met(self, where: str, value: Any) -> bool:
        """Whether Purser does what a field that it does not know asks for: nothing, of something known not to be."""
        return where in self.unknown and not is_requested(value)


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
            lost.drop(value, where, why, reasons.ranks.get(where, Rank.SETTING))
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
    hint = _present_type(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, dict):
        return _whole(hint, section(hint, value, where, reasons, lost), where, lost)
    if (kind := _struct_of_list(hint)) and isinstance(value, list):
        return _list(kind, value, where, reasons, lost)
    if _is_int_or_text(hint) and isinstance(value, str) and value.isdecimal() and value.isascii():
        value = int(value)
    try:
        return msgspec.json.decode(msgspec.json.encode(msgspec.convert(value, hint)))
    except (msgspec.ValidationError, OverflowError) as error:
        lost.drop(value, where, describe_error(error))
        return None


def _whole(kind: type[msgspec.Struct], kept: Raw, where: str, lost: Losses) -> Raw | None:
    """The section, where it has all that it must have."""
    if missing := [name for name in _required_fields(kind) if name not in kept]:
        lost.drop_section(where, f"required field {missing[0]} is missing")
        return None
    return kept


@cache
def _required_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind) if field.required)


def _list(kind: type[msgspec.Struct], given: list[Any], where: str, reasons: Reasons, lost: Losses) -> list[Any]:
    """Its items, one by one. Of variables with one name the last counts, as in a container."""
    found: list[Any] = []
    for place, each in enumerate(given):
        at = f"{where}[{place}]"
        if kind is EnvVar and _has_source(each):
            lost.drop_section(at, _SOURCE.format(each.get("name")), Rank.FEATURE)
            found = [other for other in found if other["name"] != each.get("name")]
            continue
        kept = section(kind, each, at, reasons, lost) if isinstance(each, dict) else None
        try:
            msgspec.convert(kept, kind)
        except msgspec.ValidationError as error:
            lost.drop(each, at, describe_error(error))
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


def _present_type(hint: Any) -> Any:
    """The type of a field that may be absent, where it is there."""
    members = [each for each in get_args(hint) if each is not type(None)]
    is_optional = get_origin(hint) in (Union, UnionType) and len(members) == 1
    return members[0] if is_optional else hint


def _is_int_or_text(hint: Any) -> bool:
    members = [get_args(each)[0] if get_origin(each) is Annotated else each for each in get_args(hint)]
    return int in members and str in members


# --- driver sections


_RENAMED = {
    ("upgradePolicy", "podDeletion"): ("upgradePolicy", "gpuPodDeletion"),
    ("repoConfig", "name"): ("repoConfig", "configMapName"),
    ("licensingConfig", "name"): ("licensingConfig", "configMapName"),
    ("virtualTopologyConfig", "name"): ("virtualTopology", "config"),
}
"""Fields, by part and name, that Purser calls otherwise."""

UNSUPPORTED_FIELDS = {
    "useOpenKernelModules": "replaced by kernelModuleType",
}
"""Fields without counterpart and why, by the names that Purser would have for them."""


def with_new_names(driver: Raw) -> Raw:
    """The section with Purser's names. A field that is also there under its new name is left as it is, as an unknown
    field."""
    found: Raw = {name: dict(value) if isinstance(value, dict) else value for name, value in driver.items()}
    for (part, name), (new_part, new_name) in _RENAMED.items():
        old = found.get(part)
        if isinstance(old, dict) and name in old:
            new = found.setdefault(new_part, {})
            if isinstance(new, dict) and new_name not in new:
                new[new_name] = old.pop(name)
        if old == {} and new_part != part:
            del found[part]
    return found
