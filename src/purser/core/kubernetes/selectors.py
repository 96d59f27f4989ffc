"""Label selectors: as objects carry them (LabelSelector), and as text (``app=train,tier in (a,b),!debug``)."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from purser.core.decoding import UnreadableError, convert_value

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

OBJECT_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
"""Operators of a LabelSelector's matchExpressions. Text has Gt and Lt as well (``>``, ``<``)."""

_SPACES = " \t\r\n"
"""What separates words: Kubernetes' own four, and no others that Unicode knows."""

_OPTIONAL_SPACE = f"[{_SPACES}]*"
_KEY = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"(?P<key>{_KEY})[{_SPACES}]+(?P<how>in|notin){_OPTIONAL_SPACE}\((?P<values>[^()]*)\)")
_EQUAL = re.compile(rf"(?P<key>{_KEY}){_OPTIONAL_SPACE}(?P<how>==|=|!=){_OPTIONAL_SPACE}(?P<value>{_VALUE})")
_BOUND = re.compile(rf"(?P<key>{_KEY}){_OPTIONAL_SPACE}(?P<how>[<>]){_OPTIONAL_SPACE}(?P<value>[+-]?[0-9]{{1,18}})")
_EXISTS = re.compile(rf"(?P<no>!?){_OPTIONAL_SPACE}(?P<key>{_KEY})")
_INTEGER = re.compile("[+-]?[0-9]{1,18}")
_COMMA = re.compile(r",(?![^(]*\))")  # outside of parentheses

_ANY_REQUIREMENT = "|".join(re.sub(r"\?P<\w+>", "", each.pattern) for each in (_SET, _EQUAL, _BOUND, _EXISTS))
_SPACED_REQUIREMENT = f"({_ANY_REQUIREMENT}){_OPTIONAL_SPACE}"
PATTERN = f"^{_OPTIONAL_SPACE}({_SPACED_REQUIREMENT}(,{_OPTIONAL_SPACE}{_SPACED_REQUIREMENT})*)?$"
"""What `parse` accepts, as a regular expression in RE2 syntax."""


class SelectorError(ValueError):
    """An invalid selector; the message names the part that is wrong."""


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it. NotIn also holds without the label; Gt and Lt need an integer as its value."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case "Gt" | "Lt":
                value = labels.get(self.key, "")
                if not _INTEGER.fullmatch(value):
                    return False
                bound = int(self.values[0])
                return int(value) > bound if self.operator == "Gt" else int(value) < bound


class Selector(msgspec.Struct, frozen=True):
    """Matches where all conditions are met; without conditions it matches everything."""

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
        requirement = convert_value(raw, Requirement, "matchExpressions")
    except UnreadableError as error:
        raise SelectorError(str(error)) from error
    if requirement.operator not in OBJECT_OPERATORS:
        raise SelectorError(f"matchExpressions: unknown label selector operator {requirement.operator}")
    return requirement


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
    if found := _BOUND.fullmatch(part):
        return Requirement(found["key"], "Gt" if found["how"] == ">" else "Lt", (found["value"],))
    if found := _EXISTS.fullmatch(part):
        return Requirement(found["key"], "DoesNotExist" if found["no"] else "Exists")
    raise SelectorError(f"{part!r} is not a label selector: use one such as app=train, tier in (a,b) or !debug")
