"""States of other names: pods, nodes, GPUs and schedulers are alike, and their names say nothing.

In the values of states a tuple without field names is a bag: its order says nothing, and follows the names.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

NAMES = re.compile(r"pod\d+|scheduler\d+|node\d+(?:-gpu\d+)?")

_Names = tuple[tuple[str, str], ...]


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """With other names; those that are not in ``names`` stay."""
    changed = tuple(sorted((old, new) for old, new in names.items() if old != new))
    return _part(value, changed) if changed else value


def _part(value: Any, names: _Names) -> Any:
    if isinstance(value, str):
        return _text(value, names) if NAMES.search(value) else value
    return _whole(value, names) if isinstance(value, tuple | frozenset | msgspec.Struct) else value


@lru_cache(100_000)
def _text(value: str, names: _Names) -> str:
    return NAMES.sub(lambda found: dict(names).get(found[0], found[0]), value)


@lru_cache(100_000)
def _whole(value: Any, names: _Names) -> Any:
    if isinstance(value, msgspec.Struct):
        parts = {name: _part(getattr(value, name), names) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **parts)
    if isinstance(value, frozenset):
        return frozenset(_part(each, names) for each in value)
    others = [_part(each, names) for each in value]
    return type(value)(*others) if hasattr(value, "_fields") else tuple(sorted(others, key=_name_of))


def _name_of(value: Any) -> str:
    """What bags are in the order of: the pod."""
    while isinstance(value, tuple):
        value = value[0]
    return str(getattr(value, "pod_uid", value))
