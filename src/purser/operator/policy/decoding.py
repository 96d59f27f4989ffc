"""From an object of the API to a ClusterPolicy, or to a sentence that says what is wrong with it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from purser.operator.policy.checks import problems
from purser.operator.policy.spec import ClusterPolicy


class PolicyError(ValueError):
    """A ClusterPolicy that cannot be acted on; the message names field and fix."""


def decode(raw: Mapping[str, Any]) -> ClusterPolicy:
    """A policy with its defaults, checked. Null counts as absent, as it does for the API server.

    Raises `PolicyError`.
    """
    try:
        policy = msgspec.convert(_without_nulls(raw), ClusterPolicy)
    except msgspec.ValidationError as error:
        raise PolicyError(f"{_sentence(str(error))}") from error
    found = problems(policy.spec)
    if found:
        raise PolicyError("; ".join(found))
    return policy


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _sentence(problem: str) -> str:
    what, at, where = problem.partition(" - at `$.")
    return f"{where.rstrip('`')}: {what}" if at else problem
