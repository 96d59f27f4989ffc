"""From an object of the API to a ClusterPolicy, or to a sentence that says what is wrong with it."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from purser.operator.policy.checks import problems
from purser.operator.policy.spec import ClusterPolicy

_WORDS = {
    "array": "a list",
    "bool": "true or false",
    "date": "a date",
    "datetime": "a time",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "a section with fields",
    "str": "a text",
}
_PHRASES = {
    "Expected": "it has to be",
    "Invalid enum value": "it cannot be",
    "Object missing required field": "it lacks the field",
}
_PLACE = " - at `$"
_UNQUOTED = frozenset({"bool", "date", "datetime", "float", "int"})
"""What YAML makes of texts without quotes."""


class PolicyError(ValueError):
    """A ClusterPolicy that cannot be acted on; the message names field and fix."""


def decode(raw: Mapping[str, Any]) -> ClusterPolicy:
    """A policy with its defaults, checked. Null counts as absent, as it does for the API server.

    Raises `PolicyError`.
    """
    try:
        policy = msgspec.convert(_without_nulls(raw), ClusterPolicy)
    except msgspec.ValidationError as error:
        place = _place(error)
        raise PolicyError(f"{place}: {in_words(error)}" if place else in_words(error)) from error
    found = problems(policy.spec)
    if found:
        raise PolicyError("; ".join(found))
    return policy


def in_words(error: Exception) -> str:
    """What is wrong with a value, for people who write YAML: msgspec speaks of Python's types."""
    problem = str(error).partition(_PLACE)[0]
    if match := re.fullmatch(r"Expected `(.+)`, got `(.+)`", problem):
        wanted, found = match[1].split(" | "), match[2]
        hint = ": write it in quotes" if "str" in wanted and found in _UNQUOTED else ""
        return f"this is {_word(found)}, and has to be {' or '.join(map(_word, wanted))}{hint}"
    for theirs, ours in _PHRASES.items():
        problem = problem.replace(theirs, ours)
    return re.sub("`([^`]+)`", lambda each: _word(each[1]), problem)


def _word(kind: str) -> str:
    return _WORDS.get(kind, kind)


def _place(error: msgspec.ValidationError) -> str:
    return str(error).partition(_PLACE)[2].rstrip("`").removeprefix(".")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
