"""Label selectors: as objects carry them (LabelSelector), and as text (``app=train,tier in (a,b),!debug``)."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from purser.core.decoding import UnreadableError, converted

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

_SPACES = " \t\r\n"
"""What separates words: Kubernetes' own four, and no others that Unicode knows."""

_S = f"[{_SPACES}]*"
_KEY = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"(?P<key>{_KEY})[{_SPACES}]+(?P<how>in|notin){_S}\((?P<values>[^()]*)\)")
_EQUAL = re.compile(rf"(?P<key>{_KEY}){_S}(?P<how>==|=|!=){_S}(?P<value>{_VALUE})")
_EXISTS = re.compile(rf"(?P<no>!?){_S}(?P<key>{_KEY})")
_COMMA = re.compile(r",(?![^(]*\))")  # outside of parentheses

_ANY = "|".join(re.sub(r"\?P<\w+>", "", each.pattern) for each in (_SET, _EQUAL, _EXISTS))
PATTERN = f"^{_S}(({_ANY}){_S}(,{_S}({_ANY}){_S})*)?$"
"""What `parse` takes, as a regular expression of RE2."""


class SelectorError(ValueError):
    """A selector that means nothing; the message says which part of it."""


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it. What is not there is in no set, so that NotIn holds."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


class Selector(msgspec.Struct, frozen=True):
    """All conditions have to be met; without any, everything matches."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet all conditions."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def of_object(selector: Mapping[str, Any]) -> Selector:
    """A LabelSelector: matchLabels and matchExpressions. Raises `SelectorError` for an unknown operator."""
    equal = [Requirement(key, "In", (value,)) for key, value in sorted((selector.get("matchLabels") or {}).items())]
    return Selector((*equal, *map(_expression, selector.get("matchExpressions") or ())))


def _expression(expression: Mapping[str, Any]) -> Requirement:
    try:
        raw = {key: value for key, value in expression.items() if value is not None}
        return converted(raw, Requirement, "matchExpressions")
    except UnreadableError as error:
        raise SelectorError(str(error)) from error


@lru_cache(maxsize=64)
def parse(text: str) -> Selector:
    """A selector as kubectl's ``-l`` takes it; empty text matches everything. Raises `SelectorError`."""
    parts = [part.strip(_SPACES) for part in _COMMA.split(text)] if text.strip(_SPACES) else []
    return Selector(tuple(_part(part) for part in parts))


def _part(part: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = tuple(value.strip(_SPACES) for value in found["values"].split(","))
        return Requirement(found["key"], "In" if found["how"] == "in" else "NotIn", values)
    if found := _EQUAL.fullmatch(part):
        return Requirement(found["key"], "NotIn" if found["how"] == "!=" else "In", (found["value"],))
    if found := _EXISTS.fullmatch(part):
        return Requirement(found["key"], "DoesNotExist" if found["no"] else "Exists")
    raise SelectorError(f"{part!r} is no label selector: write such as app=train, tier in (a,b), or !debug")
