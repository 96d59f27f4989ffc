"""Whether an object is as a scenario says: a part of it, compared field by field."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

MAX_NAMED_OBJECTS = 3
"""In a sentence about several objects that are not as wanted."""


def difference(wanted: Any, found: Any, path: str = "") -> str:
    """The first field that is otherwise, and how it is; empty where all is as wanted.

    Text matches with ``*``; null means that nothing is there; each element of a wanted list has to match one.
    """
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return _difference_at(path, found)
        parts = (difference(value, found.get(key), f"{path}.{key}" if path else key) for key, value in wanted.items())
        return next(filter(None, parts), "")
    if isinstance(wanted, list):
        there = found if isinstance(found, list) else []
        return (
            ""
            if all(any(not difference(each, one) for one in there) for each in wanted)
            else _difference_at(path, found)
        )
    return "" if _is_equal(wanted, found) else _difference_at(path, found)


def _is_equal(wanted: Any, found: Any) -> bool:
    if wanted is None:
        return found is None or found == "" or found == [] or found == {}
    if isinstance(wanted, str) and isinstance(found, str):
        return fnmatchcase(found, wanted)
    return type(wanted) is type(found) and bool(wanted == found)


def _difference_at(path: str, found: Any) -> str:
    return f"{path or 'the object'} is {'not set' if found is None else found}"
