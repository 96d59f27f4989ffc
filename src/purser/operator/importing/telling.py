"""What is told of an import: losses as they are found, and the lines that people read, what matters most first."""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import groupby
from typing import Any

import msgspec

from purser.operator.wording import natural


class Rank(IntEnum):
    """How much a loss matters."""

    FIRST = 0
    """Something that was at work is not any more, or the other way round."""
    SETTING = 1
    """One that Purser does not have, or has for all nodes alike."""
    OFF = 2
    """It was off."""


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

    def lose(self, value: Any, where: str, why: str) -> None:
        """Every value that is set below ``where``."""
        self.losses.extend(Loss(place=f"{self.prefix}.{each}", why=why) for each in leaves(value, where))

    def lose_whole(self, where: str, why: str, rank: Rank = Rank.SETTING) -> None:
        """All that is below ``where``, as one thing."""
        self.losses.append(Loss(place=f"{self.prefix}.{where}", why=why, rank=rank))

    def note(self, what: str, why: str, rank: Rank = Rank.SETTING) -> None:
        """Something that is no field: ``what`` is told as it is."""
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


def says_something(value: Any) -> bool:
    """Whether it asks for anything: empty and false values do not."""
    if isinstance(value, dict):
        return any(says_something(each) for each in value.values())
    return value not in (None, False, "", [])


def lines(losses: Iterable[Loss]) -> tuple[str, ...]:
    """One line for the fields of one section that share a reason: ``spec.a.b, .c: why``."""
    found = {(each.rank, each.why, *_divided(each)) for each in losses}
    ordered = sorted(found, key=lambda each: (each[0], each[2], each[1], natural(each[3])))
    told = []
    for (rank, section, why), fields in groupby(ordered, key=lambda each: (each[0], each[2], each[1])):
        first, *others = [name for *_, name in fields]
        names = ", .".join([f"{section}.{first}" if first else section, *others])
        told.append((rank, natural(names), f"{names}: {why}"))
    return tuple(text for *_, text in sorted(told))


def _divided(loss: Loss) -> tuple[str, str]:
    """The section, and the field in it; what matters most, and what is no field, stands alone."""
    is_field = loss.place.startswith("spec.") or ": spec." in loss.place
    if not is_field or loss.rank is not Rank.SETTING:
        return loss.place, ""
    section, _, name = loss.place.rpartition(".")
    return section, name
